// This file tests what an admin asks for: terminate, restart, retry.

package donation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

var crash = donation.Exit{Reason: donation.ReasonCrash, Known: true, Code: 3}

// within returns a context that ends after d.
func (r *rig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	r.Cleanup(cancel)
	return ctx
}

func TestD16_TerminateWaitsUntilAllIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supervise()
		r.guard.set(func(g *fakeGuard) { g.stubborn = true })
		rec := r.provision("plain")
		first := async(func() (donation.Record, error) { return r.svc.Terminate(t.Context(), rec.ID, false) })
		second := async(func() (donation.Record, error) { return r.svc.Terminate(t.Context(), rec.ID, false) })
		r.pending("terminate", first)
		r.pending("the other terminate", second)
		// Committed before the signal, and the signal says why.
		r.wantStatus(rec.ID, donation.Terminated)
		wantSame(t, "the first stop", r.guard.stopped()[0], stopCall{rec.Spawn.ID, donation.ReasonTerminate, false})

		r.guard.die(rec.Spawn.ID, donation.Exit{Reason: donation.ReasonTerminate, Known: true, Signal: 9})
		for _, done := range []<-chan result{first, second} {
			got := <-done
			if got.err != nil || got.rec.Status != donation.Terminated || got.rec.HasWorkdir {
				t.Errorf("terminate: %+v, %v", got.rec.Donation, got.err)
			}
		}
		synctest.Wait()
		r.wantNothingLeft(rec.ID)
		wantSame(t, "the exit", r.get(rec.ID).Spawn.Exit.Reason, donation.ReasonTerminate)

		// The next one is a quiet no-op: nothing is written, nothing stopped.
		before, stops := r.get(rec.ID), len(r.guard.stopped())
		seq, _ := r.store.LastSeq(t.Context())
		if _, err := r.svc.Terminate(t.Context(), rec.ID, true); err != nil {
			t.Errorf("once more: %v", err)
		}
		after, _ := r.store.LastSeq(t.Context())
		if after != seq || r.get(rec.ID).UpdatedAt != before.UpdatedAt || len(r.guard.stopped()) != stops {
			t.Errorf("once more: events %d, then %d; stops %d, then %d", seq, after, stops, len(r.guard.stopped()))
		}
	})
}

func TestD16_TerminateFromEveryStatus(t *testing.T) {
	for name, prepare := range map[string]func(r *rig) donation.Record{
		"seeded":        func(r *rig) donation.Record { return r.provision("plain") },
		"awaiting seed": func(r *rig) donation.Record { return r.provision("seedy") },
		"failed start": func(r *rig) donation.Record {
			r.guard.next(refuse("no"))
			rec, _ := r.svc.Provision(r.Context(), donation.Request{Template: "plain"})
			return rec
		},
		"given up": func(r *rig) donation.Record { return r.giveUp(r.provision("plain")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				rec := prepare(r)
				synctest.Wait()
				r.supervise()
				got, err := r.svc.Terminate(r.within(time.Minute), rec.ID, false)
				if err != nil || got.Status != donation.Terminated || got.GaveUp {
					t.Errorf("terminate: %+v, %v", got.Donation, err)
				}
				r.wantNothingLeft(rec.ID)
			})
		})
	}
	inBubble(t, func(t *testing.T, r *rig) {
		_, err := r.svc.Terminate(t.Context(), "don_nonsense", false)
		wantCode(t, err, donation.CodeNotFound, "don_nonsense")
	})
}

func TestD16_TerminateSaysLoudlyWhatIsStillThere(t *testing.T) {
	for name, c := range map[string]struct {
		guard func(g *fakeGuard)
		force bool
		words []string
	}{
		"stopping":      {func(g *fakeGuard) { g.stubborn = true }, false, []string{"process 1001", "still stopping", "--force"}},
		"kill fails":    {func(g *fakeGuard) { g.immortal = true }, true, []string{"kill sent to process 1001", "still alive since 2000-01-01T"}},
		"workdir stays": {func(g *fakeGuard) { g.reclaimErr = errors.New("device busy") }, false, []string{"workdir"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.supervise()
				rec := r.provision("plain")
				r.guard.set(c.guard)
				begin := time.Now()
				_, err := r.svc.Terminate(r.within(30*time.Second), rec.ID, c.force)
				wantCode(t, err, donation.CodeStillStopping, append(c.words, string(rec.ID), "ended on record")...)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 30*time.Second {
					t.Errorf("after %s: %v", time.Since(begin), errors.Unwrap(err))
				}
				r.wantStatus(rec.ID, donation.Terminated)
			})
		})
	}
	t.Run("guard away", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			r.supervise()
			rec := r.provision("plain")
			r.guard.set(func(g *fakeGuard) { g.away = true })
			_, err := r.svc.Terminate(r.within(time.Second), rec.ID, false)
			wantCode(t, err, donation.CodeStillStopping, "guard can't be reached")
			r.guard.set(func(g *fakeGuard) { g.away = false })
			r.touch(rec.ID) // what a new connection does
			if _, err := r.svc.Terminate(r.within(time.Second), rec.ID, false); err != nil {
				t.Error(err)
			}
			r.wantNothingLeft(rec.ID)
		})
	})
}

func TestP05_ForceKillsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supervise()
		r.guard.set(func(g *fakeGuard) { g.stubborn = true })
		rec := r.provision("plain")
		orderly := async(func() (donation.Record, error) { return r.svc.Terminate(t.Context(), rec.ID, false) })
		r.pending("an orderly terminate", orderly)
		// In the middle of that one's grace:
		if _, err := r.svc.Terminate(t.Context(), rec.ID, true); err != nil {
			t.Fatal(err)
		}
		if got := <-orderly; got.err != nil {
			t.Errorf("the orderly one: %v", got.err)
		}
		stops := r.guard.stopped()
		wantSame(t, "the last stop", stops[len(stops)-1], stopCall{rec.Spawn.ID, donation.ReasonTerminate, true})
		r.wantNothingLeft(rec.ID)
	})
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("plain")
		lost := &lossyGuard{fakeGuard: r.guard}
		svc := donation.NewService(r.store, lost, donation.Options{Dirty: r.touch, SettleInterval: settleInterval})
		defer svc.Close()
		_, err := svc.Terminate(t.Context(), rec.ID, true)
		wantCode(t, err, donation.CodeUnavailable, "ended on record", "could not be killed")
		r.wantStatus(rec.ID, donation.Terminated)
	})
}

// lossyGuard is one whose connection breaks with every stop.
type lossyGuard struct{ *fakeGuard }

func (*lossyGuard) Stop(context.Context, donation.SpawnID, donation.Reason, bool) error {
	return donation.ErrDisconnected
}

func TestD17_TerminateWithoutAProcessReturnsAtOnce(t *testing.T) {
	for name, prepare := range map[string]func(r *rig, rec donation.Record){
		"in backoff": func(r *rig, rec donation.Record) {
			r.guard.die(rec.Spawn.ID, crash)
			if err := r.svc.Settle(r.Context(), rec.ID, rec.Spawn.ID, donation.SpawnExited, crash); err != nil {
				r.Fatal(err)
			}
		},
		"died just now": func(r *rig, rec donation.Record) { r.guard.die(rec.Spawn.ID, crash) },
		"a respawn was refused": func(r *rig, rec donation.Record) {
			r.guard.die(rec.Spawn.ID, crash)
			r.guard.next(refuse("no such file"))
			exit := crash
			if err := r.svc.Respawn(r.Context(), rec, &exit, true); err != nil {
				r.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				rec := r.provision("plain")
				prepare(r, rec)
				r.supervise()
				starts, begin := len(r.guard.sent()), time.Now()
				if _, err := r.svc.Terminate(t.Context(), rec.ID, false); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(begin); waited != 0 {
					t.Errorf("it waited %s", waited)
				}
				r.wantNothingLeft(rec.ID)
				time.Sleep(time.Hour)
				wantSame(t, "the starts since", len(r.guard.sent())-starts, 0)
			})
		})
	}
}

func TestS26_RestartIsNoCrash(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("plain")
		time.Sleep(time.Minute)
		r.supervise()
		if _, err := r.svc.Restart(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantSame(t, "the stops", r.guard.stopped(), []stopCall{{rec.Spawn.ID, donation.ReasonRestart, false}})
		now := r.wantStatus(rec.ID, donation.Seeded)
		if now.Generation != 2 || now.Spawn.State != donation.SpawnRunning || now.Spawn.ID == rec.Spawn.ID {
			t.Errorf("the spawn is %+v", *now.Spawn)
		}
		if now.Attempts != 0 || !now.LastAttempt.IsZero() || !now.UpdatedAt.Equal(rec.UpdatedAt) {
			t.Errorf("attempts %d, updated at %s, before %s", now.Attempts, now.UpdatedAt, rec.UpdatedAt)
		}
		wantSame(t, "the ports", now.Ports, rec.Ports)
		spawns, err := r.store.Spawns(t.Context(), rec.ID, 0)
		if err != nil || spawns[1].Exit.Reason != donation.ReasonRestart {
			t.Errorf("the old spawn is %+v, %v", spawns[1], err)
		}
	})
}

func TestS26_RestartIsOnRecordBeforeTheSignal(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("plain")
		r.guard.set(func(g *fakeGuard) { g.away = true })
		_, err := r.svc.Restart(t.Context(), rec.ID)
		wantCode(t, err, donation.CodeUnavailable, "on record")
		wantSame(t, "the intention", r.get(rec.ID).Spawn.StopReason, donation.ReasonRestart)
		if !r.wasDirty(rec.ID) {
			t.Error("nobody will send the signal again")
		}
		r.guard.set(func(g *fakeGuard) { g.away = false })
		r.supervise()
		r.settle(rec.ID)
		synctest.Wait()
		if now := r.get(rec.ID); now.Generation != 2 || now.Spawn.State != donation.SpawnRunning || now.Attempts != 0 {
			t.Errorf("afterwards: %+v, spawn %+v", now.Donation, *now.Spawn)
		}
	})
}

func TestS26_RestartNeedsARunningNode(t *testing.T) {
	for name, prepare := range map[string]func(r *rig, rec donation.Record){
		"terminated": func(r *rig, rec donation.Record) { _, _ = r.store.Terminate(r.Context(), rec.ID) },
		"given up":   func(r *rig, rec donation.Record) { r.giveUp(rec) },
		"in backoff": func(r *rig, rec donation.Record) {
			r.guard.die(rec.Spawn.ID, crash)
			_ = r.svc.Settle(r.Context(), rec.ID, rec.Spawn.ID, donation.SpawnExited, crash)
		},
		"dies meanwhile": func(r *rig, rec donation.Record) {
			r.store.fail("IntendStop", func() error {
				return r.store.SpawnEnded(r.Context(), rec.Spawn.ID, donation.SpawnExited, crash)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				rec := r.provision("plain")
				prepare(r, rec)
				stops := len(r.guard.stopped())
				_, err := r.svc.Restart(t.Context(), rec.ID)
				wantCode(t, err, donation.CodeInvalidState, string(rec.ID))
				wantSame(t, "the stops", len(r.guard.stopped()), stops)
			})
		})
	}
}

// giveUp ends a donation with a give-up, its node dead.
func (r *rig) giveUp(rec donation.Record) donation.Record {
	r.Helper()
	r.guard.die(rec.Spawn.ID, crash)
	err := errors.Join(
		r.svc.Settle(r.Context(), rec.ID, rec.Spawn.ID, donation.SpawnExited, crash),
		r.svc.GiveUp(r.Context(), rec, "respawn gave up after 5 attempts: exit status 3"),
	)
	if err != nil {
		r.Fatal(err)
	}
	return r.get(rec.ID)
}

func TestS27_RetryRevivesAGiveUpOnly(t *testing.T) {
	for template, status := range map[string]donation.Status{"plain": donation.Seeded, "seedy": donation.AwaitingSeed} {
		inBubble(t, func(t *testing.T, r *rig) {
			rec := r.giveUp(r.provision(template))
			if rec.Status != donation.Failed || !rec.GaveUp || !rec.HasWorkdir || r.guard.left(rec.ID) != "workdir" {
				t.Errorf("given up: %+v, left %q", rec.Donation, r.guard.left(rec.ID))
			}
			r.supervise()
			got, err := r.svc.Retry(t.Context(), rec.ID)
			if err != nil || got.Status != status || got.Attempts != 0 || got.GaveUp {
				t.Errorf("retry: %+v, %v", got.Donation, err)
			}
			synctest.Wait()
			now := r.wantStatus(rec.ID, status)
			if now.Spawn.State != donation.SpawnRunning || now.Generation != 2 {
				t.Errorf("afterwards the spawn is %+v", *now.Spawn)
			}
			wantSame(t, "the ports", now.Ports, rec.Ports)
		})
	}
	inBubble(t, func(t *testing.T, r *rig) {
		r.guard.next(refuse("no"))
		failed, _ := r.svc.Provision(t.Context(), donation.Request{Template: "plain"})
		_, err := r.svc.Retry(t.Context(), failed.ID)
		wantCode(t, err, donation.CodeInvalidState, string(failed.ID))
		rec := r.provision("plain")
		if _, err := r.store.Terminate(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		_, err = r.svc.Retry(t.Context(), rec.ID)
		wantCode(t, err, donation.CodeInvalidState, string(rec.ID))
		wantSame(t, "the starts", len(r.guard.sent()), 2)
	})
}

func TestRetryHurriesASupervisedDonation(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("plain")
		got, err := r.svc.Retry(t.Context(), rec.ID)
		if err != nil || !got.RetryNow || got.Status != donation.Seeded || !r.wasDirty(rec.ID) {
			t.Errorf("retry: %+v, %v", got.Donation, err)
		}
	})
}
