// This file tests what survives what, with real processes: deaths of the daemon, of the guard and of nodes, in every
// combination that a night may bring.

package daemon_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

// sleeper is a node that does nothing for ever; stubborn one that ignores the stop signal and has a child in a
// session of its own; failing one that ends at once.
const templates = `
[template.sleeper]
command = "/bin/sleep"
args = ["1000000"]

[template.stubborn]
command = "/bin/sh"
args = ["-c", "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > child; sleep 1000000 & wait; wait' & echo ready > ready; while :; do sleep 1000000; done"]
ready = { file = "ready", content = "ready" }
stop = { grace = "300ms" }

[template.failing]
command = "/bin/sh"
args = ["-c", "exit 3"]
`

func TestP02_DaemonRestartKeepsEveryPid(t *testing.T) {
	h := newHost(t, templates+"\n[supervision]\nbackoff_base = \"10ms\"\n")
	h.run("running")
	before := map[string]int{}
	for _, name := range []string{"a", "b", "victim"} {
		before[name] = h.donate("sleeper", name).PID
	}
	for round, end := range []func(){h.kill, h.stop} {
		end()
		died := time.Now()
		signalTo(t, before["victim"], unix.SIGKILL)
		h.eventually("the victim is dead", func() bool { return !running(before["victim"]) })
		back := time.Now()
		h.run("running")
		for _, name := range []string{"a", "b"} {
			if v := h.view(name); v.PID != before[name] || v.Attempts != 0 || !v.Ready {
				t.Errorf("%s after the daemon's end: %+v, want pid %d", name, v, before[name])
			}
		}
		v := h.await("victim", "back", func(v api.View) bool { return v.Ready && v.PID != before["victim"] })
		exit := v.LastExit
		if exit == nil || !exit.Known || exit.Signal != int(unix.SIGKILL) || exit.At.Before(died.Add(-time.Second)) || exit.At.After(back.Add(time.Second)) {
			t.Errorf("the death that no daemon saw is recorded as %+v; it was SIGKILL between %v and %v", exit, died, back)
		}
		if v.Attempts != round+1 {
			t.Errorf("attempts: %d, want %d", v.Attempts, round+1)
		}
		before["victim"] = v.PID
	}
}

func TestP02_UpgradeReplacesTheBinary(t *testing.T) {
	h := newHost(t, templates)
	h.exe = h.path("cadre-hostd")
	install := func() {
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.exe+".new", self, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(h.exe+".new", h.exe); err != nil {
			t.Fatal(err)
		}
	}
	install()
	h.run("running")
	v := h.donate("reference", "node")
	install() // the running processes' file is deleted now
	// A respawn needs the guard's own executable, and a new guard the daemon's.
	signalTo(t, v.PID, unix.SIGKILL)
	v = h.await("node", "back", func(now api.View) bool { return now.Ready && now.PID != v.PID })
	old := h.guardPID()
	signalTo(t, old, unix.SIGKILL)
	h.eventually("another guard", func() bool {
		o, err := h.client.Overview(t.Context())
		return err == nil && o.Guard.State == "connected" && o.Guard.PID != old && o.Guard.Processes == 1
	})
	h.stop()
	h.run("running")
	if now := h.view("node"); now.PID != v.PID || now.Attempts != 1 {
		t.Errorf("after the upgrade: pid %d with %d attempts, want pid %d with 1", now.PID, now.Attempts, v.PID)
	}
}

func TestP03_NodesOutliveTheGuard(t *testing.T) {
	h := newHost(t, templates)
	h.run("running")
	a, tree := h.donate("sleeper", "a"), h.donate("stubborn", "tree")
	child := h.childOf(tree)
	for round := range 2 {
		old := h.guardPID()
		if round == 0 {
			signalTo(t, old, unix.SIGKILL)
		} else {
			signalTo(t, old, unix.SIGUSR1) // hand-over
		}
		h.eventually("another guard has adopted both", func() bool {
			o, err := h.client.Overview(t.Context())
			return err == nil && o.Guard.State == "connected" && o.Guard.PID != old && o.Guard.Processes == 2
		})
		for _, want := range []api.View{a, tree} {
			if v := h.view(want.Name); v.PID != want.PID || v.Attempts != 0 || v.Generation != 1 || !v.Ready {
				t.Errorf("round %d: %s has pid %d, %d attempts, generation %d; want pid %d, none charged", round, v.Name, v.PID, v.Attempts, v.Generation, want.PID)
			}
		}
	}
	// A death after the adoption is seen and answered.
	signalTo(t, a.PID, unix.SIGKILL)
	v := h.await("a", "back", func(v api.View) bool { return v.Ready && v.PID != a.PID })
	if v.Attempts != 1 {
		t.Errorf("attempts: %d, want 1", v.Attempts)
	}
	// P04: the whole tree of an adopted node goes with it.
	h.terminate("tree")
	if running(tree.PID) || running(child) {
		t.Errorf("after terminate: node %v, its child in another session %v", running(tree.PID), running(child))
	}
}

// childOf returns the pid of a stubborn node's child.
func (h *host) childOf(v api.View) int {
	h.t.Helper()
	var pid int
	h.eventually("the node's child", func() bool {
		text := strings.TrimSpace(read(h.t, filepath.Join(v.Workdir, "child")))
		pid, _ = strconv.Atoi(text)
		return pid != 0
	})
	return pid
}

func TestP03_DaemonAndGuardKilledTogether(t *testing.T) {
	h := newHost(t, templates)
	h.run("running")
	a, b := h.donate("sleeper", "a"), h.donate("sleeper", "b")
	guardPID := h.guardPID()
	h.kill()
	signalTo(t, guardPID, unix.SIGKILL)
	h.eventually("the guard is gone", func() bool { return !running(guardPID) })
	// One dies while nobody looks at all.
	signalTo(t, b.PID, unix.SIGKILL)
	h.eventually("b is dead", func() bool { return !running(b.PID) })
	h.run("running")
	if v := h.view("a"); v.PID != a.PID || v.Attempts != 0 {
		t.Errorf("a: pid %d, %d attempts; want %d, 0", v.PID, v.Attempts, a.PID)
	}
	v := h.await("b", "back", func(v api.View) bool { return v.Ready && v.PID != b.PID })
	if v.LastExit == nil || v.LastExit.Known || v.Attempts != 1 {
		t.Errorf("b: last exit %+v, %d attempts; want an unknown exit, charged once", v.LastExit, v.Attempts)
	}
}

func TestP12_SilentGuardIsReportedNotReplaced(t *testing.T) {
	h := newHost(t, templates+"\n[guard]\ncall_timeout = \"300ms\"\n")
	h.run("running")
	a, b := h.donate("sleeper", "a"), h.donate("sleeper", "b")
	pid := h.guardPID()
	signalTo(t, pid, unix.SIGSTOP)
	var o api.Overview
	h.eventually("the guard counts as silent", func() bool {
		var err error
		o, err = h.client.Overview(t.Context())
		return err == nil && o.Guard.State == "silent"
	})
	if o.Guard.PID != pid || !slices.ContainsFunc(o.Faults, func(f api.Fault) bool { return strings.Contains(f.Message, fmt.Sprint(pid)) }) {
		t.Errorf("the silent guard has pid %d; status says %+v and %+v", pid, o.Guard, o.Faults)
	}
	// A daemon that starts now finds it silent too, starts no second one, and answers.
	h.kill()
	if o = h.run("running"); o.Guard.State != "silent" || o.Guard.PID != pid {
		t.Errorf("a new daemon says %+v of the guard", o.Guard)
	}
	signalTo(t, b.PID, unix.SIGKILL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := h.client.Terminate(ctx, "a", false); err == nil {
		t.Error("terminate succeeded while the guard was stopped")
	}
	if now := h.guardPID(); now != pid {
		t.Fatalf("the guard is %d now; it was %d", now, pid)
	}
	signalTo(t, pid, unix.SIGCONT)
	// What was asked for and what died meanwhile is settled, and nothing else has died.
	h.await("b", "back", func(v api.View) bool { return v.Ready && v.PID != b.PID })
	h.await(string(a.ID), "terminated", func(v api.View) bool { return v.Status == donation.Terminated && v.Workdir == "" })
	if running(a.PID) {
		t.Error("a still runs")
	}
}

func TestP13_ProvisionThatTheDaemonDidNotOutlive(t *testing.T) {
	h := newHost(t, templates)
	h.run("running")
	pid := h.guardPID()
	signalTo(t, pid, unix.SIGSTOP) // the start gets no answer
	asked := make(chan error, 1)
	go func() {
		_, err := h.client.Donate(t.Context(), donation.Request{Template: "sleeper", Name: "node"})
		asked <- err
	}()
	h.eventually("the record", func() bool {
		list, err := h.client.Donations(t.Context(), false)
		return err == nil && len(list) == 1
	})
	h.kill()
	if err := <-asked; err == nil {
		t.Fatal("donate succeeded without a guard")
	}
	signalTo(t, pid, unix.SIGCONT)
	h.run("running")
	v := h.await("node", "ready", func(v api.View) bool { return v.Ready })
	if v.Generation != 1 || v.Attempts != 0 || len(nodesIn(h.path("s-nodes"))) != 1 {
		t.Errorf("generation %d, %d attempts, processes %v; want the one spawn that was recorded", v.Generation, v.Attempts, nodesIn(h.path("s-nodes")))
	}
}

func TestS28_EndingThatTheDaemonDidNotOutlive(t *testing.T) {
	// Time enough to kill the daemon within the grace.
	h := newHost(t, strings.Replace(templates, `grace = "300ms"`, `grace = "3s"`, 1))
	h.run("running")
	v := h.donate("stubborn", "node")
	child := h.childOf(v)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := h.client.Terminate(ctx, "node", false)
		asked <- err
	}()
	// Its record says terminated while its process is still in its grace.
	h.await(string(v.ID), "ending", func(v api.View) bool { return v.Status == donation.Terminated })
	h.kill()
	cancel()
	if err := <-asked; err == nil {
		t.Fatal("the node was gone before the daemon was")
	}
	h.run("running")
	now := h.await(string(v.ID), "reclaimed", func(v api.View) bool { return v.Workdir == "" && !v.Running })
	if running(v.PID) || running(child) || now.Attempts != 0 {
		t.Errorf("after the restart: process %v, child %v, %d attempts", running(v.PID), running(child), now.Attempts)
	}
	if _, err := os.Stat(filepath.Dir(v.Workdir)); !os.IsNotExist(err) {
		t.Errorf("its directory is still there: %v", err)
	}
}

func TestS11_NodeThatExitsAtOnceIsGivenUp(t *testing.T) {
	h := newHost(t, templates+`
[supervision]
backoff_base = "20ms"
`)
	h.run("running")
	v, err := h.client.Donate(t.Context(), donation.Request{Template: "failing", Name: "node"})
	if err != nil {
		t.Fatal(err)
	}
	v = h.await(string(v.ID), "given up", func(v api.View) bool { return v.Status == donation.Failed })
	if v.Attempts != 5 || !strings.Contains(v.Message, "gave up after 5 attempts") || !strings.Contains(v.Message, "exit status 3") {
		t.Errorf("%d attempts, %q", v.Attempts, v.Message)
	}
	// S09: the first respawn at once, then each after the attempt before it: 40, 80, 160, 320 ms.
	starts := startsOf(v)
	if len(starts) != 6 {
		t.Fatalf("started %d times, want 6: the first and five attempts", len(starts))
	}
	for n, want := 1, 40*time.Millisecond; n <= 4; n, want = n+1, 2*want {
		if gap := starts[n+1].Sub(starts[n]); gap < want {
			t.Errorf("attempt %d came %v after the one before it, want at least %v", n+1, gap, want)
		}
	}
	// S27: retry revives it, and it is given up again after five more.
	if _, err := h.client.Retry(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	v = h.await(string(v.ID), "given up again", func(v api.View) bool { return v.Status == donation.Failed && len(v.Spawns) >= 11 })
	if v.Attempts != 5 {
		t.Errorf("attempts: %d", v.Attempts)
	}
	h.terminate("node")
}

// startsOf are the moments when the spawns were recorded, oldest first.
func startsOf(v api.View) []time.Time {
	var list []time.Time
	for _, sp := range slices.Backward(v.Spawns) {
		list = append(list, sp.Begun)
	}
	return list
}

func TestS26_RestartIsNoCrash(t *testing.T) {
	h := newHost(t, templates)
	h.run("running")
	before := h.donate("reference", "node")
	identity := read(t, filepath.Join(before.Workdir, "identity.key"))
	if _, err := h.client.Restart(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	v := h.await("node", "back", func(v api.View) bool { return v.Ready && v.PID != before.PID })
	if v.Attempts != 0 || !v.UpdatedAt.Equal(before.UpdatedAt) || !cmp.Equal(v.Ports, before.Ports) {
		t.Errorf("after restart: %d attempts, updated %v (was %v), ports %v (were %v)", v.Attempts, v.UpdatedAt, before.UpdatedAt, v.Ports, before.Ports)
	}
	if now := read(t, filepath.Join(v.Workdir, "identity.key")); now != identity {
		t.Errorf("the node has another identity now")
	}
}
