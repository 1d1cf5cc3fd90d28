// This file tests leases end to end: real daemon, real guard, real nodes, and what is left of them when one of the
// first two is stopped, killed or unable to work.

package daemon_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

// shortLease is the shortest that the configuration takes.
const shortLease = "\n[lease]\nttl = \"2s\"\n"

// aFew leases' time, for tests of what must not happen meanwhile.
const fewLeases = 5 * time.Second

func TestL13_DaemonThatIsStoppedLosesItsNodes(t *testing.T) {
	h := newHost(t, templates+shortLease)
	h.run("running")
	tree, plain := h.donate("stubborn", "tree"), h.donate("sleeper", "plain")
	child := h.childOf(tree)
	signalTo(t, h.cmd.Process.Pid, unix.SIGSTOP)
	stopped := time.Now()
	h.eventually("no node is left", func() bool { return !running(tree.PID) && !running(child) && !running(plain.PID) })
	if lasted := time.Since(stopped); lasted < 700*time.Millisecond { // 2 s, renewed 1.1 s ago at most, less what a loaded machine adds
		t.Errorf("they ended %v after the daemon was stopped", lasted)
	}
	signalTo(t, h.cmd.Process.Pid, unix.SIGCONT)
	for _, was := range []api.View{tree, plain} {
		v := h.await(was.Name, "back", func(v api.View) bool { return v.Ready && v.PID != was.PID })
		if v.Attempts != 0 || v.LastExit == nil || v.LastExit.Reason != donation.ReasonLeaseExpired {
			t.Errorf("%s: %d attempts, last exit %+v; want lease-expired, uncharged", v.Name, v.Attempts, v.LastExit)
		}
	}
}

func TestL13_DaemonThatWasAwayForLonger(t *testing.T) {
	h := newHost(t, templates+shortLease)
	h.run("running")
	v := h.donate("sleeper", "node")
	h.kill()
	h.eventually("the node is gone", func() bool { return !running(v.PID) })
	h.run("running")
	now := h.await("node", "back", func(now api.View) bool { return now.Ready && now.PID != v.PID })
	if now.Attempts != 0 || now.LastExit == nil || now.LastExit.Reason != donation.ReasonLeaseExpired {
		t.Errorf("%d attempts, last exit %+v; want lease-expired, uncharged", now.Attempts, now.LastExit)
	}
}

func TestL14_RestartsCostNoLease(t *testing.T) {
	h := newHost(t, templates+shortLease)
	h.run("running")
	v := h.donate("sleeper", "node")
	for begun := time.Now(); time.Since(begun) < fewLeases; {
		h.stop()
		h.run("running")
	}
	h.mustBe(v)
	h.kill()
	h.run("running")
	h.mustBe(v)
}

// mustBe checks that a node is the process that it was, at no charge.
func (h *host) mustBe(was api.View) {
	h.t.Helper()
	if v := h.view(string(was.ID)); v.PID != was.PID || !running(was.PID) || v.Attempts != 0 {
		h.t.Errorf("%s: pid %d, %d attempts; want pid %d, none", was.ID, v.PID, v.Attempts, was.PID)
	}
}

func TestL15_StoppedGuardLosesNoNode(t *testing.T) {
	h := newHost(t, templates+shortLease)
	h.run("running")
	v := h.donate("sleeper", "node")
	pid := h.guardPID()
	signalTo(t, pid, unix.SIGSTOP)
	<-time.After(fewLeases) // the lease runs out meanwhile: time is what is tested
	low := h.view("node")
	if low.Lease == nil || low.Lease.Failures == 0 || !low.Lease.Low || low.Lease.LastError == "" {
		t.Errorf("while the guard is stopped the lease shows as %+v", low.Lease)
	}
	signalTo(t, pid, unix.SIGCONT)
	h.await("node", "renewed", func(v api.View) bool { return v.Lease != nil && v.Lease.Failures == 0 && !v.Lease.Low })
	h.mustBe(v)
	events, err := h.client.Events(t.Context(), "node", 0, api.MaxEvents)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	for _, want := range []string{donation.EventLeaseFailing, donation.EventLeaseRegained} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no event %s in %v", want, kinds)
		}
	}
	if history := h.view("node").Lease.History; len(history) < 2 || history[0].Kind != donation.EventLeaseRegained {
		t.Errorf("history: %+v", history)
	}
}

func TestL13_GuardKilledWhileLeasesRun(t *testing.T) {
	h := newHost(t, templates+shortLease)
	h.run("running")
	v := h.donate("sleeper", "node")
	old := h.guardPID()
	signalTo(t, old, unix.SIGKILL)
	h.eventually("another guard", func() bool {
		o, err := h.client.Overview(t.Context())
		return err == nil && o.Guard.State == "connected" && o.Guard.PID != old && o.Guard.Instance != ""
	})
	renewed := h.view("node").Lease.RenewedAt
	h.await("node", "renewed at the new guard", func(v api.View) bool {
		return v.Lease != nil && v.Lease.RenewedAt != nil && (renewed == nil || v.Lease.RenewedAt.After(renewed.Add(2*time.Second)))
	})
	h.mustBe(v)
}

func TestL17_CaretakerKeepsLeases(t *testing.T) {
	for what, fault := range map[string]struct {
		code  string
		spoil func(h *host) (heal func())
	}{
		"configuration": {"configuration", func(h *host) func() {
			h.configure(templates + shortLease + "nonsense = \n")
			return func() { h.configure(templates + shortLease) }
		}},
		"database": {"database", func(h *host) func() {
			path := h.path("s", "cadre.db")
			if err := os.Rename(path, path+".kept"); err != nil {
				h.t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("this was a database once"), 0o600); err != nil {
				h.t.Fatal(err)
			}
			return func() {
				if err := os.Rename(path+".kept", path); err != nil {
					h.t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHost(t, templates+shortLease)
			h.run("running")
			v := h.donate("sleeper", "node")
			h.stop()
			heal := fault.spoil(h)
			o := h.run("caretaker")
			if !slices.ContainsFunc(o.Faults, func(f api.Fault) bool { return f.Code == fault.code && f.Message != "" }) {
				t.Errorf("faults: %+v", o.Faults)
			}
			<-time.After(fewLeases) // nothing happens meanwhile: time is what is tested
			if !running(v.PID) {
				t.Fatal("the node has died")
			}
			if _, err := h.client.Donations(t.Context(), false); donation.CodeOf(err) != donation.CodeUnavailable || !strings.Contains(err.Error(), "caretaker") {
				t.Errorf("a caretaker was asked for donations: %v", err)
			}
			heal()
			h.eventually("the daemon works again", func() bool {
				o, err := h.client.Overview(t.Context())
				return err == nil && o.Mode == "running"
			})
			h.mustBe(v)
		})
	}
}

func TestLeaseOfATemplateAndReload(t *testing.T) {
	text := templates + "\n[template.unleased]\ncommand = \"/bin/sleep\"\nargs = [\"1000000\"]\nlease.ttl = \"0\"\n" + shortLease
	h := newHost(t, text)
	h.run("running")
	leased, unleased := h.donate("sleeper", "leased"), h.donate("unleased", "unleased")
	if leased.Lease == nil || leased.Lease.TTLSeconds != 2 {
		t.Errorf("the lease shows as %+v", leased.Lease)
	}
	if unleased.Lease != nil {
		t.Errorf("a node without a lease shows %+v", unleased.Lease)
	}
	// A longer TTL is taken over by the nodes that run.
	h.configure(strings.Replace(text, `ttl = "2s"`, `ttl = "1h"`, 1))
	signalTo(t, h.cmd.Process.Pid, unix.SIGHUP)
	h.await("leased", "leased for longer", func(v api.View) bool {
		return v.Lease != nil && v.Lease.TTLSeconds == 3600 && time.Until(v.Lease.ExpiresAt) > 50*time.Minute
	})
	h.kill()
	<-time.After(fewLeases) // neither lease may run out
	for _, v := range []api.View{leased, unleased} {
		if !running(v.PID) {
			t.Errorf("%s has died", v.Name)
		}
	}
	h.run("running")
	h.mustBe(leased)
	h.mustBe(unleased)
}

func TestStraysAreNotRenewed(t *testing.T) {
	h := newHost(t, templates+shortLease)
	h.run("running")
	v := h.donate("sleeper", "node")
	h.stop()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(fmt.Sprint(h.path("s", "cadre.db"), suffix)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	h.run("running")
	h.eventually("what is on no record ends with its lease", func() bool { return !running(v.PID) })
}

func TestDrainStopsEveryNodeAndTheNextStartBringsThemBack(t *testing.T) {
	for name, begin := range map[string]func(h *host){
		"by command": func(h *host) {
			if o, err := h.client.Drain(h.t.Context()); err != nil || o.Version == "" {
				h.t.Fatalf("drain: %+v, %v", o, err)
			}
		},
		"by SIGTERM": func(h *host) { signalTo(h.t, h.cmd.Process.Pid, unix.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, templates)
			if name == "by SIGTERM" {
				h.args = []string{"--drain"}
			}
			h.run("running")
			stubborn, plain, gone := h.donate("stubborn", "stubborn"), h.donate("sleeper", "plain"), h.donate("sleeper", "gone")
			h.terminate("gone")
			begin(h)
			if err := <-h.exited; err != nil {
				t.Errorf("the daemon ended badly: %v\n%s", err, h.said)
			}
			h.cmd = nil
			if left := nodesIn(h.path("s-nodes")); len(left) != 0 {
				t.Errorf("after the drain there are %v", left)
			}
			h.args = nil
			h.run("running")
			for _, was := range []api.View{stubborn, plain} {
				v := h.await(was.Name, "back", func(v api.View) bool { return v.Ready })
				if v.Attempts != 0 || v.Generation != 2 || v.LastExit == nil || v.LastExit.Reason != donation.ReasonDrain {
					t.Errorf("%s: %d attempts, generation %d, last exit %+v", v.Name, v.Attempts, v.Generation, v.LastExit)
				}
			}
			if v := h.view(string(gone.ID)); v.Running {
				t.Error("a terminated donation came back")
			}
		})
	}
}

func TestDrainStartsNothing(t *testing.T) {
	h := newHost(t, templates+"\n[template.slow]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"trap '' TERM; echo > up; while :; do sleep 1000000; done\"]\nready.file = \"up\"\nstop.grace = \"1s\"\n")
	h.run("running")
	slow, victim := h.donate("slow", "slow"), h.donate("sleeper", "victim")
	if _, err := h.client.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.client.Donate(t.Context(), donation.Request{Template: "sleeper"}); donation.CodeOf(err) != donation.CodeUnavailable {
		t.Errorf("donate while draining: %v", err)
	}
	if o, err := h.client.Overview(t.Context()); err != nil || o.Mode != "draining" {
		t.Errorf("mode %q, %v; the slow node holds the drain up", o.Mode, err)
	}
	if err := <-h.exited; err != nil {
		t.Errorf("the daemon ended badly: %v", err)
	}
	h.cmd = nil
	if running(slow.PID) || running(victim.PID) || len(nodesIn(h.path("s-nodes"))) != 0 {
		t.Error("a node is left")
	}
}
