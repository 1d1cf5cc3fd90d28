// This file tests what follows a death: the respawn, its pace and its price.

package supervisor

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestS01_SeededNodeIsRespawnedAsItWas(t *testing.T) { respawnedAsItWas(t, "node", donation.Seeded) }

// What a seed does with the new endpoint and token is not in the product yet; that they are on record is here.
func TestS02_UnseededNodeIsRespawnedAsItWas(t *testing.T) {
	respawnedAsItWas(t, "cadre", donation.AwaitingSeed)
}

func respawnedAsItWas(t *testing.T, template string, status donation.Status) {
	bubble(t, func(t *testing.T, r *rig) {
		old := r.donate(template)
		want(t, "status", old.Status, status)
		r.pass(time.Hour)
		r.die(old.ID)
		rec := r.wantRuns(old.ID)
		want(t, "status", rec.Status, status)
		want(t, "generation", rec.Generation, old.Generation+1)
		if rec.Spawn.ID == old.Spawn.ID || rec.Spawn.Identity == old.Spawn.Identity || rec.Spawn.Identity.IsZero() {
			t.Errorf("the process on record is %v as %s, before it was %v as %s", rec.Spawn.Identity, rec.Spawn.ID, old.Spawn.Identity, old.Spawn.ID)
		}
		if rec.Spawn.SeedToken == old.Spawn.SeedToken || rec.Spawn.StartupToken == old.Spawn.StartupToken || rec.Spawn.SeedToken.IsZero() {
			t.Error("the tokens are not fresh")
		}
		if diff := cmp.Diff(old.Ports, rec.Ports); diff != "" {
			t.Errorf("ports (-before +after):\n%s", diff)
		}
		want(t, "updated_at", rec.UpdatedAt, old.UpdatedAt)
		want(t, "workdirs deleted", len(r.guard.reclaimed), 0)
		before := r.spawns(old.ID)[0]
		if before.Exit == nil || before.Exit.Code != crashed.Code || !before.Exit.Known {
			t.Errorf("the exit on record is %v, want %v", before.Exit, crashed)
		}
		want(t, "acknowledged exits", fmt.Sprint(r.guard.acked), fmt.Sprint([]donation.SpawnID{before.ID}))
	})
}

func TestS03_ARunningNodeIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.donate("node")
		r.pass(time.Second) // it gets ready
		rec = r.get(rec.ID)
		events := r.events(rec.ID)
		for range 20 {
			r.sup.Add(rec.ID)
			r.sup.Sweep()
			r.pass(sweepInterval)
		}
		if diff := cmp.Diff(rec, r.get(rec.ID), cmp.AllowUnexported(donation.Secret{})); diff != "" {
			t.Errorf("the record has changed (-before +after):\n%s", diff)
		}
		want(t, "events", fmt.Sprint(r.events(rec.ID)), fmt.Sprint(events))
		want(t, "starts", len(r.guard.startsOf(rec.ID)), 1)
	})
}

func TestS08_AFirstDeathCostsNoWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.pass(time.Second)
		died := time.Now()
		r.die(id)
		rec := r.wantRuns(id)
		want(t, "time to the respawn", rec.Spawn.StartedAt.Sub(died), 0)
		want(t, "attempts", rec.Attempts, 1)
	})
}

func TestS09_LaterDeathsWaitForTheirBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.pass(time.Second)
		r.die(id) // attempt 1 comes at once
		for n, backoff := range []time.Duration{10, 20, 40, 80} {
			backoff *= time.Second
			last := r.get(id).LastAttempt
			r.pass(3 * time.Second)
			r.die(id)
			r.pass(time.Until(last.Add(backoff)) - time.Millisecond)
			r.wantDown(id)
			want(t, "attempts before the moment", r.get(id).Attempts, n+1)
			r.pass(time.Millisecond + prompt)
			rec := r.wantRuns(id)
			want(t, "attempts", rec.Attempts, n+2)
			if late := rec.Spawn.StartedAt.Sub(last) - backoff; late < 0 || late > prompt {
				t.Errorf("attempt %d came %s after its moment", n+2, late)
			}
		}
	})
}

func TestS09_ADeathAfterItsBackoffWaitsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.die(id)
		r.pass(11 * time.Second) // longer than attempt 2 had to wait
		r.die(id)
		want(t, "attempts", r.wantRuns(id).Attempts, 2)
	})
}

func TestS10_AnAttemptIsOnRecordBeforeTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.life.once("before Start", func() {
			rec := r.get(id)
			want(t, "attempts when the start is asked for", rec.Attempts, 1)
			want(t, "spawn", rec.Spawn.State, donation.SpawnStarting)
		})
		r.die(id)
		want(t, "starts", len(r.guard.startsOf(id)), 2)
	})
}

func TestS10_WhatIsCharged(t *testing.T) {
	for _, tt := range []struct {
		name     string
		verdicts []verdict
		attempts int
		runs     bool
	}{
		{"it starts", []verdict{starts}, 1, true},
		{"it can't be started", []verdict{refused}, 1, false},
		{"it dies at once", []verdict{diesAtOnce}, 1, false},
		{"the guard is busy for a while", []verdict{busy, busy, starts}, 1, true},
		{"the start passes by", []verdict{transient, transient, transient, starts}, 1, true},
		{"no answer, and nothing started", []verdict{unanswered, unanswered, starts}, 1, true},
		{"no answer, and it has started", []verdict{answerLost}, 1, true},
		{"it starts late", []verdict{late, unanswered, unanswered, unanswered}, 1, true},
		{"it is refused after no answer", []verdict{unanswered, refused}, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.donate("node").ID
				r.guard.will(id, tt.verdicts...)
				r.die(id)
				r.pass(5 * time.Second) // less than the backoff of attempt 2
				want(t, "attempts", r.get(id).Attempts, tt.attempts)
				want(t, "spawns", len(r.spawns(id)), 2)
				if tt.runs {
					r.wantRuns(id)
				} else {
					r.wantDown(id)
				}
				r.pass(10 * time.Second)
				r.wantRuns(id)
			})
		})
	}
}

// TestP13_AnUnansweredStartIsSentAgain: the same spawn, whatever is in the way, and through a restart of the daemon.
func TestP13_AnUnansweredStartIsSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.guard.will(id, hangs)
		r.die(id)
		r.wantDown(id)
		begun := r.get(id).Spawn.ID
		r.restart()
		rec := r.wantRuns(id)
		want(t, "spawn", rec.Spawn.ID, begun)
		want(t, "attempts", rec.Attempts, 1)
	})
}

func TestS20_ManyTriggersAreOneRespawn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.guard.startTime = 10 * time.Millisecond
		for n := range 3 {
			r.guard.die(id)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() { r.sup.Add(id) })
				wg.Go(r.sup.Sweep)
				wg.Go(r.guard.connect)
			}
			wg.Wait()
			r.pass(Backoff(n+1, defaults))
			rec := r.wantRuns(id)
			want(t, "attempts", rec.Attempts, n+1)
			want(t, "starts", len(r.guard.startsOf(id)), n+2)
		}
	})
}

func TestS21_ADeathDuringItsOwnReconcileIsNoticedAtOnce(t *testing.T) {
	for _, point := range []string{"before SpawnStarted", "after SpawnStarted", "before Ack", "after Ack"} {
		t.Run(point, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.donate("node").ID
				r.pass(time.Second)
				r.life.once(point, func() { r.guard.die(id) })
				begun := time.Now()
				r.die(id)
				rec := r.get(id)
				want(t, "time passed", time.Since(begun), 0)
				want(t, "spawn", rec.Spawn.State, donation.SpawnExited)
				want(t, "deaths on record", len(r.spawns(id)), 2)
				r.pass(10*time.Second + prompt) // and the next one is planned
				want(t, "attempts", r.wantRuns(id).Attempts, 2)
			})
		})
	}
}

func TestS25_ADeathAfterLongHealthCostsNoWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.exhaust(id)
		r.pass(defaults.RefillAfter + prompt)
		want(t, "attempts after long health", r.get(id).Attempts, 0)
		died := time.Now()
		r.die(id)
		rec := r.wantRuns(id)
		want(t, "time to the respawn", rec.Spawn.StartedAt.Sub(died), 0)
		want(t, "attempts", rec.Attempts, 1)
	})
}

func TestS10_AStrangerOnAPortChargesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.donate("node")
		r.guard.mu.Lock()
		r.guard.held[rec.Ports["http"]] = true
		r.guard.mu.Unlock()
		r.die(rec.ID)
		r.pass(time.Minute)
		r.wantDown(rec.ID)
		want(t, "attempts", r.get(rec.ID).Attempts, 0)
		want(t, "hold", r.sup.Hold(rec.ID), "port http is held by another program")
		r.guard.mu.Lock()
		r.guard.held = nil
		r.guard.mu.Unlock()
		r.pass(settle)
		want(t, "attempts", r.wantRuns(rec.ID).Attempts, 1)
		want(t, "hold", r.sup.Hold(rec.ID), "")
	})
}

func TestF23_TextFileBusyIsRetriedWithinMilliseconds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.guard.will(id, transient, transient)
		r.die(id)
		if why := r.sup.Hold(id); why == "" {
			t.Error("nothing is said about what keeps it from starting")
		}
		died := time.Now()
		r.pass(settle / 2)
		rec := r.wantRuns(id)
		if d := rec.Spawn.StartedAt.Sub(died); d > 2*transientPause {
			t.Errorf("it came back after %s", d)
		}
		want(t, "attempts", rec.Attempts, 1)
	})
}

func TestP12_AGuardThatWasStoppedIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		// Its stream stays connected, so nothing tells when it goes on.
		r.life.at(func(point, _ string) error {
			if point == "before Start" {
				return fmt.Errorf("no answer within 5s: %w", donation.ErrDisconnected)
			}
			return nil
		})
		r.die(id)
		r.pass(10 * time.Second)
		r.wantDown(id)
		r.life.at(nil)
		r.pass(settle)
		rec := r.wantRuns(id)
		want(t, "attempts", rec.Attempts, 1)
		want(t, "spawns", len(r.spawns(id)), 2)
	})
}
