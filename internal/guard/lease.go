// This file enforces leases: a node that nobody has renewed for one TTL is stopped like any other, by signal, grace and
// kill. Time is the guard's own monotonic time, which neither a set clock nor a suspend moves; and when the guard
// itself was held up, nobody could have renewed, so every lease gets an interval more.

package guard

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// ExpiredReason is the reason of the stops that come from a lease that has run out.
const ExpiredReason = "lease-expired"

// The tick of the enforcement: a twenty-fifth of the shortest TTL, so that an expiry is carried out at most 4 % of the
// TTL late, within bounds that keep it cheap.
const (
	leaseTickPart = 25
	leaseTickMin  = 20 * time.Millisecond
	leaseTickMax  = time.Second
	// leaseGap is how many ticks may pass unseen before the guard counts as having been held up.
	leaseGap = 2
)

// lease is what one process has; the zero value is none. It is guarded by table.mu.
type lease struct {
	ttl time.Duration
	// end carries the monotonic reading that it is compared by.
	end time.Time
}

// begin starts the lease anew; a ttl of 0 ends it.
func (l *lease) begin(now time.Time, ttl time.Duration) {
	*l = lease{ttl: ttl}
	if ttl > 0 {
		l.end = now.Add(ttl)
	}
}

// extend gives the lease at least half of its TTL, one renewal interval, from now.
func (l *lease) extend(now time.Time) {
	if least := now.Add(l.ttl / 2); l.ttl > 0 && l.end.Before(least) {
		l.end = least
	}
}

func (l *lease) expired(now time.Time) bool { return l.ttl > 0 && !now.Before(l.end) }

// left is what is left of the lease, never less than a nanosecond while there is one, so that it isn't taken for none.
func (l *lease) left(now time.Time) time.Duration {
	if l.ttl == 0 {
		return 0
	}
	return max(l.end.Sub(now), 1)
}

// leaseTick is the pause between two looks at the leases, the shortest of which has this TTL; 0 means there is none.
func leaseTick(shortest time.Duration) time.Duration {
	if shortest == 0 {
		return leaseTickMax
	}
	return min(max(shortest/leaseTickPart, leaseTickMin), leaseTickMax)
}

// heldUp reports whether more time has passed between two looks than the guard can have let pass by itself.
func heldUp(passed, tick time.Duration) bool { return passed > leaseGap*tick }

// enforceLeases looks at every tick until ctx ends.
func (g *Guard) enforceLeases(ctx context.Context) {
	tick := leaseTickMax
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for last := time.Now(); ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		gap := heldUp(now.Sub(last), tick)
		if gap {
			g.log.Warn("the guard was held up; leases are extended", zap.Duration("for", now.Sub(last)))
		}
		var expired []string
		expired, tick = g.table.lookAtLeases(now, gap)
		for _, spawn := range expired {
			g.log.Warn("lease expired", zap.String("spawn", spawn))
			g.stop(StopRequest{Spawn: spawn, Reason: ExpiredReason})
		}
		last = now
		timer.Reset(tick)
	}
}

// lookAtLeases returns the running spawns whose lease has run out, and the pause before the next look.
func (t *table) lookAtLeases(now time.Time, gap bool) (expired []string, tick time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shortest := time.Duration(0)
	for spawn, p := range t.procs {
		if p.lease.ttl == 0 || p.view.State != StateRunning {
			continue
		}
		if shortest == 0 || p.lease.ttl < shortest {
			shortest = p.lease.ttl
		}
		if gap {
			p.lease.extend(now)
		}
		if p.lease.expired(now) {
			expired = append(expired, spawn)
		}
	}
	return expired, leaseTick(shortest)
}

// checkTTL refuses a lease that is longer than this guard's limits allow, and none at all where there is a limit.
func (g *Guard) checkTTL(ttl time.Duration) error {
	switch {
	case g.cfg.MaxTTL == 0 || ttl > 0 && ttl <= g.cfg.MaxTTL:
		return nil
	case ttl == 0:
		return &Error{Code: CodeRefused, Message: fmt.Sprintf("this guard starts no node without a lease; the longest is %s (max_ttl)", g.cfg.MaxTTL)}
	}
	return &Error{Code: CodeRefused, Message: fmt.Sprintf("a lease of %s is longer than the %s that this guard allows (max_ttl)", ttl, g.cfg.MaxTTL)}
}

// renew moves the ends of leases.
func (g *Guard) renew(req RenewRequest) (RenewResponse, error) {
	for _, l := range req.Leases {
		if l.TTL <= 0 {
			return RenewResponse{}, &Error{Code: CodeInvalid, Message: fmt.Sprintf("a lease of %s for %s", l.TTL, l.Spawn)}
		}
		if err := g.checkTTL(l.TTL); err != nil {
			return RenewResponse{}, err
		}
	}
	var resp RenewResponse
	var changed []*process
	t, now := g.table, time.Now()
	t.mu.Lock()
	for _, l := range req.Leases {
		p, ok := t.procs[l.Spawn]
		if !ok || p.view.State == StateExited {
			resp.Gone = append(resp.Gone, l.Spawn)
			continue
		}
		p.lease.begin(now, l.TTL)
		if p.record.TTL != l.TTL {
			p.record.TTL = l.TTL
			changed = append(changed, p)
		}
	}
	t.mu.Unlock()
	for _, p := range changed {
		g.report(p, "the lease's TTL isn't in the spool", g.persist(p))
	}
	return resp, nil
}
