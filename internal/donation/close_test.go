// This file tests the end of the service.

package donation_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestCloseAbandonsWhatIsInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		id, _, done := r.startHeld(t.Context(), nil)
		r.svc.Close()
		r.svc.Close() // the second has nothing left to do
		if r.svc.InFlight(id) {
			t.Error("Close has returned, but the provision is still in flight")
		}
		wantCode(t, (<-done).err, donation.CodeUnavailable, "stopping")
		if rec := r.wantStatus(id, donation.Provisioning); rec.Spawn.State != donation.SpawnStarting {
			t.Errorf("the spawn is %s", rec.Spawn.State)
		}
		wantSame(t, "the stops", len(r.guard.stopped()), 0)
		_, err := r.svc.Provision(t.Context(), donation.Request{Template: "plain"})
		wantCode(t, err, donation.CodeUnavailable, "stopping")
	})
}

func TestCloseRecordsAnAnswerThatHasCome(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		closed := make(chan struct{})
		// The guard has started the node when Close begins; the answer is on its way to the record.
		r.guard.next(func(ctx context.Context, g *fakeGuard, l donation.Launch) (donation.Process, error) {
			go func() { r.svc.Close(); close(closed) }()
			<-ctx.Done()
			return g.begin(l), nil
		})
		rec := r.provision("plain")
		<-closed
		if rec.Status != donation.Seeded || rec.Spawn.State != donation.SpawnRunning {
			t.Errorf("the record is %s, its spawn %s", rec.Status, rec.Spawn.State)
		}
		wantSame(t, "the stops", len(r.guard.stopped()), 0)
	})
}

func TestCloseEndsAWaitingTerminate(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("plain")
		ended := async(func() (donation.Record, error) { return r.svc.Terminate(t.Context(), rec.ID, false) })
		r.pending("terminate", ended)
		r.svc.Close()
		wantCode(t, (<-ended).err, donation.CodeUnavailable, "stopping")
		r.wantStatus(rec.ID, donation.Terminated)
		synctest.Wait()
		r.svc = r.service()
		r.settle(rec.ID)
		r.wantNothingLeft(rec.ID)
	})
}
