// This file tests what the supervisor keeps its hands off, and what it can't do anything about.

package supervisor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// everyTrigger does all that makes a donation dirty, a restart of the daemon and of the guard included.
func (r *rig) everyTrigger(id donation.ID) {
	r.t.Helper()
	r.sup.Add(id)
	r.sup.Sweep()
	r.pass(2 * sweepInterval)
	r.guard.disconnect()
	r.pass(time.Second)
	r.guard.connect()
	r.pass(time.Second)
	r.restart()
	r.guard.replace(adopted)
	r.pass(time.Hour)
	r.guard.replace(rebooted)
	r.pass(time.Hour)
}

func TestS04_WhatHasEndedNeverComesBack(t *testing.T) {
	for name, end := range map[string]func(r *rig, id donation.ID){
		"terminated": func(r *rig, id donation.ID) {
			if _, err := r.svc.Terminate(r.t.Context(), id, false); err != nil {
				r.t.Fatal(err)
			}
		},
		"terminated while it waited": func(r *rig, id donation.ID) {
			r.die(id)
			r.die(id)
			if _, err := r.svc.Terminate(r.t.Context(), id, false); err != nil {
				r.t.Fatal(err)
			}
		},
		"terminated and killed": func(r *rig, id donation.ID) {
			if _, err := r.svc.Terminate(r.t.Context(), id, true); err != nil {
				r.t.Fatal(err)
			}
		},
		"given up": func(r *rig, id donation.ID) { r.giveUp(id) },
		"failed": func(r *rig, id donation.ID) {
			if err := r.db.Fail(r.t.Context(), id, donation.Supervised, 0, "it broke", false); err != nil {
				r.t.Fatal(err)
			}
			r.sup.Add(id)
			r.pass(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.donate("node").ID
				end(r, id)
				before, starts := r.wantDown(id), len(r.guard.startsOf(id))
				r.everyTrigger(id)
				r.everyTrigger(id)
				after := r.wantDown(id)
				want(t, "starts", len(r.guard.startsOf(id)), starts)
				if diff := cmp.Diff(before, after, cmp.AllowUnexported(donation.Secret{})); diff != "" {
					t.Errorf("the record has changed (-before +after):\n%s", diff)
				}
			})
		})
	}
}

func TestS05_AProvisionInFlightOwnsItsDonation(t *testing.T) {
	for _, v := range []verdict{hangs, answerLost} {
		t.Run(string(v), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var id donation.ID
				r.life.at(func(point, donor string) error {
					if point == "before Start" && id == "" {
						id = donation.ID(donor)
						r.guard.will(id, v)
					}
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { _, err := r.svc.Provision(ctx, donation.Request{Template: "node"}); done <- err }()
				synctest.Wait()
				before := r.get(id)
				want(t, "status", before.Status, donation.Provisioning)
				for range 10 {
					r.sup.Add(id)
					r.sup.Sweep()
					synctest.Wait()
				}
				after := r.get(id)
				if diff := cmp.Diff(before, after, cmp.AllowUnexported(donation.Secret{})); diff != "" {
					t.Errorf("the supervisor has touched it (-before +after):\n%s", diff)
				}
				want(t, "stops", len(r.guard.stopsOf(id)), 0)
				cancel()
				<-done
			})
		})
	}
}

// abandonedProvision returns a donation whose daemon died at that point of its provision.
func (r *rig) abandonedProvision(point string) (id donation.ID) {
	r.life.at(func(p, donor string) error {
		if p == point {
			id = donation.ID(donor)
			r.life.kill()
		}
		return nil
	})
	r.ask(func(ctx context.Context) { _, _ = r.svc.Provision(ctx, donation.Request{Template: "node"}) })
	synctest.Wait()
	r.crash()
	return id
}

func TestP13_AProvisionThatItsDaemonDidNotOutliveIsTakenUp(t *testing.T) {
	for _, point := range []string{"before Start", "after Start"} {
		t.Run(point, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.abandonedProvision(point)
				r.start()
				rec := r.wantRuns(id)
				want(t, "status", rec.Status, donation.Seeded)
				want(t, "generation", rec.Generation, 1)
				want(t, "attempts", rec.Attempts, 0)
			})
		})
	}
}

// TestS05_AStaleProvisionIsEndedByTheReap: it is too old to be taken up, with or without a process.
func TestS05_AStaleProvisionIsEndedByTheReap(t *testing.T) {
	for _, point := range []string{"before Start", "after Start"} {
		t.Run(point, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.abandonedProvision(point)
				time.Sleep(5 * time.Minute)
				r.start()
				r.pass(time.Second)
				rec := r.wantDown(id)
				want(t, "status", rec.Status, donation.Failed)
				want(t, "message", rec.Message, "stuck in provisioning for more than 5m0s; donate again")
				want(t, "workdir left", rec.HasWorkdir || r.guard.workdirs[id], false)
				want(t, "ports left", len(rec.Ports), 0)
				want(t, "starts after that", len(r.guard.startsOf(id)) < 2, true)
			})
		})
	}
}

func TestS06_ARecordThatNeverHadASpawnIsSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		if _, err := r.svc.Terminate(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		r.damage(`UPDATE donations SET status = 'seeded'`)
		r.damage(`DELETE FROM spawns`)
		other := r.donate("node").ID
		r.die(other)
		r.everyTrigger(id)
		rec := r.wantDown(id)
		if rec.Spawn != nil || rec.Status != donation.Seeded || rec.Attempts != 0 {
			t.Errorf("it was touched: %+v", rec)
		}
		r.wantRuns(other)
	})
}

func TestS07_ARecordWithoutInputsIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bad, good := r.donate("node").ID, r.donate("node").ID
		r.damage(`UPDATE donations SET inputs = '{' WHERE id = ?`, bad)
		r.die(bad)
		r.pass(3 * sweepInterval)
		rec := r.wantDown(bad)
		want(t, "attempts", rec.Attempts, 0)
		want(t, "spawn", rec.Spawn.State, donation.SpawnExited)
		if why := r.sup.Hold(bad); !strings.HasPrefix(why, "not respawnable: ") {
			t.Errorf("hold = %q, want it to say not respawnable", why)
		}
		want(t, "warnings", r.logs.FilterMessage("on hold").Len(), 1)
		r.die(good)
		r.wantRuns(good)
		if _, err := r.svc.Terminate(t.Context(), bad, false); err != nil {
			t.Fatal(err)
		}
		want(t, "hold once it is terminated", r.sup.Hold(bad), "")
	})
}

func TestS22_AStrangersProcessIsNoneOfItsBusiness(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		own := donation.Launch{Donation: "don_own", Spawn: donation.Spawn{ID: "spn_own", Donation: "don_own"}}
		r.guard.appear(own)
		r.sup.Sweep()
		r.pass(2 * sweepInterval)
		want(t, "alive", fmt.Sprint(r.guard.livingOf("don_own")), "[spn_own]")
		r.die("don_own")
		r.pass(2 * sweepInterval)
		want(t, "stops", len(r.guard.stopped), 0)
		want(t, "acknowledged exits", len(r.guard.acked), 0)
		want(t, "starts", len(r.guard.started), 1)
		want(t, "errors", r.logs.Len(), 0)
	})
}

func TestS29_ATemplateThatIsGoneChargesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.guard.mu.Lock()
		plan := r.guard.plans["node"]
		delete(r.guard.plans, "node")
		r.guard.mu.Unlock()
		r.pass(2 * sweepInterval)
		r.wantRuns(id)
		r.die(id)
		r.pass(3 * sweepInterval)
		rec := r.wantDown(id)
		want(t, "attempts", rec.Attempts, 0)
		want(t, "status", rec.Status, donation.Seeded)
		want(t, "spawn", rec.Spawn.State, donation.SpawnExited) // the death is on record
		want(t, "hold", r.sup.Hold(id), `not respawnable: template "node" isn't configured`)
		want(t, "warnings", r.logs.FilterMessage("on hold").Len(), 1)

		r.guard.mu.Lock()
		r.guard.plans["node"] = plan
		r.guard.mu.Unlock()
		r.sup.Sweep() // as a reload of the configuration does
		synctest.Wait()
		want(t, "attempts", r.wantRuns(id).Attempts, 1)
		want(t, "hold", r.sup.Hold(id), "")
	})
}
