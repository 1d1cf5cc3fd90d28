// This file tests the effects of the supervisor's decisions, one by one: what each records, in which order, and
// what is left when it fails in the middle.

package donation_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// dead provisions a node of the template that then crashes; the crash isn't on record yet.
func (r *rig) dead(template string) donation.Record {
	r.Helper()
	rec := r.provision(template)
	r.guard.die(rec.Spawn.ID, crash)
	return rec
}

// respawn has the record's dead node respawned, charged.
func (r *rig) respawn(rec donation.Record) error {
	exit := crash
	exit.At = time.Now()
	return r.svc.Respawn(r.Context(), rec, &exit, true)
}

func TestS01_RespawnKeepsWhatIsTheDonations(t *testing.T) {
	for template, status := range map[string]donation.Status{"plain": donation.Seeded, "seedy": donation.AwaitingSeed} {
		inBubble(t, func(t *testing.T, r *rig) {
			rec := r.dead(template)
			time.Sleep(time.Minute)
			if err := r.respawn(rec); err != nil {
				t.Fatal(err)
			}
			now := r.wantStatus(rec.ID, status)
			sp := now.Spawn
			if sp.State != donation.SpawnRunning || sp.Identity.PID != 1002 || now.Generation != 2 || now.Attempts != 1 || !now.LastAttempt.Equal(time.Now()) {
				t.Errorf("the record is %+v, its spawn %+v", now.Donation, *sp)
			}
			if sp.SeedToken.Reveal() == rec.Spawn.SeedToken.Reveal() || sp.StartupToken.Reveal() == rec.Spawn.StartupToken.Reveal() || sp.SeedToken.IsZero() {
				t.Error("the tokens aren't fresh")
			}
			wantSame(t, "the ports", r.guard.starts[1].Ports, rec.Ports)
			wantSame(t, "the request", r.guard.starts[1].Request, rec.Request)
			if !now.UpdatedAt.Equal(rec.UpdatedAt) {
				t.Error("the status's clock has moved")
			}
			// The old exit was recorded before it was acknowledged.
			spawns, err := r.store.Spawns(t.Context(), rec.ID, 0)
			if err != nil || spawns[1].Exit == nil || spawns[1].Exit.Code != 3 {
				t.Errorf("the old spawn is %+v, %v", spawns[1], err)
			}
			wantSame(t, "acknowledged", r.guard.acked, []donation.SpawnID{rec.Spawn.ID})
		})
	}
}

func TestS10_AttemptIsOnRecordBeforeTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.dead("plain")
		var seen donation.Record
		r.guard.next(func(_ context.Context, g *fakeGuard, l donation.Launch) (donation.Process, error) {
			seen = r.get(rec.ID)
			return g.begin(l), nil
		})
		if err := r.respawn(rec); err != nil {
			t.Fatal(err)
		}
		if seen.Attempts != 1 || seen.Generation != 2 || seen.Spawn.State != donation.SpawnStarting {
			t.Errorf("at the start the record was %+v, its spawn %s", seen.Donation, seen.Spawn.State)
		}
	})
}

func TestD18_EndingDuringARespawnStands(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(r *rig, rec donation.Record) error
		want  donation.Status
		keeps bool
	}{
		"terminate": {func(r *rig, rec donation.Record) error {
			_, err := r.store.Terminate(r.Context(), rec.ID)
			return err
		}, donation.Terminated, false},
		"give-up": {func(r *rig, rec donation.Record) error {
			return r.store.Fail(r.Context(), rec.ID, donation.Supervised, 0, "gave up", true)
		}, donation.Failed, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				rec := r.dead("plain")
				r.guard.next(func(_ context.Context, g *fakeGuard, l donation.Launch) (donation.Process, error) {
					if err := c.end(r, rec); err != nil {
						t.Error(err)
					}
					return g.begin(l), nil
				})
				if err := r.respawn(rec); !errors.Is(err, donation.ErrConflict) {
					t.Errorf("respawn: %v, want a conflict", err)
				}
				r.supervise()
				r.settle(rec.ID)
				synctest.Wait()
				now := r.wantStatus(rec.ID, c.want)
				wantSame(t, "the attempts", now.Attempts, 1)
				if !c.keeps {
					r.wantNothingLeft(rec.ID)
					return
				}
				if left := r.guard.left(rec.ID); left != "workdir" || !now.HasWorkdir || len(now.Ports) != 2 || now.Spawn.State != donation.SpawnExited {
					t.Errorf("left is %q; the record is %+v, its spawn %s", left, now.Donation, now.Spawn.State)
				}
			})
		})
	}
	t.Run("before it began", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			rec := r.dead("plain")
			if _, err := r.store.Terminate(t.Context(), rec.ID); err != nil {
				t.Fatal(err)
			}
			if err := r.respawn(rec); !errors.Is(err, donation.ErrConflict) {
				t.Errorf("respawn: %v, want a conflict", err)
			}
			wantSame(t, "the starts", len(r.guard.sent()), 1)
			wantSame(t, "the attempts", r.get(rec.ID).Attempts, 0)
		})
	})
}

func TestD19_RefusedRespawnCountsAndIsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.dead("plain")
		r.guard.next(refuse("exec: no such file"))
		if err := r.respawn(rec); err != nil {
			t.Fatal(err)
		}
		now := r.wantStatus(rec.ID, donation.Seeded)
		if now.Attempts != 1 || now.Spawn.State != donation.SpawnFailed || now.Spawn.Exit.String() != "did not start: exec: no such file" {
			t.Errorf("the record is %+v, its spawn %+v", now.Donation, *now.Spawn)
		}
		if !now.HasWorkdir || len(now.Ports) != 2 || r.guard.left(rec.ID) != "workdir" {
			t.Errorf("the record is %+v, left is %q", now.Donation, r.guard.left(rec.ID))
		}
		// The spawn that ran is as it was.
		spawns, err := r.store.Spawns(t.Context(), rec.ID, 0)
		if err != nil || len(spawns) != 2 || spawns[1].Identity != rec.Spawn.Identity || spawns[1].SeedToken.Reveal() != rec.Spawn.SeedToken.Reveal() {
			t.Errorf("the spawns are %+v, %v", spawns, err)
		}
	})
}

func TestD20_RespawnThatCannotBeRecordedIsFoundAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.dead("plain")
		full := errors.New("disk full")
		r.store.fail("SpawnStarted", func() error { return full })
		if err := r.respawn(rec); !errors.Is(err, full) {
			t.Errorf("respawn: %v", err)
		}
		if now := r.get(rec.ID); now.Spawn.State != donation.SpawnStarting || now.Attempts != 1 {
			t.Errorf("the record is %+v, its spawn %s", now.Donation, now.Spawn.State)
		}
		r.settle(rec.ID)
		now := r.wantStatus(rec.ID, donation.Seeded)
		if now.Spawn.State != donation.SpawnRunning || now.Spawn.Identity.PID != 1002 || now.Attempts != 1 || now.Generation != 2 {
			t.Errorf("the record is %+v, its spawn %+v", now.Donation, *now.Spawn)
		}
		wantSame(t, "the stops", len(r.guard.stopped()), 0)
		wantSame(t, "what the guard has", r.guard.left(rec.ID), "process 1002 running; workdir")
	})
}

func TestP13_UnansweredRespawnIsSentAgainAsTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.dead("plain")
		r.guard.next(indefinitely(context.DeadlineExceeded), indefinitely(donation.ErrBusy))
		if err := r.respawn(rec); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("respawn: %v", err)
		}
		begun := r.get(rec.ID)
		if err := r.svc.Resend(t.Context(), begun); !errors.Is(err, donation.ErrBusy) {
			t.Errorf("resend: %v", err)
		}
		if err := r.svc.Resend(t.Context(), begun); err != nil {
			t.Errorf("resend: %v", err)
		}
		id := begun.Spawn.ID
		wantSame(t, "the spawns sent", r.guard.sent()[1:], []donation.SpawnID{id, id, id})
		now := r.get(rec.ID)
		if now.Spawn.State != donation.SpawnRunning || now.Attempts != 1 || now.Generation != 2 {
			t.Errorf("the record is %+v, its spawn %s", now.Donation, now.Spawn.State)
		}
		if again := r.guard.starts[3]; again.Spawn.StartupToken.Reveal() != begun.Spawn.StartupToken.Reveal() || !slices.Equal(again.Request.OwnerKeys, begun.Request.OwnerKeys) {
			t.Errorf("what was sent again is %+v", again)
		}
	})
}

func TestS29_BlockedRespawnWritesNothing(t *testing.T) {
	held := &donation.BlockedError{Kind: donation.BlockPort, Message: "port 10000 is held"}
	for name, c := range map[string]struct {
		guard func(g *fakeGuard)
		want  donation.BlockKind
		words string
	}{
		"template gone": {func(g *fakeGuard) { delete(g.plans, "plain") }, donation.BlockTemplate, "plain"},
		"port held":     {func(g *fakeGuard) { g.checked = held }, donation.BlockPort, "10000"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				rec := r.dead("plain")
				r.guard.set(c.guard)
				before, _ := r.store.LastSeq(t.Context())
				var blocked *donation.BlockedError
				if err := r.respawn(rec); !errors.As(err, &blocked) || blocked.Kind != c.want {
					t.Fatalf("respawn: %v, want it blocked by %s", err, c.want)
				}
				wantWords(t, blocked.Message, c.words)
				if after, _ := r.store.LastSeq(t.Context()); after != before || len(r.guard.sent()) != 1 || len(r.guard.acked) != 0 {
					t.Errorf("%d events, %d starts, %d acknowledged", after-before, len(r.guard.sent()), len(r.guard.acked))
				}
			})
		})
	}
}

func TestS20_OneOfTwoRespawnsWins(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.dead("plain")
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- r.respawn(rec) }()
		}
		conflicts := 0
		for range 2 {
			switch err := <-errs; {
			case errors.Is(err, donation.ErrConflict):
				conflicts++
			case err != nil:
				t.Error(err)
			}
		}
		now := r.get(rec.ID)
		if conflicts != 1 || now.Attempts != 1 || now.Generation != 2 || len(r.guard.sent()) != 2 {
			t.Errorf("%d conflicts, %d starts; the record is %+v", conflicts, len(r.guard.sent()), now.Donation)
		}
	})
}

func TestSettleRecordsBeforeItAcknowledges(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.dead("plain")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.svc.Settle(ctx, rec.ID, rec.Spawn.ID, donation.SpawnExited, crash); !errors.Is(err, context.Canceled) {
			t.Errorf("settle: %v", err)
		}
		wantSame(t, "acknowledged although nothing is on record", len(r.guard.acked), 0)
		for range 2 { // the second time, only the acknowledgement is made up for
			if err := r.svc.Settle(t.Context(), rec.ID, rec.Spawn.ID, donation.SpawnExited, crash); err != nil {
				t.Error(err)
			}
		}
		if now := r.get(rec.ID); now.Spawn.State != donation.SpawnExited || now.Spawn.Exit.Code != 3 {
			t.Errorf("the spawn is %+v", *now.Spawn)
		}
		// A stray of another database: the guard may forget it.
		if err := r.svc.Settle(t.Context(), rec.ID, "spn_stray", donation.SpawnExited, crash); err != nil {
			t.Error(err)
		}
		wantSame(t, "acknowledged", r.guard.acked, []donation.SpawnID{rec.Spawn.ID, rec.Spawn.ID, "spn_stray"})
	})
}

func TestReclaimAcknowledgesLast(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.dead("plain")
		if _, err := r.store.Terminate(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		full := errors.New("device busy")
		r.guard.set(func(g *fakeGuard) { g.reclaimErr = full })
		exit := crash
		if err := r.svc.Reclaim(t.Context(), rec, donation.SpawnExited, &exit); !errors.Is(err, full) {
			t.Errorf("reclaim: %v", err)
		}
		if now := r.get(rec.ID); now.Spawn.State != donation.SpawnExited || !now.HasWorkdir || len(r.guard.acked) != 0 {
			t.Errorf("the record is %+v, its spawn %s, acknowledged %v", now.Donation, now.Spawn.State, r.guard.acked)
		}
		r.guard.set(func(g *fakeGuard) { g.reclaimErr = nil })
		r.settle(rec.ID)
		r.wantNothingLeft(rec.ID)
	})
}

func TestRefillAndReadyTouchTheirOwnOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.dead("plain")
		if err := r.respawn(rec); err != nil {
			t.Fatal(err)
		}
		if err := r.svc.Refill(t.Context(), rec); !errors.Is(err, donation.ErrConflict) {
			t.Errorf("a refill decided on an older generation: %v", err)
		}
		now := r.get(rec.ID)
		time.Sleep(time.Minute)
		err := errors.Join(r.svc.Refill(t.Context(), now), r.svc.Ready(t.Context(), now.ID, now.Spawn.ID))
		after := r.get(rec.ID)
		if err != nil || after.Attempts != 0 || !after.LastAttempt.IsZero() || !after.UpdatedAt.Equal(rec.UpdatedAt) || !after.Spawn.ReadyAt.Equal(time.Now()) {
			t.Errorf("the record is %+v, ready at %s, %v", after.Donation, after.Spawn.ReadyAt, err)
		}
	})
}
