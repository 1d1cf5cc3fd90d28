// This file tests what outlives a daemon: passes that were cut short, deaths and intentions that nobody was
// there for, and a thousand nodes at once.

package supervisor

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestS23_APassThatWasCutShortIsPickedUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var ids []donation.ID
		for range 40 {
			ids = append(ids, r.donate("node").ID)
		}
		r.pass(time.Second)
		r.guard.startTime = time.Second
		for _, id := range ids {
			r.guard.die(id)
		}
		r.pass(1500 * time.Millisecond) // in the middle of the second of three rounds
		r.close()
		done := len(r.guard.started) - len(ids)
		want(t, "respawned before the stop", done, r.opts.Concurrency)
		time.Sleep(time.Minute)
		want(t, "respawned after the stop", len(r.guard.started)-len(ids), done)
		r.start()
		r.pass(time.Minute)
		for _, id := range ids {
			want(t, "attempts", r.wantRuns(id).Attempts, 1)
			want(t, "spawns", len(r.spawns(id)), 2)
			want(t, "starts", len(r.guard.startsOf(id)), 2)
		}
	})
}

func TestS24_AThousandDeadDonationsAreRespawnedOnceEach(t *testing.T) {
	t.Parallel()
	const n = 1000
	machine(t, func(t *testing.T, r *rig) {
		r.open()
		ids := make([]donation.ID, n)
		var wg sync.WaitGroup
		for i := range ids {
			ids[i] = donation.NewID()
			wg.Go(func() {
				rec, err := r.db.Create(t.Context(), donation.NewDonation{
					ID: ids[i], Request: donation.Request{Template: "node"},
					Spawn: donation.NewSpawn{ID: donation.NewSpawnID(), SeedToken: donation.NewSeedToken(), StartupToken: donation.NewStartupToken(), Guard: "guard-1"},
				})
				if err != nil {
					t.Error(err)
					return
				}
				r.guard.appear(donation.LaunchOf(rec))
				p := r.guard.Observe(rec.ID).Processes[0]
				if err := r.db.SpawnStarted(t.Context(), p.Spawn, p.Identity, p.StartedAt, donation.Seeded); err != nil {
					t.Error(err)
				}
				r.guard.die(rec.ID)
			})
		}
		wg.Wait()
		r.guard.startTime = 100 * time.Millisecond
		begun := time.Now()
		r.start()
		r.sup.Sweep()
		rounds := time.Duration((n + r.opts.Concurrency - 1) / r.opts.Concurrency)
		r.pass(rounds * r.guard.startTime)
		want(t, "started at once", r.guard.maxAtOnce, r.opts.Concurrency)
		for _, id := range ids {
			want(t, "attempts", r.wantRuns(id).Attempts, 1)
			at := r.guard.startsOf(id)
			if len(at) != 2 || at[1].Sub(begun) > rounds*r.guard.startTime {
				t.Fatalf("%s was started at %v", id, at)
			}
		}
	})
}

func TestS26_ARestartIsNoCrash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		before := r.exhaust(id)
		r.pass(time.Minute)
		if _, err := r.svc.Restart(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		r.pass(time.Second)
		rec := r.wantRuns(id)
		want(t, "attempts", rec.Attempts, before.Attempts)
		want(t, "last attempt", rec.LastAttempt, before.LastAttempt)
		want(t, "updated_at", rec.UpdatedAt, before.UpdatedAt)
		want(t, "time to the respawn", rec.Spawn.StartedAt.Sub(asked), r.guard.grace)
		want(t, "stops", fmt.Sprint(r.guard.stopsOf(id)), "[restart]")
		all := r.spawns(id)
		want(t, "reason on record", all[len(all)-2].Exit.Reason, donation.ReasonRestart)
	})
}

// TestS28 holds what is on record and not done when the daemon is gone.
func TestS28_WhatWasIntendedIsDoneByTheNextDaemon(t *testing.T) {
	terminate := func(r *rig, id donation.ID) error {
		_, err := r.db.Terminate(r.t.Context(), id)
		return err
	}
	restart := func(r *rig, id donation.ID) error {
		return r.db.IntendStop(r.t.Context(), r.get(id).Spawn.ID, donation.ReasonRestart)
	}
	fail := func(r *rig, id donation.ID) error {
		return r.db.Fail(r.t.Context(), id, donation.Supervised, 0, "it broke", false)
	}
	nothing := func(*rig, donation.ID) {}
	for _, tt := range []struct {
		name      string
		intend    func(*rig, donation.ID) error
		meanwhile func(*rig, donation.ID)
		stops     string
		respawned bool
	}{
		{"a terminate, and it lives", terminate, nothing, "[terminate]", false},
		{"a terminate, and it has died", terminate, func(r *rig, id donation.ID) { r.guard.die(id) }, "[]", false},
		{"a terminate, and the guard was lost with it", terminate, func(r *rig, _ donation.ID) { r.guard.replace(killed) }, "[]", false},
		{"a terminate, and a reboot", terminate, func(r *rig, _ donation.ID) { r.guard.replace(rebooted) }, "[]", false},
		{"an error, and it lives", fail, nothing, "[abandoned]", false},
		{"a restart, and it lives", restart, nothing, "[restart]", true},
		{"a restart, and it has died", restart, func(r *rig, id donation.ID) { r.guard.die(id) }, "[]", true},
		{"a restart, and the guard was lost with it", restart, func(r *rig, _ donation.ID) { r.guard.replace(killed) }, "[]", true},
		{"a restart, and the guard was replaced", restart, func(r *rig, _ donation.ID) { r.guard.replace(adopted) }, "[restart]", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.donate("node").ID
				r.pass(time.Second)
				r.crash()
				r.open()
				if err := tt.intend(r, id); err != nil {
					t.Fatal(err)
				}
				tt.meanwhile(r, id)
				r.start()
				r.pass(time.Second)
				want(t, "stops", fmt.Sprint(r.guard.stopsOf(id)), tt.stops)
				want(t, "attempts", r.get(id).Attempts, 0)
				if tt.respawned {
					r.wantRuns(id)
					return
				}
				rec := r.wantDown(id)
				want(t, "workdir or ports left", rec.HasWorkdir || r.guard.workdirs[id] || len(rec.Ports) > 0, false)
				want(t, "spawn has ended on record", rec.Spawn.State.Ended(), true)
				want(t, "processes that the guard remembers", len(r.guard.Observe(id).Processes), 0)
			})
		})
	}
}

// TestS28_AStartThatCameLateIsStoppedByTheNextDaemon: its record is settled, so only the guard's list shows it.
func TestS28_AStartThatCameLateIsStoppedByTheNextDaemon(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.donate("node")
		if _, err := r.svc.Terminate(t.Context(), rec.ID, false); err != nil {
			t.Fatal(err)
		}
		r.close()
		r.guard.appear(donation.LaunchOf(rec))
		r.start()
		r.pass(time.Second)
		after := r.wantDown(rec.ID)
		want(t, "status", after.Status, donation.Terminated)
		want(t, "workdir left", r.guard.workdirs[rec.ID], false)
		want(t, "processes that the guard remembers", len(r.guard.Observe(rec.ID).Processes), 0)
	})
}

// TestS28_AnExitOfASettledRecordIsAcknowledged: the daemon died between the record and the acknowledgement.
func TestS28_AnExitOfASettledRecordIsAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.life.once("before Ack", r.life.kill)
		go func(svc *donation.Service) { _, _ = svc.Terminate(t.Context(), id, false) }(r.svc)
		r.pass(time.Second)
		r.crash()
		want(t, "exits that are not acknowledged", len(r.guard.Observe(id).Processes), 1)
		r.start()
		want(t, "exits that are not acknowledged", len(r.guard.Observe(id).Processes), 0)
		want(t, "status", r.wantDown(id).Status, donation.Terminated)
	})
}

// TestP03_AnUnseenDeathIsOnlyAssumedOnceItIsOne: a node that lives without its guard is never doubled.
func TestP03_ANodeThatTheGuardDoesntKnowIsNeverDoubled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.donate("node")
		r.guard.replace(orphaned)
		r.pass(3 * sweepInterval)
		want(t, "alive", fmt.Sprint(r.guard.livingOf(rec.ID)), fmt.Sprint([]donation.SpawnID{rec.Spawn.ID}))
		want(t, "attempts", r.get(rec.ID).Attempts, 0)
		pid := rec.Spawn.Identity.PID
		want(t, "hold", r.sup.Hold(rec.ID), fmt.Sprintf("process %d is alive but the guard doesn't know it; kill %d and the node comes back", pid, pid))
		r.guard.killOrphans()
		r.pass(sweepInterval)
		want(t, "attempts", r.wantRuns(rec.ID).Attempts, 1)
		want(t, "reason on record", r.spawns(rec.ID)[0].Exit.Reason, donation.ReasonGuardLost)
		want(t, "doubled", len(r.guard.violations), 0)
	})
}

func TestP03_AGuardThatIsReplacedChargesNothing(t *testing.T) {
	for _, l := range []loss{adopted, rebooted} {
		t.Run(string(l), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.donate("node").ID
				r.guard.disconnect()
				r.pass(time.Minute)
				r.guard.replace(l)
				synctest.Wait()
				want(t, "attempts", r.wantRuns(id).Attempts, 0)
			})
		})
	}
}
