// This file tests provisions that go as they should, and those that are refused before anything is written.

package donation_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestProvisionRunsTheNode(t *testing.T) {
	for _, c := range []struct {
		template string
		want     donation.Status
		ports    int
	}{
		{"plain", donation.Seeded, 2},
		{"seedy", donation.AwaitingSeed, 0},
	} {
		t.Run(c.template, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				req := donation.Request{Template: c.template, Name: "web", PartyID: "party", OwnerKeys: []string{someKey}, Profile: "storage"}
				rec, err := r.svc.Provision(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				sp := rec.Spawn
				if rec.Status != c.want || sp.State != donation.SpawnRunning || sp.Identity.PID != 1001 || sp.StartedAt.IsZero() || sp.Guard != "guard-1" {
					t.Errorf("the record is %+v, its spawn %+v", rec.Donation, *sp)
				}
				if len(rec.Ports) != c.ports || rec.Attempts != 0 || rec.Generation != 1 || !rec.HasWorkdir {
					t.Errorf("the record is %+v", rec.Donation)
				}
				launch := r.guard.starts[0]
				wantSame(t, "the request at the guard", launch.Request, req)
				wantSame(t, "the ports at the guard", launch.Ports, rec.Ports)
				if launch.Donation != rec.ID || launch.Spawn.SeedToken.Reveal() != sp.SeedToken.Reveal() || sp.StartupToken.IsZero() {
					t.Errorf("the launch is %+v", launch)
				}
				if r.svc.InFlight(rec.ID) || !r.wasDirty(rec.ID) {
					t.Errorf("afterwards: in flight %v, dirty %v", r.svc.InFlight(rec.ID), r.wasDirty(rec.ID))
				}
			})
		})
	}
}

// nothingWritten checks that no donation is on record and no start was sent.
func (r *rig) nothingWritten() {
	r.Helper()
	recs, err := r.store.List(r.Context(), donation.Filter{})
	if err != nil || len(recs) > 0 || len(r.guard.sent()) > 0 {
		r.Errorf("there are %d records, %d starts (%v)", len(recs), len(r.guard.sent()), err)
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, name := range []string{" ", "-x", ".x", "a b", "a/b", "a\n", "ü", "don_", "don_x", "Don_x", strings.Repeat("x", 64)} {
			_, err := r.svc.Provision(t.Context(), donation.Request{Template: "plain", Name: name})
			wantCode(t, err, donation.CodeInvalidRequest)
		}
		r.nothingWritten()
		// The store gives out four ports: two of these donations have them all.
		for _, name := range []string{"a", strings.Repeat("x", 63)} {
			if _, err := r.svc.Provision(t.Context(), donation.Request{Template: "plain", Name: name}); err != nil {
				t.Errorf("the name %q: %v", name, err)
			}
		}
	})
}

func TestProvisionIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		away     bool
		want     donation.Code
		words    string
	}{
		"unknown template": {template: "nonsense", want: donation.CodeUnknownTemplate, words: "nonsense"},
		"no guard":         {template: "plain", away: true, want: donation.CodeUnavailable, words: "guard"},
		"too many ports":   {template: "wide", want: donation.CodePortsExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.guard.set(func(g *fakeGuard) { g.away = c.away })
				_, err := r.svc.Provision(t.Context(), donation.Request{Template: c.template})
				wantCode(t, err, c.want, c.words)
				r.nothingWritten()
			})
		})
	}
}

func TestNameIsTakenUntilItsHolderIsTerminated(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supervise()
		req := donation.Request{Template: "plain", Name: "web"}
		first, err := r.svc.Provision(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.svc.Provision(t.Context(), req)
		wantCode(t, err, donation.CodeNameTaken, "web", string(first.ID))
		wantSame(t, "the starts", len(r.guard.sent()), 1)
		if _, err := r.svc.Terminate(t.Context(), first.ID, false); err != nil {
			t.Fatal(err)
		}
		if _, err := r.svc.Provision(t.Context(), req); err != nil {
			t.Errorf("once it is free: %v", err)
		}
	})
}

func TestProvisionGoesOnWithoutItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ctx, leave := context.WithCancel(t.Context())
		id, release, done := r.startHeld(ctx, nil)
		leave()
		got := <-done
		wantCode(t, got.err, donation.CodeUnavailable, string(id), "still being started")
		if got.rec.ID != id || !r.svc.InFlight(id) {
			t.Errorf("the caller got %s; in flight %v", got.rec.ID, r.svc.InFlight(id))
		}
		release()
		synctest.Wait()
		rec := r.wantStatus(id, donation.Seeded)
		if rec.Spawn.State != donation.SpawnRunning || r.svc.InFlight(id) {
			t.Errorf("the spawn is %s, in flight %v", rec.Spawn.State, r.svc.InFlight(id))
		}
	})
}

func TestTwoProvisionsRaceForTheLastPorts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.provision("plain")
		provision := func() (donation.Record, error) {
			return r.svc.Provision(t.Context(), donation.Request{Template: "plain"})
		}
		a, b := async(provision), async(provision)
		refused := 0
		for _, got := range []result{<-a, <-b} {
			if got.err != nil {
				wantCode(t, got.err, donation.CodePortsExhausted)
				refused++
			}
		}
		wantSame(t, "the refused", refused, 1)
		wantSame(t, "the starts", len(r.guard.sent()), 2)
	})
}
