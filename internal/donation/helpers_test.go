// This file holds what the tests of the service share: a service on a real database and the guard in memory, and
// a supervisor of a few lines, which does what the real one's policy decides.

package donation_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/store"
	"github.com/serfab/cadre-hostd/internal/supervisor"
)

const (
	settleInterval      = time.Second
	provisioningTimeout = 5 * time.Minute
	unseededTimeout     = 30 * time.Minute
)

// limits are so that a death is respawned at once and nothing is given up.
var limits = supervisor.Limits{MaxAttempts: 1000}

// rig is a service with its surroundings. Everything of it lives in one synctest bubble: time is made up and
// passes only while everybody waits.
type rig struct {
	*testing.T
	store *faultyStore
	guard *fakeGuard
	nodes *fakeNodes
	svc   *donation.Service

	mu sync.Mutex // guards what follows
	// supervised makes every dirty donation settle by itself.
	supervised bool
	dirty      []donation.ID
	settling   sync.WaitGroup

	// one lets one settle at a time look and act, as the real supervisor's queue does for each donation.
	one sync.Mutex
}

// inBubble runs a test with a rig.
func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), t.TempDir(), store.Options{PortFirst: 10000, PortLast: 10003})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{T: t, store: &faultyStore{Store: s}, guard: newFakeGuard(), nodes: &fakeNodes{}}
		r.guard.exited = r.touch
		r.svc = r.service()
		t.Cleanup(func() {
			r.svc.Close()
			r.settling.Wait()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, r)
	})
}

// service returns a service over the rig's store and guard; a second one is a daemon that was restarted.
func (r *rig) service() *donation.Service {
	return donation.NewService(r.store, r.guard, donation.Options{
		Dirty: r.touch, Nodes: r.nodes, SettleInterval: settleInterval, ProvisioningTimeout: provisioningTimeout,
		UnseededTimeout: unseededTimeout,
	})
}

// touch is told of dirty donations.
func (r *rig) touch(id donation.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty = append(r.dirty, id)
	if r.supervised {
		r.settling.Go(func() { r.settle(id) })
	}
}

// supervise lets every donation that gets dirty from now on settle by itself.
func (r *rig) supervise() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.supervised = true
}

func (r *rig) wasDirty(id donation.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.dirty, id)
}

// settle does what the policy decides until there is nothing left to do.
func (r *rig) settle(id donation.ID) {
	r.one.Lock()
	defer r.one.Unlock()
	ctx := context.Background() // goes on during the cleanup
	for range 20 {
		f := supervisor.Facts{InFlight: r.svc.InFlight(id), Now: time.Now()}
		var err error
		if f.Record, err = r.store.Get(ctx, id); err != nil {
			if donation.CodeOf(err) != donation.CodeNotFound { // a provision that was refused
				r.Errorf("settle %s: %v", id, err)
			}
			return
		}
		f.Seen = r.guard.Observe(id)
		act := supervisor.Decide(f, limits)
		switch act.Kind {
		case supervisor.Settle:
			err = r.svc.Settle(ctx, id, act.Spawn, act.State, *act.Exit)
		case supervisor.Stop:
			err = r.svc.Stop(ctx, act.Spawn, act.Reason)
		case supervisor.Reclaim:
			err = r.svc.Reclaim(ctx, f.Record, act.State, act.Exit)
		case supervisor.Attempt:
			err = r.svc.Respawn(ctx, f.Record, act.Exit, act.Charge)
		case supervisor.Confirm:
			err = r.svc.Confirm(ctx, id, f.Seen.Processes[0])
		case supervisor.Resend:
			err = r.svc.Resend(ctx, f.Record)
		default:
			return
		}
		if err != nil && !errors.Is(err, donation.ErrConflict) {
			return // the real one would try again later
		}
	}
	r.Errorf("%s does not come to rest", id)
}

// provision donates a node of the template and fails the test if that fails.
func (r *rig) provision(template string) donation.Record {
	r.Helper()
	rec, err := r.svc.Provision(r.Context(), donation.Request{Template: template})
	if err != nil {
		r.Fatal(err)
	}
	synctest.Wait() // the provision has left
	return rec
}

// result is what an asynchronous call returned.
type result struct {
	rec donation.Record
	err error
}

// async runs call in a goroutine of its own.
func async(call func() (donation.Record, error)) <-chan result {
	done := make(chan result, 1)
	go func() {
		rec, err := call()
		done <- result{rec, err}
	}()
	return done
}

// pending fails the test if the call has returned by the time that everybody waits.
func (r *rig) pending(what string, done <-chan result) {
	r.Helper()
	synctest.Wait()
	select {
	case got := <-done:
		r.Fatalf("%s returned too early: %s, %v", what, got.rec.Status, got.err)
	default:
	}
}

// startHeld begins a provision whose start the guard holds back until release is called; then it does as then
// says (nil: starts the node).
func (r *rig) startHeld(ctx context.Context, then answer) (id donation.ID, release func(), done <-chan result) {
	r.Helper()
	arrived, gate := make(chan donation.ID, 1), make(chan struct{})
	r.guard.next(held(arrived, gate, then))
	done = async(func() (donation.Record, error) {
		return r.svc.Provision(ctx, donation.Request{Template: "plain"})
	})
	return <-arrived, func() { close(gate) }, done
}

func (r *rig) get(id donation.ID) donation.Record {
	r.Helper()
	rec, err := r.store.Get(r.Context(), id)
	if err != nil {
		r.Fatal(err)
	}
	return rec
}

// wantStatus returns the record, which must have the status.
func (r *rig) wantStatus(id donation.ID, want donation.Status) donation.Record {
	r.Helper()
	rec := r.get(id)
	if rec.Status != want {
		r.Errorf("%s is %s (%s), want %s", id, rec.Status, rec.Message, want)
	}
	return rec
}

// wantNothingLeft checks that an ended donation has no process, exit, workdir or port.
func (r *rig) wantNothingLeft(id donation.ID) {
	r.Helper()
	synctest.Wait() // what is acknowledged comes last, after the record says that all is gone
	if left := r.guard.left(id); left != "" {
		r.Errorf("%s has left: %s", id, left)
	}
	rec := r.get(id)
	if rec.HasWorkdir || len(rec.Ports) > 0 || !rec.Spawn.State.Ended() {
		r.Errorf("on record there is left: workdir %v, ports %v, a spawn that is %s", rec.HasWorkdir, rec.Ports, rec.Spawn.State)
	}
}

// wantCode checks the code of an error and that it says each of words.
func wantCode(t testing.TB, err error, code donation.Code, words ...string) {
	t.Helper()
	if err == nil || donation.CodeOf(err) != code {
		t.Errorf("error = %v with code %q, want code %q", err, donation.CodeOf(err), code)
		return
	}
	wantWords(t, err.Error(), words...)
}

func wantSame(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// faultyStore is the real store, of which single operations fail as the test tells.
type faultyStore struct {
	*store.Store

	mu sync.Mutex // guards faults
	// faults maps an operation to what goes wrong at its next call, before it.
	faults map[string]func() error
}

// fail makes the next call of op return what fault returns; nil lets it go on.
func (f *faultyStore) fail(op string, fault func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults == nil {
		f.faults = map[string]func() error{}
	}
	f.faults[op] = fault
}

func (f *faultyStore) fault(op string) error {
	f.mu.Lock()
	fault := f.faults[op]
	delete(f.faults, op)
	f.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault()
}

func (f *faultyStore) SpawnStarted(ctx context.Context, spawn donation.SpawnID, ident donation.Identity, at time.Time, to donation.Status) error {
	if err := f.fault("SpawnStarted"); err != nil {
		return err
	}
	return f.Store.SpawnStarted(ctx, spawn, ident, at, to)
}

func (f *faultyStore) Expire(ctx context.Context, id donation.ID, before time.Time, message string) error {
	if err := f.fault("Expire"); err != nil {
		return err
	}
	return f.Store.Expire(ctx, id, before, message)
}

func (f *faultyStore) Fail(ctx context.Context, id donation.ID, from []donation.Status, generation int64, message string, gaveUp bool) error {
	if err := f.fault("Fail"); err != nil {
		return err
	}
	return f.Store.Fail(ctx, id, from, generation, message, gaveUp)
}

func (f *faultyStore) IntendStop(ctx context.Context, spawn donation.SpawnID, reason donation.Reason) error {
	if err := f.fault("IntendStop"); err != nil {
		return err
	}
	return f.Store.IntendStop(ctx, spawn, reason)
}
