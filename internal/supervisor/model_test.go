// This file lets random histories happen to a few donations, and checks the promises of P01 and S20 against a
// model (history_test.go). The history is drawn first and then lived through in a bubble, in one piece.
//
// Two things are left out: seeds, which are not in the product yet, and a clock that is set back, which a
// bubble can't do; refill_test.go has that one.

package supervisor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/store"
)

// step is one thing that happens, to one donation if it is about one, and the time until the next.
type step struct {
	What  string
	Which int
	N     int
	Then  time.Duration
}

func (s step) String() string { return fmt.Sprintf("%s(%d,%d) %s", s.What, s.Which, s.N, s.Then) }

// happenings are what may happen; what is listed more often happens more often.
var happenings = map[string]func(r *rig, id donation.ID, n int){
	"die":     func(r *rig, id donation.ID, _ int) { r.guard.die(id) },
	"trigger": func(r *rig, id donation.ID, _ int) { r.sup.Add(id); r.sup.Sweep() },
	"script": func(r *rig, id donation.ID, n int) {
		v := []verdict{refused, diesAtOnce, unanswered, answerLost, late, busy, transient}
		r.guard.will(id, v[n%len(v)])
	},
	"donate": func(r *rig, _ donation.ID, n int) {
		r.ask(func(ctx context.Context) {
			_, _ = r.svc.Provision(ctx, donation.Request{Template: []string{"node", "cadre"}[n%2]})
		})
	},
	"terminate": func(r *rig, id donation.ID, n int) {
		r.ask(func(ctx context.Context) { _, _ = r.svc.Terminate(ctx, id, n%2 == 0) })
	},
	"restart": func(r *rig, id donation.ID, _ int) {
		r.ask(func(ctx context.Context) { _, _ = r.svc.Restart(ctx, id) })
	},
	"retry": func(r *rig, id donation.ID, _ int) {
		r.ask(func(ctx context.Context) { _, _ = r.svc.Retry(ctx, id) })
	},
	"store fails": func(r *rig, _ donation.ID, n int) {
		ops := []string{"Get", "List", "BeginRespawn", "SpawnStarted", "SpawnEnded", "Fail", "Refill", "Reclaimed"}
		r.life.failNext(ops[n%len(ops)], 1+n%3, errStore)
	},
	"guard away":    func(r *rig, _ donation.ID, _ int) { r.guard.disconnect() },
	"guard back":    func(r *rig, _ donation.ID, _ int) { r.guard.connect() },
	"guard adopts":  func(r *rig, _ donation.ID, _ int) { r.guard.replace(adopted) },
	"guard killed":  func(r *rig, _ donation.ID, _ int) { r.guard.replace(killed) },
	"reboot":        func(r *rig, _ donation.ID, _ int) { r.crash(); r.guard.replace(rebooted); r.start() },
	"crash":         func(r *rig, _ donation.ID, _ int) { r.crash(); r.start() },
	"crash soon":    func(r *rig, _ donation.ID, n int) { r.life.killAfter(1 + n) },
	"daemon leaves": func(r *rig, _ donation.ID, _ int) { r.restart() },
}

// ask makes an admin's call; the daemon's end ends it.
func (r *rig) ask(f func(context.Context)) {
	r.asked.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		f(ctx)
	})
}

var anyStep = rapid.Custom(func(t *rapid.T) step {
	return step{
		What: rapid.SampledFrom([]string{
			"die", "die", "die", "die", "die", "die", "trigger", "script", "script", "donate", "terminate", "restart", "retry",
			"store fails", "store fails", "guard away", "guard back", "guard adopts", "guard killed", "reboot",
			"crash", "crash soon", "crash soon", "crash soon", "daemon leaves",
		}).Draw(t, "what"),
		Which: rapid.IntRange(0, 2).Draw(t, "which"),
		N:     rapid.IntRange(0, 11).Draw(t, "n"),
		Then: rapid.SampledFrom([]time.Duration{
			0, time.Millisecond, 7 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second, 10 * time.Second, 20 * time.Second, 70 * time.Second,
		}).Draw(t, "then"),
	}
})

// modelLimits are narrow, so that give-ups and refills happen in short histories too.
var modelLimits = Limits{MaxAttempts: 2, BackoffBase: 5 * time.Second, BackoffCap: 15 * time.Second, RefillAfter: time.Minute}

func TestP01_RandomHistoriesKeepThePromises(t *testing.T) {
	t.Parallel()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
		if err := f.Value.Set(histories); err != nil {
			t.Fatal(err)
		}
	}
	fresh := freshDatabase(t)
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(anyStep, 1, longest).Draw(rt, "steps")
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, store.DatabaseFile), fresh, 0o600); err != nil {
			rt.Fatal(err)
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = live(newRig(t, dir), steps) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// freshDatabase returns the bytes of a new database; to copy them is faster than to migrate.
func freshDatabase(t *testing.T) []byte {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), dir, store.Options{PortFirst: 10000, PortLast: 19999})
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, store.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// live lives through a history. At each step nothing may be doubled; at its end all promises must hold.
func live(r *rig, steps []step) error {
	defer func() { r.close() }()
	r.opts.Limits, r.opts.ReapInterval, r.stale = modelLimits, 20*time.Second, 40*time.Second
	r.guard.startTime = 5 * time.Millisecond
	r.start()
	r.donate("node")
	r.donate("cadre")
	for _, s := range steps {
		ids, err := r.donations()
		if err != nil {
			return err
		}
		happenings[s.What](r, ids[s.Which%len(ids)], s.N)
		if s.Then > 0 {
			r.pass(s.Then)
		}
		if r.life.isDead() {
			r.crash()
			r.start()
		}
		if err := r.checkGuard(); err != nil {
			return fmt.Errorf("after %s: %w", s, err)
		}
	}
	if err := r.calmDown(); err != nil {
		return err
	}
	return errors.Join(r.checkHistories(), r.checkRest())
}

func (r *rig) donations() ([]donation.ID, error) {
	recs, err := r.db.List(context.Background(), donation.Filter{})
	var ids []donation.ID
	for _, rec := range recs {
		ids = append(ids, rec.ID)
	}
	return ids, err
}

// calmDown ends all faults, and waits until everything that was begun is done: a provision that its daemon left
// behind takes longest. The attempts are compared before refills can hide a fault, too.
func (r *rig) calmDown() error {
	r.life.at(nil)
	r.life.killAfter(0)
	r.guard.mu.Lock()
	r.guard.script = map[donation.ID][]verdict{}
	r.guard.mu.Unlock()
	r.guard.connect()
	r.pass(20 * time.Second)
	if r.life.isDead() {
		r.crash()
		r.start()
	}
	err := r.checkHistories()
	r.pass(100 * time.Second)
	return err
}

// checkRest checks what must hold when nothing is left to do.
func (r *rig) checkRest() error {
	recs, err := r.db.List(context.Background(), donation.Filter{})
	for _, rec := range recs {
		living, sp := r.guard.livingOf(rec.ID), rec.Spawn
		remembered := len(r.guard.Observe(rec.ID).Processes)
		fault := func(format string, args ...any) {
			err = errors.Join(err, fmt.Errorf("%s (%s, spawn %s %s, alive %v): %s", rec.ID, rec.Status, sp.ID, sp.State, living, fmt.Sprintf(format, args...)))
		}
		workdir := r.guard.workdirs[rec.ID]
		switch {
		case rec.Status.IsSupervised():
			if sp.State != donation.SpawnRunning || !slices.Equal(living, []donation.SpawnID{sp.ID}) || remembered != 1 {
				fault("it should be running, and nothing else")
			} else if seen := r.guard.Observe(rec.ID).Processes[0]; seen.Identity != sp.Identity || sp.ReadyAt.IsZero() {
				fault("the process is %v, on record is %v, ready %v", seen.Identity, sp.Identity, sp.ReadyAt)
			}
		case !rec.Status.IsEnding():
			fault("nobody works on it")
		case len(living) > 0 || remembered > 0 || !sp.State.Ended():
			fault("it should have ended, the guard remembers %d", remembered)
		case rec.GaveUp && (!rec.HasWorkdir || len(rec.Ports) != 1):
			fault("a give-up keeps workdir and ports")
		case !rec.GaveUp && (rec.HasWorkdir || workdir || len(rec.Ports) > 0):
			fault("workdir %t (on record %t) and ports %v are left", workdir, rec.HasWorkdir, rec.Ports)
		}
	}
	return err
}
