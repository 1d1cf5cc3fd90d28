// This file puts faults between the code under test and its store and guard: an error before or after any
// call, and the sudden end of the daemon at any of them.

package supervisor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

var (
	errDead  = errors.New("the daemon is dead")
	errStore = errors.New("disk I/O error")
)

// life is one daemon's. Every call that it makes passes through it twice: before it has its effect and after.
type life struct {
	mu sync.Mutex
	// dead daemons have no effect any more; countdown kills at the nth passage of an effect from now, if
	// it isn't 0. Both guarded by mu.
	dead      bool
	countdown int
	// hook, if set, is asked at each passage: "before Start", "after SpawnStarted". Guarded by mu; called without it.
	hook func(point string, id string) error
}

func (l *life) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// killAfter kills the daemon at the nth passage of an effect from now.
func (l *life) killAfter(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countdown = n
}

// at sets the hook; nil removes it.
func (l *life) at(hook func(point, id string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hook = hook
}

// failNext makes the next n calls of the operation fail before they have an effect.
func (l *life) failNext(op string, n int, err error) {
	var mu sync.Mutex
	l.at(func(point, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if point != "before "+op || n == 0 {
			return nil
		}
		n--
		return err
	})
}

// once runs f the first time that the point is passed.
func (l *life) once(point string, f func()) {
	var first sync.Once
	l.at(func(p, _ string) error {
		if p == point {
			first.Do(f)
		}
		return nil
	})
}

func (l *life) pass(point, id string, effect bool) error {
	l.mu.Lock()
	if effect && l.countdown > 0 {
		l.countdown--
		l.dead = l.dead || l.countdown == 0
	}
	hook := l.hook
	l.mu.Unlock()
	if l.isDead() {
		return errDead
	}
	if hook != nil {
		if err := hook(point, id); err != nil {
			return err
		}
	}
	if l.isDead() { // of the hook
		return errDead
	}
	return nil
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// effect runs one call that changes something.
func (l *life) effect(op, id string, f func() error) error {
	if err := l.pass("before "+op, id, true); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return l.pass("after "+op, id, true)
}

// look runs one call that returns something.
func look[T any](l *life, op, id string, effect bool, f func() (T, error)) (T, error) {
	var none T
	if err := l.pass("before "+op, id, effect); err != nil {
		return none, err
	}
	v, err := f()
	if err != nil {
		return v, err
	}
	if err := l.pass("after "+op, id, effect); err != nil {
		return none, err
	}
	return v, nil
}

// faultyStore is the real store, with faults.
type faultyStore struct {
	donation.Store
	life *life
}

func (s *faultyStore) Get(ctx context.Context, id donation.ID) (donation.Record, error) {
	return look(s.life, "Get", string(id), false, func() (donation.Record, error) { return s.Store.Get(ctx, id) })
}

func (s *faultyStore) List(ctx context.Context, f donation.Filter) ([]donation.Record, error) {
	if err := s.life.pass("before List", "", false); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, f)
}

func (s *faultyStore) Create(ctx context.Context, d donation.NewDonation) (donation.Record, error) {
	return look(s.life, "Create", string(d.ID), true, func() (donation.Record, error) { return s.Store.Create(ctx, d) })
}

func (s *faultyStore) BeginRespawn(ctx context.Context, r donation.Respawn) (donation.Record, error) {
	return look(s.life, "BeginRespawn", string(r.ID), true, func() (donation.Record, error) { return s.Store.BeginRespawn(ctx, r) })
}

func (s *faultyStore) SpawnStarted(ctx context.Context, spawn donation.SpawnID, i donation.Identity, at time.Time, to donation.Status) error {
	return s.life.effect("SpawnStarted", string(spawn), func() error { return s.Store.SpawnStarted(ctx, spawn, i, at, to) })
}

func (s *faultyStore) SpawnReady(ctx context.Context, spawn donation.SpawnID, at time.Time) error {
	return s.life.effect("SpawnReady", string(spawn), func() error { return s.Store.SpawnReady(ctx, spawn, at) })
}

func (s *faultyStore) SpawnEnded(ctx context.Context, spawn donation.SpawnID, state donation.SpawnState, e donation.Exit) error {
	return s.life.effect("SpawnEnded", string(spawn), func() error { return s.Store.SpawnEnded(ctx, spawn, state, e) })
}

func (s *faultyStore) IntendStop(ctx context.Context, spawn donation.SpawnID, reason donation.Reason) error {
	return s.life.effect("IntendStop", string(spawn), func() error { return s.Store.IntendStop(ctx, spawn, reason) })
}

func (s *faultyStore) Fail(ctx context.Context, id donation.ID, from []donation.Status, gen int64, msg string, gaveUp bool) error {
	return s.life.effect("Fail", string(id), func() error { return s.Store.Fail(ctx, id, from, gen, msg, gaveUp) })
}

func (s *faultyStore) Terminate(ctx context.Context, id donation.ID) (donation.Record, error) {
	return look(s.life, "Terminate", string(id), true, func() (donation.Record, error) { return s.Store.Terminate(ctx, id) })
}

func (s *faultyStore) Refill(ctx context.Context, id donation.ID, gen int64) error {
	return s.life.effect("Refill", string(id), func() error { return s.Store.Refill(ctx, id, gen) })
}

func (s *faultyStore) Retry(ctx context.Context, id donation.ID) (donation.Record, error) {
	return look(s.life, "Retry", string(id), true, func() (donation.Record, error) { return s.Store.Retry(ctx, id) })
}

func (s *faultyStore) Reclaimed(ctx context.Context, id donation.ID) error {
	return s.life.effect("Reclaimed", string(id), func() error { return s.Store.Reclaimed(ctx, id) })
}

// faultyGuard is the scripted guard as one daemon reaches it.
type faultyGuard struct {
	*guard
	life *life
}

func (g *faultyGuard) Start(ctx context.Context, l donation.Launch) (donation.Process, error) {
	return look(g.life, "Start", string(l.Donation), true, func() (donation.Process, error) { return g.guard.Start(ctx, l) })
}

func (g *faultyGuard) Stop(ctx context.Context, spawn donation.SpawnID, reason donation.Reason, force bool) error {
	return g.life.effect("Stop", string(spawn), func() error { return g.guard.Stop(ctx, spawn, reason, force) })
}

func (g *faultyGuard) Ack(ctx context.Context, spawns ...donation.SpawnID) error {
	return g.life.effect("Ack", "", func() error { return g.guard.Ack(ctx, spawns...) })
}

func (g *faultyGuard) Reclaim(ctx context.Context, id donation.ID) error {
	return g.life.effect("Reclaim", string(id), func() error { return g.guard.Reclaim(ctx, id) })
}
