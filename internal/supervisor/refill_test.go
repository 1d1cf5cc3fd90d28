// This file tests the budget of attempts over time: when it is refilled, and what a clock that lies does to it.

package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestS15_LongUptimeRefillsAtItsMoment(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		before := r.exhaust(id)
		due := before.Spawn.StartedAt.Add(defaults.RefillAfter)
		r.pass(time.Until(due) - time.Millisecond)
		want(t, "attempts just before", r.get(id).Attempts, 5)
		r.pass(time.Millisecond + prompt)
		rec := r.wantRuns(id)
		want(t, "attempts", rec.Attempts, 0)
		want(t, "last attempt", rec.LastAttempt, time.Time{})
		want(t, "updated_at", rec.UpdatedAt, before.UpdatedAt)
		want(t, "generation", rec.Generation, before.Generation)
	})
}

// TestS15_UptimeIsTheNodesOwn: restarts of the daemon and of the guard neither refill nor begin it anew.
func TestS15_UptimeIsTheNodesOwn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		before := r.exhaust(id)
		due := before.Spawn.StartedAt.Add(defaults.RefillAfter)
		for range 4 {
			r.restart()
			r.guard.replace(adopted)
			r.pass(2 * time.Minute)
			want(t, "attempts before the moment", r.get(id).Attempts, 5)
		}
		r.restart()
		r.pass(time.Until(due) + prompt)
		want(t, "attempts", r.wantRuns(id).Attempts, 0)
	})
}

func TestS15_ADeathBeginsTheUptimeAnew(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		for n := range 3 {
			r.die(id)
			want(t, "attempts", r.wantRuns(id).Attempts, n+1)
			r.pass(9 * time.Minute)
		}
		want(t, "attempts", r.get(id).Attempts, 3)
		r.pass(time.Minute + prompt)
		want(t, "attempts after ten minutes", r.get(id).Attempts, 0)
	})
}

func TestS15_TheMomentPassesWhileTheDaemonIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.exhaust(id)
		r.close()
		time.Sleep(time.Hour)
		r.start()
		want(t, "attempts", r.wantRuns(id).Attempts, 0)
	})
}

func TestS16_ARefillYieldsToAnEnding(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.exhaust(id)
		r.life.once("before Refill", func() {
			if _, err := r.db.Terminate(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
		r.pass(defaults.RefillAfter + time.Second)
		rec := r.wantDown(id)
		want(t, "status", rec.Status, donation.Terminated)
		want(t, "attempts", rec.Attempts, 5)
		want(t, "workdir left", rec.HasWorkdir, false)
	})
}

func TestS16_ARefillKeepsWhatLandsBesideIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		rec := r.exhaust(id)
		r.life.once("before Refill", func() {
			if err := r.db.IntendStop(context.Background(), rec.Spawn.ID, donation.ReasonRestart); err != nil {
				t.Error(err)
			}
		})
		r.pass(defaults.RefillAfter + time.Second)
		after := r.wantRuns(id)
		want(t, "attempts", after.Attempts, 0)
		want(t, "generation", after.Generation, rec.Generation+1) // the restart was done
	})
}

func TestS17_AnImpossibleClockNeverWedgesADonation(t *testing.T) {
	for name, last := range map[string]any{
		"unreadable": nil, "negative": int64(-1), "beyond all years": int64(1) << 62,
		"a day ahead": time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC).UnixMicro(),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.donate("node").ID
				r.die(id)
				r.pass(time.Second)
				r.damage(`UPDATE donations SET last_attempt = ?`, last)
				died := time.Now()
				r.die(id)
				r.pass(defaults.BackoffCap)
				rec := r.wantRuns(id)
				if d := rec.Spawn.StartedAt.Sub(died); d > defaults.BackoffCap {
					t.Errorf("it came back after %s", d)
				}
				want(t, "attempts", rec.Attempts, 2)
			})
		})
	}
}

func TestS17_AStartInTheFutureIsNoUptime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.die(id)
		r.damage(`UPDATE spawns SET started_at = ?`, time.Now().Add(time.Hour).UnixMicro())
		r.sup.Sweep()
		r.pass(59 * time.Minute)
		want(t, "attempts", r.get(id).Attempts, 1)
		r.pass(15 * time.Minute)
		want(t, "attempts once it is past", r.get(id).Attempts, 0)
	})
}
