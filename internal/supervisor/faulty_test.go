// This file tests the supervisor with a store that fails, and with records that can't be read.

package supervisor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestS18_AStoreThatCantBeReadIsOneErrorAndTheNextTriggerTriesAgain(t *testing.T) {
	machine(t, func(t *testing.T, r *rig) {
		r.start()
		dead, running := r.donate("node").ID, r.donate("node").ID
		r.pass(time.Second)
		r.close()
		r.guard.lose(dead)
		r.open()
		r.life.failNext("List", 3, errStore) // the look for provisions to take up, the reap and the first sweep
		r.start()
		r.pass(sweepInterval - time.Second)
		want(t, "sweeps that were reported", r.logs.FilterMessage("sweep incomplete").Len(), 1)
		want(t, "starts", len(r.guard.startsOf(dead)), 1)
		r.pass(time.Second)
		want(t, "attempts", r.wantRuns(dead).Attempts, 1)
		want(t, "starts of the other", len(r.guard.startsOf(running)), 1)
		want(t, "stops", len(r.guard.stopped), 0)
	})
}

func TestS18_ManyFailuresAreOneError(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var ids []donation.ID
		for range 30 {
			ids = append(ids, r.donate("node").ID)
		}
		r.life.failNext("Get", 1<<30, errStore)
		for _, id := range ids {
			r.guard.die(id)
		}
		synctest.Wait()
		want(t, "errors", r.logs.FilterMessage("reconcile failed").Len(), 1)
		r.life.at(nil)
		r.pass(settle)
		for _, id := range ids {
			want(t, "attempts", r.wantRuns(id).Attempts, 1)
		}
		want(t, "errors", r.logs.FilterMessage("reconcile failed").Len(), 1)
	})
}

func TestThrottleCountsWhatItKeepsBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		th := newThrottle(time.Second, zap.New(r.opts.Log.Core()))
		for range 5 {
			th.error("don_1", errStore)
		}
		r.pass(time.Second)
		th.error("don_2", errStore)
		got := r.logs.FilterMessage("reconcile failed").All()
		if len(got) != 2 {
			t.Fatalf("%d errors, want 2", len(got))
		}
		want(t, "others", fmt.Sprint(got[1].ContextMap()["others"]), "4")
	})
}

// TestS18_EveryWriteMayFail: whichever write fails, once or often, the node comes back and costs one attempt.
func TestS18_EveryWriteMayFail(t *testing.T) {
	for _, op := range []string{"Get", "BeginRespawn", "Start", "SpawnStarted", "Ack", "SpawnReady"} {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+op, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					id := r.donate("node").ID
					r.pass(time.Second)
					left := 3
					r.life.at(func(point, _ string) error {
						if point != when+" "+op || left == 0 {
							return nil
						}
						left--
						return errStore
					})
					r.die(id)
					r.pass(5 * time.Second)
					rec := r.wantRuns(id)
					want(t, "attempts", rec.Attempts, 1)
					want(t, "spawns", len(r.spawns(id)), 2)
					want(t, "ready", rec.Spawn.ReadyAt.IsZero(), false)
					want(t, "exits that are not acknowledged", len(r.guard.Observe(id).Processes), 1)
				})
			})
		}
	}
}

// TestAContradictionIsNoBusyLoop: the record never is what it was read as.
func TestAContradictionIsNoBusyLoop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		tries := 0
		r.life.at(func(point, _ string) error {
			if point == "before BeginRespawn" {
				tries++
				return donation.ErrConflict
			}
			return nil
		})
		r.die(id)
		want(t, "tries", tries, maxSteps)
		want(t, "errors", r.logs.FilterMessage("reconcile does not come to rest").Len(), 1)
		r.life.at(nil)
		r.pass(settle)
		want(t, "attempts", r.wantRuns(id).Attempts, 1)
	})
}

func TestS19_OneBadRecordDoesntKeepTheOthers(t *testing.T) {
	machine(t, func(t *testing.T, r *rig) {
		r.start()
		var ids []donation.ID
		for range 5 {
			ids = append(ids, r.donate("node").ID)
		}
		bad := ids[2]
		r.pass(time.Second)
		r.close()
		for _, id := range ids {
			r.guard.die(id)
		}
		r.open()
		r.damage(`UPDATE donations SET status = 'odd' WHERE id = ?`, bad)
		r.start()
		r.pass(3 * sweepInterval)
		for _, id := range ids {
			if id == bad {
				want(t, "starts of the bad one", len(r.guard.startsOf(id)), 1)
				continue
			}
			want(t, "attempts", r.wantRuns(id).Attempts, 1)
		}
		if r.logs.FilterMessage("reconcile failed").Len() == 0 {
			t.Error("nothing tells of the bad record")
		}
	})
}
