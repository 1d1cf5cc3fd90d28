// This file tests the end of patience: when a donation is given up, what that leaves, and how it is revived.

package supervisor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestS11_GivenUpWhenTheLastAttemptCouldNotBeStarted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.guard.will(id, refused, refused, refused, refused, refused)
		died := time.Now()
		r.die(id)
		r.pass(151 * time.Second)
		rec := r.wantDown(id)
		want(t, "status", rec.Status, donation.Failed)
		want(t, "message", rec.Message, "respawn gave up after 5 attempts: did not start: exec node: no such file or directory")
		want(t, "attempts", rec.Attempts, 5)
		at := append([]time.Time{died}, r.guard.refusalsOf(id)...)
		want(t, "gaps", gaps(at), "[0s 10s 20s 40s 1m20s]")
	})
}

func TestS12_GivenUpWhenTheLastAttemptDied(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.exhaust(id)
		r.pass(9 * time.Minute) // not long enough to be forgiven
		r.die(id)
		rec := r.wantDown(id)
		want(t, "status", rec.Status, donation.Failed)
		want(t, "message", rec.Message, "respawn gave up after 5 attempts: the node did not stay running (last exit: exit status 3)")
		want(t, "starts", len(r.guard.startsOf(id)), 6)
	})
}

// TestF16_NoStartAfterTheLast: six starts, at the documented moments, and not one more.
func TestF16_NoStartAfterTheLast(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.guard.will(id, diesAtOnce, diesAtOnce, diesAtOnce, diesAtOnce, diesAtOnce)
		r.die(id)
		r.pass(time.Hour)
		want(t, "status", r.wantDown(id).Status, donation.Failed)
		want(t, "gaps", gaps(r.guard.startsOf(id)), "[0s 10s 20s 40s 1m20s]")
		r.restart()
		r.pass(time.Hour)
		want(t, "starts", len(r.guard.startsOf(id)), 6)
	})
}

func TestS13_AGiveUpKeepsWhatARetryNeeds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		before := r.donate("node")
		rec := r.giveUp(before.ID)
		r.pass(time.Hour)
		rec = r.get(rec.ID)
		want(t, "has a workdir", rec.HasWorkdir && r.guard.workdirs[rec.ID], true)
		if diff := cmp.Diff(before.Ports, rec.Ports); diff != "" {
			t.Errorf("ports (-before +after):\n%s", diff)
		}
		want(t, "counts against the quota", rec.Status.IsLive(), false)
		rec, err := r.svc.Terminate(t.Context(), rec.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "workdir after a terminate", rec.HasWorkdir || r.guard.workdirs[rec.ID], false)
		want(t, "ports after a terminate", len(rec.Ports), 0)
	})
}

// TestS13_WhatStillRunsIsStoppedAfterTheRecord: a give-up finds nothing alive but for a start that came late.
func TestS13_WhatStillRunsIsStoppedAfterTheRecord(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		rec := r.giveUp(id)
		var statusAtStop donation.Status
		r.life.once("before Stop", func() { statusAtStop = r.get(id).Status })
		r.guard.appear(donation.LaunchOf(rec))
		r.pass(time.Second)
		want(t, "stops", fmt.Sprint(r.guard.stopsOf(id)), "[give-up]")
		want(t, "status on record at the stop", statusAtStop, donation.Failed)
		rec = r.wantDown(id)
		want(t, "has a workdir", rec.HasWorkdir && r.guard.workdirs[id], true)
		want(t, "processes that the guard remembers", len(r.guard.Observe(id).Processes), 0)
	})
}

func TestS14_AGiveUpYieldsToAnEnding(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.exhaust(id)
		r.life.once("before Fail", func() {
			if _, err := r.db.Terminate(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
		r.die(id)
		r.pass(time.Minute)
		rec := r.wantDown(id)
		want(t, "status", rec.Status, donation.Terminated)
		want(t, "message", rec.Message, "")
		want(t, "gave up", rec.GaveUp, false)
		want(t, "stops", len(r.guard.stopsOf(id)), 0)
		if kinds := r.events(id); slices.Contains(kinds, "donation.error") {
			t.Errorf("events %v tell of a give-up", kinds)
		}
	})
}

func TestS27_RetryRevivesAGiveUp(t *testing.T) {
	for _, template := range []string{"node", "cadre"} {
		t.Run(template, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				before := r.donate(template)
				r.giveUp(before.ID)
				r.pass(time.Hour)
				asked := time.Now()
				rec, err := r.svc.Retry(t.Context(), before.ID)
				if err != nil {
					t.Fatal(err)
				}
				want(t, "attempts", rec.Attempts, 0)
				want(t, "status", rec.Status, before.Status)
				want(t, "message", rec.Message, "")
				synctest.Wait()
				rec = r.wantRuns(before.ID)
				want(t, "time to the respawn", rec.Spawn.StartedAt.Sub(asked), 0)
				if diff := cmp.Diff(before.Ports, rec.Ports); diff != "" {
					t.Errorf("ports (-before +after):\n%s", diff)
				}
			})
		})
	}
}

func TestS27_NoOtherErrorIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		failed, terminated := r.donate("node").ID, r.donate("node").ID
		if err := r.db.Fail(t.Context(), failed, donation.Supervised, 0, "it broke", false); err != nil {
			t.Fatal(err)
		}
		if _, err := r.svc.Terminate(t.Context(), terminated, false); err != nil {
			t.Fatal(err)
		}
		for _, id := range []donation.ID{failed, terminated} {
			_, err := r.svc.Retry(t.Context(), id)
			want(t, "code", donation.CodeOf(err), donation.CodeInvalidState)
			r.sup.Sweep()
			r.pass(time.Hour)
			r.wantDown(id)
		}
	})
}

// TestF21_RetryEndsTheLongestGap: a supervised donation needn't sit out its backoff; its attempts stay.
func TestF21_RetryEndsTheLongestGap(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.donate("node").ID
		r.exhaust(id)
		r.pass(time.Second)
		r.damage(`UPDATE donations SET attempts = 4`) // room for one more
		r.die(id)
		r.pass(time.Second)
		r.wantDown(id)
		asked := time.Now()
		if _, err := r.svc.Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		rec := r.wantRuns(id)
		want(t, "time to the respawn", rec.Spawn.StartedAt.Sub(asked), 0)
		want(t, "attempts", rec.Attempts, 5)
		want(t, "retry is used up", rec.RetryNow, false)
	})
}
