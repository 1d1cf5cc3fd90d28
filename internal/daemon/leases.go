// This file keeps the leases of all nodes: which there are follows from what the guard holds, each is renewed by a
// lease.Renewal of its own, and what became of it is put on record many at once.

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/lease"
)

const (
	// leaseSave is how often what has changed is put on record, in one transaction: a crash loses the moments of
	// the renewals since, and nothing else.
	leaseSave = 5 * time.Second
	// wakeCheck is how often the clocks are compared; wakeJump is by how much the wall clock may run ahead of the
	// monotonic one in between before the machine counts as having slept.
	wakeCheck = time.Second
	wakeJump  = 2 * time.Second
)

// leases renews for every process that the guard holds, save those that no record knows. Without an engine, in a
// caretaker, it renews for all.
type leases struct {
	l   *link
	log *zap.Logger
	// wake (capacity 1) says that something is dirty.
	wake chan struct{}

	mu     sync.Mutex // guards what follows
	engine *engine
	held   map[donation.ID]*held
	dirty  map[donation.ID]struct{}
	// notes are events to be recorded.
	notes []donation.Event
}

// held is the lease of one process.
type held struct {
	donation.Lease
	renewal *lease.Renewal
	// unsaved is true if the record doesn't know the latest.
	unsaved bool
}

func newLeases(l *link) *leases {
	return &leases{
		l: l, log: l.d.log, wake: make(chan struct{}, 1),
		held: map[donation.ID]*held{}, dirty: map[donation.ID]struct{}{},
	}
}

// add asks for a look at what the guard holds of these donations; it returns at once.
func (k *leases) add(ids ...donation.ID) {
	k.mu.Lock()
	for _, id := range ids {
		k.dirty[id] = struct{}{}
	}
	k.mu.Unlock()
	post(k.wake)
}

// addAll asks for a look at everything that the guard holds or held.
func (k *leases) addAll() {
	var ids []donation.ID
	for _, p := range k.l.orch.Processes() {
		ids = append(ids, p.Donation)
	}
	k.mu.Lock()
	for id := range k.held {
		ids = append(ids, id)
	}
	k.mu.Unlock()
	k.add(ids...)
}

// tell names the engine whose records say from now on whose leases are renewed.
func (k *leases) tell(e *engine) {
	k.mu.Lock()
	k.engine = e
	k.mu.Unlock()
	k.addAll()
}

// run looks, saves and watches the clocks until ctx ends; then nothing is renewed any more and what there is is
// left to run on, or out.
func (k *leases) run(ctx context.Context) {
	save, clocks := time.NewTicker(leaseSave), time.NewTicker(wakeCheck)
	defer save.Stop()
	defer clocks.Stop()
	for last := time.Now(); ; {
		select {
		case <-k.wake:
			for _, id := range k.takeDirty() {
				k.look(ctx, id)
			}
			k.record(ctx)
		case <-save.C:
			k.save(ctx)
		case <-clocks.C:
			now := time.Now()
			if slept(last, now) {
				k.log.Info("the machine was suspended, or its clock was set; leases are renewed now")
				k.hurry()
			}
			last = now
		case <-ctx.Done():
			k.stopAll()
			return
		}
	}
}

// slept reports whether the wall clock ran ahead of the monotonic one, which stands still during a suspend.
func slept(last, now time.Time) bool {
	return now.Round(0).Sub(last.Round(0))-now.Sub(last) > wakeJump
}

func (k *leases) takeDirty() []donation.ID {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := make([]donation.ID, 0, len(k.dirty))
	for id := range k.dirty {
		ids = append(ids, id)
	}
	clear(k.dirty)
	return ids
}

// look makes the lease of a donation what it should be. While the guard is away nothing is known, and renewals
// go on: they fail until it is back.
func (k *leases) look(ctx context.Context, id donation.ID) {
	seen := k.l.orch.Observe(id)
	if !seen.Connected {
		return
	}
	i := slices.IndexFunc(seen.Processes, func(p donation.Process) bool { return p.State == donation.ProcessRunning })
	if i < 0 {
		k.drop(id)
		return
	}
	p := seen.Processes[i]
	ttl, ok := k.ttlOf(ctx, p)
	if !ok {
		k.drop(id)
		return
	}
	k.hold(p, ttl)
}

// ttlOf returns the TTL that a process's lease is to be renewed with; false if it has none, or isn't ours to renew.
func (k *leases) ttlOf(ctx context.Context, p donation.Process) (ttl time.Duration, ok bool) {
	k.mu.Lock()
	e := k.engine
	k.mu.Unlock()
	ttl = p.TTL
	if e != nil {
		rec, err := e.store.Get(ctx, p.Donation)
		switch {
		case donation.CodeOf(err) == donation.CodeNotFound:
			return 0, false // a stray: nobody promised it anything
		case err == nil:
			if now := k.l.d.settings.current().TTLOf(rec.Request.Template); now > 0 {
				ttl = now
			}
		}
		// A record that can't be read now is no reason to let its node die.
	}
	if hello, ok := k.l.orch.Hello(); ok && hello.MaxTTL > 0 {
		ttl = min(ttl, hello.MaxTTL)
	}
	return ttl, ttl > 0
}

// hold begins to renew, unless it does so already.
func (k *leases) hold(p donation.Process, ttl time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[p.Donation]
	if h != nil && h.Spawn == p.Spawn && h.TTL == ttl && h.renewal.Alive() {
		return
	}
	if h != nil {
		h.renewal.Stop()
	}
	expires := p.LeaseEnds
	if p.TTL != ttl {
		expires = time.Now() // the guard counts by another TTL: tell it soon
	}
	h = &held{Lease: donation.Lease{Donation: p.Donation, Spawn: p.Spawn, TTL: ttl, ExpiresAt: expires}, unsaved: true}
	renewal, err := lease.New(ttl, k.renew(p.Spawn, ttl), lease.Options{
		OnRenewed: func(expiresAt time.Time) { k.renewed(h, expiresAt) },
		OnFailed:  func(err error, failures int) { k.failed(h, err, failures) },
		OnGone:    func() { k.gone(h) },
	})
	if err != nil {
		// The configuration allows no such TTL, and neither does the guard.
		k.log.Error("lease can't be kept", zap.String("donation", string(p.Donation)), zap.Error(err))
		delete(k.held, p.Donation)
		return
	}
	h.renewal = renewal
	k.held[p.Donation] = h
	renewal.Start(expires)
}

// renew asks the guard, in the lease's terms.
func (k *leases) renew(spawn donation.SpawnID, ttl time.Duration) lease.Renew {
	return func(ctx context.Context, _ time.Time) error {
		err := k.l.orch.Renew(ctx, spawn, ttl)
		if errors.Is(err, donation.ErrGone) {
			return fmt.Errorf("%w: %w", lease.ErrGone, err)
		}
		return err
	}
}

func (k *leases) drop(id donation.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h := k.held[id]; h != nil {
		h.renewal.Stop()
		delete(k.held, id)
	}
}

func (k *leases) renewed(h *held, expiresAt time.Time) {
	k.mu.Lock()
	if h.Failures > 0 {
		k.note(h, donation.EventLeaseRegained, fmt.Sprintf("after %d failures", h.Failures))
	}
	h.ExpiresAt, h.RenewedAt, h.Failures, h.LastError, h.unsaved = expiresAt, time.Now(), 0, "", true
	k.mu.Unlock()
}

func (k *leases) failed(h *held, err error, failures int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if failures == 1 {
		left := time.Until(h.ExpiresAt).Round(time.Second)
		k.note(h, donation.EventLeaseFailing, fmt.Sprintf("%s left: %v", left, err))
		k.log.Warn("lease not renewed", zap.String("donation", string(h.Donation)), zap.Duration("left", left), zap.Error(err))
	}
	h.Failures, h.LastError, h.unsaved = failures, err.Error(), true
}

// gone makes the donation dirty: the supervisor finds out what has become of the process.
func (k *leases) gone(h *held) {
	k.mu.Lock()
	k.note(h, donation.EventLeaseGone, "the guard doesn't know the process any more")
	k.mu.Unlock()
	if sup := k.l.told.Load(); sup != nil {
		sup.Add(h.Donation)
	}
	k.add(h.Donation)
}

// note plans an event; mu is held.
func (k *leases) note(h *held, kind, detail string) {
	k.notes = append(k.notes, donation.Event{At: time.Now(), Donation: h.Donation, Spawn: h.Spawn, Kind: kind, Detail: detail})
	post(k.wake)
}

// record writes the events that are due. Those that can't be written are dropped: the log has said the same.
func (k *leases) record(ctx context.Context) {
	k.mu.Lock()
	e, notes := k.engine, k.notes
	k.notes = nil
	k.mu.Unlock()
	if e == nil {
		return
	}
	for _, n := range notes {
		e.record(ctx, n)
	}
}

// save puts what has changed on record.
func (k *leases) save(ctx context.Context) {
	k.mu.Lock()
	e := k.engine
	var unsaved []donation.Lease
	if e != nil {
		for _, h := range k.held {
			if h.unsaved {
				unsaved = append(unsaved, h.Lease)
				h.unsaved = false
			}
		}
	}
	k.mu.Unlock()
	if len(unsaved) == 0 {
		return
	}
	if err := e.store.SaveLeases(ctx, unsaved); err != nil {
		k.log.Warn("leases not put on record", zap.Int("leases", len(unsaved)), zap.Error(err))
	}
}

func (k *leases) hurry() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.held {
		h.renewal.Hurry()
	}
}

func (k *leases) stopAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.held {
		h.renewal.Stop()
	}
	clear(k.held)
}

// of returns what is known of a donation's lease now.
func (k *leases) of(id donation.ID) (donation.Lease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h := k.held[id]; h != nil {
		return h.Lease, true
	}
	return donation.Lease{}, false
}
