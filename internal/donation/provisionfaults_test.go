// This file tests provisions that fail in the middle: the start is refused, unanswered or raced by an ending, its
// outcome can't be written, the service closes.

package donation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestD05_RefusedStartLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		// Twice, with a port range that holds two donations: the ports come back.
		for range 2 {
			r.guard.next(refuse("exec /no/such: no such file or directory"), refuse("exec /no/such: no such file or directory"))
			for range 2 {
				rec, err := r.svc.Provision(t.Context(), donation.Request{Template: "plain", Name: "web"})
				wantCode(t, err, donation.CodeSpawnFailed, string(rec.ID), "no such file")
				now := r.wantStatus(rec.ID, donation.Failed)
				wantWords(t, now.Message, "no such file")
				if now.GaveUp || now.Spawn.State != donation.SpawnFailed || now.Spawn.Exit.Reason != donation.ReasonStartFailed {
					t.Errorf("the record is %+v, its spawn %+v", now.Donation, *now.Spawn)
				}
				r.wantNothingLeft(rec.ID)
				if _, err := r.svc.Terminate(t.Context(), rec.ID, false); err != nil { // gives the name back
					t.Error(err)
				}
			}
		}
		r.provision("plain")
		r.provision("plain")
	})
}

func TestD05_ReclaimThatFailsIsMadeUpFor(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.guard.next(refuse("no"))
		r.guard.set(func(g *fakeGuard) { g.reclaimErr = errors.New("device busy") })
		rec, err := r.svc.Provision(t.Context(), donation.Request{Template: "plain"})
		wantCode(t, err, donation.CodeSpawnFailed, "device busy")
		r.wantStatus(rec.ID, donation.Failed)
		r.guard.set(func(g *fakeGuard) { g.reclaimErr = nil })
		synctest.Wait()
		r.settle(rec.ID)
		r.wantNothingLeft(rec.ID)
	})
}

func TestD06_StartThatCannotBeRecordedIsUndone(t *testing.T) {
	diskFull := func() error { return errors.New("disk full") }
	for name, stubborn := range map[string]bool{"obedient": false, "stubborn": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.guard.set(func(g *fakeGuard) { g.stubborn = stubborn })
				r.store.fail("SpawnStarted", diskFull)
				rec, err := r.svc.Provision(t.Context(), donation.Request{Template: "plain"})
				wantCode(t, err, donation.CodeInternal, "disk full", "stopped")
				wantSame(t, "the stops", r.guard.stopped(), []stopCall{{rec.Spawn.ID, donation.ReasonAbandoned, true}})
				now := r.wantStatus(rec.ID, donation.Failed)
				wantWords(t, now.Message, "disk full")
				wantSame(t, "the intention", now.Spawn.StopReason, donation.ReasonAbandoned)
				synctest.Wait()
				r.settle(rec.ID)
				r.wantNothingLeft(rec.ID)
			})
		})
	}
	t.Run("nothing can be written", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			r.store.fail("SpawnStarted", diskFull)
			r.store.fail("Fail", diskFull)
			rec, err := r.svc.Provision(t.Context(), donation.Request{Template: "plain"})
			wantCode(t, err, donation.CodeInternal, "disk full")
			wantSame(t, "the stops", len(r.guard.stopped()), 1)
			r.wantStatus(rec.ID, donation.Provisioning)
			synctest.Wait()
			time.Sleep(provisioningTimeout)
			if err := r.svc.ReapStale(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
			r.settle(rec.ID)
			r.wantStatus(rec.ID, donation.Failed)
			r.wantNothingLeft(rec.ID)
		})
	})
}

func TestD07_EndingDuringTheStartStands(t *testing.T) {
	for name, end := range map[string]func(r *rig, id donation.ID) (donation.Status, error){
		"terminate": func(r *rig, id donation.ID) (donation.Status, error) {
			_, err := r.store.Terminate(r.Context(), id)
			return donation.Terminated, err
		},
		"error": func(r *rig, id donation.ID) (donation.Status, error) {
			return donation.Failed, r.store.Fail(r.Context(), id, []donation.Status{donation.Provisioning}, 0, "reaped", false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				id, release, done := r.startHeld(t.Context(), nil)
				want, err := end(r, id)
				if err != nil {
					t.Fatal(err)
				}
				release()
				wantCode(t, (<-done).err, donation.CodeInvalidState, string(id))
				rec := r.wantStatus(id, want)
				// The child exists, and is on record with the intention to stop it.
				if rec.Spawn.State != donation.SpawnRunning || rec.Spawn.StopReason == "" {
					t.Errorf("the spawn is %+v", *rec.Spawn)
				}
				synctest.Wait()
				r.settle(id)
				r.wantStatus(id, want)
				r.wantNothingLeft(id)
			})
		})
	}
}

func TestD07_TerminateWaitsForTheProvision(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supervise()
		id, release, done := r.startHeld(t.Context(), nil)
		ended := async(func() (donation.Record, error) { return r.svc.Terminate(t.Context(), id, false) })
		r.pending("terminate", ended)
		release()
		wantCode(t, (<-done).err, donation.CodeInvalidState)
		if got := <-ended; got.err != nil || got.rec.Status != donation.Terminated {
			t.Errorf("terminate: %s, %v", got.rec.Status, got.err)
		}
		r.wantNothingLeft(id)
	})
}

func TestD08_FailedStartNeverRewritesAnEnding(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		id, release, done := r.startHeld(t.Context(), refuse("no such file"))
		if _, err := r.store.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		release()
		wantCode(t, (<-done).err, donation.CodeInvalidState, string(id))
		rec := r.wantStatus(id, donation.Terminated)
		if rec.Message != "" || rec.Spawn.State != donation.SpawnFailed {
			t.Errorf("the message is %q, the spawn %s", rec.Message, rec.Spawn.State)
		}
		synctest.Wait()
		r.settle(id)
		r.wantNothingLeft(id)
	})
}

func TestD08_EndingStopsTheResending(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		arrived, release := make(chan donation.ID, 1), make(chan struct{})
		r.guard.next(held(arrived, release, indefinitely(context.DeadlineExceeded)))
		done := async(func() (donation.Record, error) {
			return r.svc.Provision(t.Context(), donation.Request{Template: "plain"})
		})
		id := <-arrived
		if _, err := r.store.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		close(release)
		wantCode(t, (<-done).err, donation.CodeInvalidState)
		wantSame(t, "the starts", len(r.guard.sent()), 1)
		synctest.Wait()
		r.settle(id)
		r.wantStatus(id, donation.Terminated)
		r.wantNothingLeft(id)
	})
}

func TestP13_UnansweredStartIsSentAgainAsTheSame(t *testing.T) {
	for name, first := range map[string]answer{
		"never arrived": indefinitely(context.DeadlineExceeded),
		"answer lost":   startUnheard,
		"guard away":    indefinitely(donation.ErrDisconnected),
		"busy":          indefinitely(donation.ErrBusy),
		"garbage":       indefinitely(errors.New("unexpected end of JSON input")),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.guard.next(first)
				rec := r.provision("plain")
				wantSame(t, "the spawns sent", r.guard.sent(), []donation.SpawnID{rec.Spawn.ID, rec.Spawn.ID})
				if rec.Status != donation.Seeded || rec.Attempts != 0 || rec.Spawn.Identity.PID != 1001 || r.guard.lastPID != 1001 {
					t.Errorf("the record is %+v with process %d of %d", rec.Donation, rec.Spawn.Identity.PID, r.guard.lastPID)
				}
			})
		})
	}
}

func TestP13_PausesGrowUpToTheSettleInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		begin := time.Now()
		var at []time.Duration
		for range 12 {
			r.guard.next(func(context.Context, *fakeGuard, donation.Launch) (donation.Process, error) {
				at = append(at, time.Since(begin))
				return donation.Process{}, context.DeadlineExceeded
			})
		}
		r.provision("plain")
		if at[0] != 0 || at[1] != 10*time.Millisecond {
			t.Errorf("the first two at %s, %s", at[0], at[1])
		}
		if last := at[11] - at[10]; last != settleInterval {
			t.Errorf("the last pause is %s, want the settle interval", last)
		}
	})
}

func TestF23_TextFileBusyIsRetriedWithinMilliseconds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		busy := indefinitely(fmt.Errorf("exec: text file busy: %w", donation.ErrTransient))
		r.guard.next(busy, busy)
		begin := time.Now()
		rec := r.provision("plain")
		if took := time.Since(begin); took > 50*time.Millisecond || rec.Attempts != 0 {
			t.Errorf("it took %s, attempts %d", took, rec.Attempts)
		}
		wantSame(t, "the starts", len(r.guard.sent()), 3)
	})
}

func TestD22_StuckProvisioningsAreReaped(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		// A daemon that dies between the record and the start's answer: its service closes and leaves it there.
		id, _, done := r.startHeld(t.Context(), nil)
		r.svc.Close()
		wantCode(t, (<-done).err, donation.CodeUnavailable)
		r.svc = r.service()
		owned, _, owner := r.startHeld(t.Context(), nil)
		defer func() { r.svc.Close(); <-owner }()

		reap := func() {
			t.Helper()
			if err := r.svc.ReapStale(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(provisioningTimeout - time.Microsecond)
		reap()
		r.wantStatus(id, donation.Provisioning)
		time.Sleep(time.Hour)
		reap()
		rec := r.wantStatus(id, donation.Failed)
		wantWords(t, rec.Message, "stuck in provisioning", "5m0s")
		if rec.GaveUp || !r.wasDirty(id) {
			t.Errorf("gave up %v, dirty %v", rec.GaveUp, r.wasDirty(id))
		}
		r.wantStatus(owned, donation.Provisioning)
		r.settle(id)
		r.wantNothingLeft(id)
	})
}

func TestD22_ReapTakesChildAndWorkdirToo(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.guard.next(startUnheard)
		// The answer is lost, and the daemon stops in the pause before the next try.
		r.guard.next(held(make(chan donation.ID, 1), nil, nil))
		done := async(func() (donation.Record, error) {
			return r.svc.Provision(t.Context(), donation.Request{Template: "plain"})
		})
		synctest.Wait()
		r.svc.Close()
		id := (<-done).rec.ID
		r.svc = r.service()
		wantWords(t, r.guard.left(id), "process 1001 running")
		time.Sleep(provisioningTimeout)
		if err := r.svc.ReapStale(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		r.settle(id)
		r.wantStatus(id, donation.Failed)
		r.wantNothingLeft(id)
	})
}
