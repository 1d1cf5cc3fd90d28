// This file tests the promises of P01 with real processes: a daemon that is killed at random instants while nodes are
// lent, die and are ended, and hundreds of nodes at once.

package daemon_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/store"
)

func TestP01_DaemonKilledAtRandomInstants(t *testing.T) {
	const rounds = 12
	h := newHost(t, templates+`
[supervision]
backoff_base = "1ms"
backoff_cap = "5ms"
max_attempts = 1000
provisioning_timeout = "50ms"
reap_interval = "50ms"
`)
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for round := range rounds {
		h.run("running")
		ctx, cancel := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		busy.Go(func() { h.lend(ctx) })
		busy.Go(func() { h.endSome(ctx) })
		busy.Go(func() { h.killSome(ctx) })
		// The instant is the point of this test: it waits for nothing but the clock.
		<-time.After(time.Duration(random.Int64N(int64(120 * time.Millisecond))))
		h.kill()
		cancel()
		busy.Wait()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	h.run("running")
	h.checkPromises()
}

// lend donates until ctx ends or the daemon is gone.
func (h *host) lend(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := h.client.Donate(ctx, donation.Request{Template: "sleeper"}); err != nil {
			return
		}
	}
}

// endSome terminates every third donation it sees, and restarts others.
func (h *host) endSome(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := h.client.Donations(ctx, false)
		if err != nil {
			return
		}
		for i, v := range list {
			if i%3 == 0 && v.Running {
				_, _ = h.client.Terminate(ctx, string(v.ID), i%2 == 0)
			} else if i%3 == 1 {
				_, _ = h.client.Restart(ctx, string(v.ID))
			}
		}
	}
}

// killSome kills every second node it sees.
func (h *host) killSome(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := h.client.Donations(ctx, false)
		if err != nil {
			return
		}
		for i, v := range list {
			if i%2 == 0 && v.PID != 0 {
				_ = unix.Kill(v.PID, unix.SIGKILL)
			}
		}
	}
}

// checkPromises waits until everything has settled and compares what is recorded with what runs.
func (h *host) checkPromises() {
	h.t.Helper()
	var list []api.View
	h.eventually("every donation is settled", func() bool {
		var err error
		if list, err = h.client.Donations(h.t.Context(), true); err != nil {
			h.t.Fatal(err)
		}
		return !slices.ContainsFunc(list, func(v api.View) bool {
			if v.Status.IsSupervised() {
				return !v.Ready
			}
			return v.Status == donation.Provisioning || v.Running || v.Workdir != ""
		})
	})
	recorded := map[int]donation.ID{}
	for _, v := range list {
		if v.Running {
			recorded[v.PID] = v.ID
		}
	}
	for _, pid := range nodesIn(h.path("s-nodes")) {
		if _, ok := recorded[pid]; !ok {
			h.t.Errorf("process %d is on no record", pid)
		}
		delete(recorded, pid)
	}
	for pid, id := range recorded {
		h.t.Errorf("%s claims process %d, which isn't there", id, pid)
	}
	h.stop()
	h.checkAttempts()
}

// checkAttempts compares the attempts on record with the deaths that nobody asked for. The daemon must have ended.
func (h *host) checkAttempts() {
	h.t.Helper()
	s, err := store.Open(h.t.Context(), h.path("s"), store.Options{PortFirst: 10000, PortLast: 20000})
	if err != nil {
		h.t.Fatal(err)
	}
	defer s.Close()
	recs, err := s.List(h.t.Context(), donation.Filter{Statuses: donation.Supervised})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, rec := range recs {
		spawns, err := s.Spawns(h.t.Context(), rec.ID, 0)
		if err != nil {
			h.t.Fatal(err)
		}
		deaths := 0
		for _, sp := range spawns {
			if sp.Exit != nil && sp.Exit.Reason.Charged() {
				deaths++
			}
		}
		if deaths != rec.Attempts {
			h.t.Errorf("%s died %d times by accident and was charged %d attempts", rec.ID, deaths, rec.Attempts)
		}
	}
}

// nodesIn are the processes that stand in a workdir below dir.
func nodesIn(dir string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if cwd, _ := os.Readlink("/proc/" + e.Name() + "/cwd"); strings.HasPrefix(cwd, dir+"/") && running(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestS24_ThreeHundredNodesAtOnce(t *testing.T) {
	const nodes = 300
	h := newHost(t, templates)
	h.run("running")
	var all errgroup.Group
	for range nodes {
		all.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := h.client.Donate(ctx, donation.Request{Template: "sleeper"})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	before := h.allReady(nodes)
	if n := threads(t, h.guardPID()); n >= 20 {
		t.Errorf("the guard has %d threads for %d nodes, want fewer than 20", n, nodes)
	}
	for _, pid := range before {
		signalTo(t, pid, unix.SIGKILL)
	}
	var after map[donation.ID]int
	h.eventually("every node is back", func() bool {
		after = h.allReady(nodes)
		for id, pid := range before {
			if after[id] == pid {
				return false
			}
		}
		return true
	})
	list, err := h.client.Donations(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range list {
		if v.Attempts != 1 || v.Generation != 2 {
			t.Errorf("%s: %d attempts, generation %d; want 1 and 2", v.ID, v.Attempts, v.Generation)
		}
	}
	// And all of them at the start of a daemon.
	h.kill()
	for _, pid := range after {
		signalTo(t, pid, unix.SIGKILL)
	}
	h.run("running")
	h.eventually("the second attempts are planned", func() bool {
		list, err := h.client.Donations(t.Context(), false)
		return err == nil && !slices.ContainsFunc(list, func(v api.View) bool { return v.NextAttempt == nil && v.Attempts < 2 })
	})
	if pids := nodesIn(h.path("s-nodes")); len(pids) > nodes {
		t.Errorf("%d processes run for %d donations", len(pids), nodes)
	}
}

// allReady waits until n donations are ready and returns their pids.
func (h *host) allReady(n int) map[donation.ID]int {
	h.t.Helper()
	pids := map[donation.ID]int{}
	h.eventually(fmt.Sprintf("%d nodes are ready", n), func() bool {
		clear(pids)
		list, err := h.client.Donations(h.t.Context(), false)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, v := range list {
			if v.Ready {
				pids[v.ID] = v.PID
			}
		}
		return len(pids) == n
	})
	return pids
}

func threads(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}
