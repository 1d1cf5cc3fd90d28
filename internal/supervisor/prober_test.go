// This file tests the probes: when readiness is recorded, what it costs, and that nothing waits for it.

package supervisor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// answers makes the guard answer the probes with f.
func (r *rig) answers(f func(ctx context.Context, l donation.Launch) (bool, error)) {
	r.guard.mu.Lock()
	defer r.guard.mu.Unlock()
	r.guard.ready = f
}

func TestReadinessIsRecordedWhenItComes(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond, time.Second, time.Minute} {
		t.Run(after.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				from := time.Now().Add(after)
				r.answers(func(context.Context, donation.Launch) (bool, error) {
					if time.Now().Before(from) {
						return false, errors.New("connection refused")
					}
					return true, nil
				})
				id := r.donate("node").ID
				r.pass(after*2 + time.Second)
				ready := r.get(id).Spawn.ReadyAt
				if late := ready.Sub(from); ready.IsZero() || late < 0 || late > max(firstProbe, min(after, slowProbe)) {
					t.Errorf("ready at %v, %s late", ready, late)
				}
			})
		})
	}
}

func TestReadinessOfASlowNodeCostsAProbeASecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var asked atomic.Int64
		r.answers(func(context.Context, donation.Launch) (bool, error) { asked.Add(1); return false, nil })
		id := r.donate("node").ID
		for range 60 {
			r.sup.Sweep()
			r.sup.Add(id)
			r.pass(time.Second)
		}
		if n := asked.Load(); n < 60 || n > 80 {
			t.Errorf("%d probes in a minute", n)
		}
		want(t, "ready", r.get(id).Spawn.ReadyAt.IsZero(), true)
	})
}

func TestReadinessNeverDelaysTheNewsOfADeath(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.answers(func(ctx context.Context, _ donation.Launch) (bool, error) {
			<-ctx.Done() // as long as anybody waits
			return false, context.Cause(ctx)
		})
		id := r.donate("node").ID
		r.pass(time.Minute)
		died := time.Now()
		r.die(id)
		want(t, "time to the respawn", r.wantRuns(id).Spawn.StartedAt.Sub(died), 0)
		r.restart() // which waits for the probes of the former daemon
		r.wantRuns(id)
	})
}

func TestReadinessIsNotAskedOfTheDead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var asked atomic.Int64
		r.answers(func(context.Context, donation.Launch) (bool, error) { asked.Add(1); return false, nil })
		id := r.donate("node").ID
		r.pass(time.Minute)
		if _, err := r.svc.Terminate(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		before := asked.Load()
		r.pass(time.Hour)
		want(t, "probes after the end", asked.Load()-before, 0)
	})
}

// TestReadinessIsAskedAfterTheGuardWasAway: while it is, the node may well live.
func TestReadinessIsAskedAfterTheGuardWasAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var isReady atomic.Bool
		r.answers(func(context.Context, donation.Launch) (bool, error) { return isReady.Load(), nil })
		id := r.donate("node").ID
		r.guard.disconnect()
		r.pass(time.Minute)
		r.guard.connect()
		isReady.Store(true)
		r.pass(slowProbe)
		want(t, "ready", r.get(id).Spawn.ReadyAt.IsZero(), false)
	})
}

func TestSweepsTellTheOthers(t *testing.T) {
	machine(t, func(t *testing.T, r *rig) {
		var told atomic.Int64
		r.opts.OnSweep = func() { told.Add(1) }
		r.start()
		r.pass(10 * sweepInterval)
		want(t, "calls in ten sweeps", told.Load(), 10)
	})
}
