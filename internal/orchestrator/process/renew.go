// This file renews leases. Renewals that come while one request is under way travel together in the next, so that ten
// thousand leases cost hundreds of requests and not ten thousand.

package process

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// maxRenewals bounds one request, far below what the guard takes.
const maxRenewals = 4096

// renewer holds what waits to be sent.
type renewer struct {
	sending sync.WaitGroup // the goroutine that sends, if there is one

	mu      sync.Mutex // guards what follows
	waiting []renewal
	busy    bool
	closed  bool
}

// renewal is one caller; done has room for its answer, should it have left.
type renewal struct {
	lease guard.Lease
	done  chan error
}

// Renew lets the spawn run on for ttl from now. donation.ErrGone: there is no such process any more. Every other
// error may pass. If ctx ends first the renewal may still take effect.
func (o *Orchestrator) Renew(ctx context.Context, spawn donation.SpawnID, ttl time.Duration) error {
	r := renewal{lease: guard.Lease{Spawn: string(spawn), TTL: ttl}, done: make(chan error, 1)}
	q := &o.renewals
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return fmt.Errorf("renew the lease of %s: %w", spawn, donation.ErrDisconnected)
	}
	q.waiting = append(q.waiting, r)
	if !q.busy {
		q.busy = true
		q.sending.Go(o.sendRenewals)
	}
	q.mu.Unlock()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("renew the lease of %s: %w", spawn, context.Cause(ctx))
	}
}

// sendRenewals sends what waits until nothing does.
func (o *Orchestrator) sendRenewals() {
	for batch := o.renewals.take(); len(batch) > 0; batch = o.renewals.take() {
		o.sendBatch(batch)
	}
}

// close refuses further renewals and waits for what is under way.
func (q *renewer) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.sending.Wait()
}

// take returns what travels next; with nothing left the sender is done.
func (q *renewer) take() []renewal {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.waiting[:min(len(q.waiting), maxRenewals)]
	q.waiting = q.waiting[len(batch):]
	if len(batch) == 0 {
		q.busy, q.waiting = false, nil
	}
	return batch
}

func (o *Orchestrator) sendBatch(batch []renewal) {
	leases := make([]guard.Lease, len(batch))
	for i, r := range batch {
		leases[i] = r.lease
	}
	// No caller's context: one that gives up must not end the others' renewals.
	ctx, cancel := o.bounded(context.Background())
	defer cancel()
	names, err := o.guard.Renew(ctx, leases...)
	gone := make(map[string]bool, len(names))
	for _, spawn := range names {
		gone[spawn] = true
	}
	for _, r := range batch {
		switch {
		case err != nil:
			r.done <- callError("renew the lease of "+r.lease.Spawn, err)
		case gone[r.lease.Spawn]:
			r.done <- fmt.Errorf("renew the lease of %s: %w", r.lease.Spawn, donation.ErrGone)
		default:
			r.done <- nil
		}
	}
}
