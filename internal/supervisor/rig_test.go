// This file holds the rig of the tests: the real service and the real SQLite store around a supervisor, the
// scripted guard beneath them, all in one synctest bubble, where an hour passes in a millisecond. (SQLite and
// database/sql work inside a bubble as long as they are opened and closed there: their waits are either
// system calls, for which time stands still, or channels of the bubble.)

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jmoiron/sqlx"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/store"
)

// The numbers of docs/conformance.md.
var defaults = Limits{MaxAttempts: 5, BackoffBase: 5 * time.Second, BackoffCap: 5 * time.Minute, RefillAfter: 10 * time.Minute}

const (
	sweepInterval = time.Minute
	settle        = time.Second
	// prompt is how late a timer may be (S09).
	prompt = 50 * time.Millisecond
)

// rig is one machine: its state directory and its guard outlive any number of daemons.
type rig struct {
	t     *testing.T
	dir   string
	guard *guard
	opts  Options
	// stale is the provisioning time-out.
	stale time.Duration
	logs  *observer.ObservedLogs

	// The daemon of now; nil and closed between two.
	life *life
	db   *store.Store
	svc  *donation.Service
	sup  *Supervisor
	stop context.CancelFunc
	done chan struct{}
	// asked are the admin's calls under way.
	asked sync.WaitGroup
}

// bubble runs a test with a machine on which a daemon runs.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	machine(t, func(t *testing.T, r *rig) {
		r.start()
		test(t, r)
	})
}

// machine runs a test with a machine on which no daemon runs yet.
func machine(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dir)
		defer r.close()
		test(t, r)
	})
}

func newRig(t *testing.T, dir string) *rig {
	r := &rig{t: t, dir: dir, guard: newGuard(), stale: 5 * time.Minute}
	core, logs := observer.New(zapcore.InfoLevel)
	r.logs = logs
	r.opts = Options{
		Limits: defaults, SweepInterval: sweepInterval, SettleInterval: settle, ReapInterval: 5 * time.Minute, Concurrency: 16,
		Alive: r.guard.alive, Log: zap.New(core),
	}
	return r
}

// open opens the store alone.
func (r *rig) open() {
	r.t.Helper()
	db, err := store.Open(context.Background(), r.dir, store.Options{PortFirst: 10000, PortLast: 19999})
	if err != nil {
		r.t.Fatal(err)
	}
	r.db, r.life = db, &life{}
}

// start starts a daemon, unless the store is open already: then only the rest of it.
func (r *rig) start() {
	r.t.Helper()
	if r.db == nil {
		r.open()
	}
	s, o := &faultyStore{Store: r.db, life: r.life}, &faultyGuard{guard: r.guard, life: r.life}
	r.sup = New(s, o, r.opts)
	r.svc = donation.NewService(s, o, donation.Options{Dirty: r.sup.Add, SettleInterval: settle, ProvisioningTimeout: r.stale})
	r.guard.tell(r.sup.Add, r.sup.Sweep)
	ctx, cancel := context.WithCancel(context.Background())
	_ = r.svc.Resume(ctx, time.Now()) // only a store that fails on purpose returns an error
	r.stop, r.done = cancel, make(chan struct{})
	go func(sup *Supervisor, svc *donation.Service, done chan struct{}) {
		defer close(done)
		sup.Run(ctx, svc)
	}(r.sup, r.svc, r.done)
	synctest.Wait()
}

// close stops the daemon in order, as its engine does; nodes stay.
func (r *rig) close() {
	r.guard.tell(nil, nil)
	if r.sup != nil {
		r.svc.Close()
		r.asked.Wait()
		r.stop()
		<-r.done
	}
	if r.db != nil {
		if err := r.db.Close(); err != nil {
			r.t.Error(err)
		}
	}
	r.sup, r.svc, r.db = nil, nil, nil
}

// crash ends the daemon as SIGKILL would: whatever it is at has no further effect.
func (r *rig) crash() {
	r.life.kill()
	r.close()
}

// restart ends this daemon and starts the next.
func (r *rig) restart() {
	r.t.Helper()
	r.close()
	r.start()
}

// pass lets time pass and everything that comes of it happen.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// donate provisions a node; the template "cadre" needs a seed, "node" doesn't.
func (r *rig) donate(template string) donation.Record {
	r.t.Helper()
	rec, err := r.svc.Provision(r.t.Context(), donation.Request{Template: template})
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return r.get(rec.ID)
}

func (r *rig) get(id donation.ID) donation.Record {
	r.t.Helper()
	rec, err := r.db.Get(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// die kills the donation's node and lets the supervisor see it.
func (r *rig) die(id donation.ID) {
	r.t.Helper()
	if !r.guard.die(id) {
		r.t.Fatalf("%s has no running node that could die", id)
	}
	synctest.Wait()
}

// exhaust lets the node die until its attempts are used up and the last one's process runs.
func (r *rig) exhaust(id donation.ID) donation.Record {
	r.t.Helper()
	for n := range r.opts.Limits.MaxAttempts {
		r.die(id)
		if n > 0 {
			r.pass(Backoff(n, r.opts.Limits))
		}
	}
	rec := r.get(id)
	if rec.Attempts != r.opts.Limits.MaxAttempts || rec.Spawn.State != donation.SpawnRunning {
		r.t.Fatalf("attempts %d, spawn %s; want all attempts used and a running node", rec.Attempts, rec.Spawn.State)
	}
	return rec
}

// giveUp has the donation given up.
func (r *rig) giveUp(id donation.ID) donation.Record {
	r.t.Helper()
	r.exhaust(id)
	r.die(id)
	rec := r.get(id)
	if rec.Status != donation.Failed || !rec.GaveUp {
		r.t.Fatalf("status %s, want an error from a give-up", rec.Status)
	}
	return rec
}

// spawns returns all spawns of the donation, oldest first.
func (r *rig) spawns(id donation.ID) []donation.Spawn {
	r.t.Helper()
	all, err := r.db.Spawns(r.t.Context(), id, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Reverse(all)
	return all
}

// events returns the kinds of the donation's events, oldest first.
func (r *rig) events(id donation.ID) []string {
	r.t.Helper()
	events, err := r.db.Events(r.t.Context(), id, 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// damage does to the file what no daemon would.
func (r *rig) damage(query string, args ...any) {
	r.t.Helper()
	db, err := sqlx.Open("sqlite", "file:"+r.db.Path()+"?_pragma=busy_timeout(5000)&_pragma=ignore_check_constraints(ON)")
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = db.Exec(query, args...)
	if err = errors.Join(err, db.Close()); err != nil {
		r.t.Fatal(err)
	}
}

// wantRuns fails unless exactly one process of the donation lives, and it is the one on record.
func (r *rig) wantRuns(id donation.ID) donation.Record {
	r.t.Helper()
	rec := r.get(id)
	living := r.guard.livingOf(id)
	if rec.Spawn.State != donation.SpawnRunning || !slices.Equal(living, []donation.SpawnID{rec.Spawn.ID}) {
		r.t.Fatalf("spawn %s is %s on record, and alive are %v; want it running", rec.Spawn.ID, rec.Spawn.State, living)
	}
	return rec
}

// wantDown fails if a process of the donation lives.
func (r *rig) wantDown(id donation.ID) donation.Record {
	r.t.Helper()
	if living := r.guard.livingOf(id); len(living) > 0 {
		r.t.Fatalf("alive are %v, want none", living)
	}
	return r.get(id)
}

// want fails unless got is want.
func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// gaps returns what lies between the times.
func gaps(at []time.Time) string {
	var g []time.Duration
	for i := 1; i < len(at); i++ {
		g = append(g, at[i].Sub(at[i-1]).Round(prompt))
	}
	return fmt.Sprint(g)
}
