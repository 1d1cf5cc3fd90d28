// This file tests the record of leases.

package store

import (
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestLeasesAreWrittenTogetherAndOverTheOldOnes(t *testing.T) {
	s := openTest(t)
	a, b := in(t, s, donation.Seeded), in(t, s, donation.AwaitingSeed)
	if _, ok, err := s.Lease(t.Context(), a.ID); ok || err != nil {
		t.Fatalf("a lease before any was saved: %v, %v", ok, err)
	}
	at := time.UnixMicro(1_700_000_000_000_000).UTC()
	la := donation.Lease{Donation: a.ID, Spawn: a.Spawn.ID, TTL: time.Hour, ExpiresAt: at.Add(time.Hour), RenewedAt: at}
	lb := donation.Lease{Donation: b.ID, Spawn: b.Spawn.ID, TTL: time.Minute, ExpiresAt: at, Failures: 3, LastError: "no answer"}
	stray := donation.Lease{Donation: "don_unknown", Spawn: "spn_unknown", TTL: time.Minute, ExpiresAt: at}
	noError(t, s.SaveLeases(t.Context(), []donation.Lease{la, stray, lb}))
	noError(t, s.SaveLeases(t.Context(), nil))
	la.ExpiresAt, la.RenewedAt = la.ExpiresAt.Add(time.Minute), la.RenewedAt.Add(time.Minute)
	noError(t, s.SaveLeases(t.Context(), []donation.Lease{la}))
	for _, want := range []donation.Lease{la, lb} {
		got, ok, err := s.Lease(t.Context(), want.Donation)
		noError(t, err)
		wantSame(t, "the lease", got, want)
		if !ok {
			t.Error("it isn't there")
		}
	}
	if _, ok, err := s.Lease(t.Context(), stray.Donation); ok || err != nil {
		t.Errorf("the lease of what isn't on record was kept: %v, %v", ok, err)
	}
}

func TestLeaseEventsAreNewestFirstAndNoOthers(t *testing.T) {
	s := openTest(t)
	rec := in(t, s, donation.Seeded)
	for _, kind := range []string{donation.EventLeaseFailing, donation.EventLeaseRegained, donation.EventLeaseGone} {
		noError(t, s.Note(t.Context(), donation.Event{Donation: rec.ID, Kind: kind}))
	}
	events, err := s.LeaseEvents(t.Context(), rec.ID, 2)
	noError(t, err)
	var got []string
	for _, e := range events {
		got = append(got, e.Kind)
	}
	wantSame(t, "the kinds", got, []string{donation.EventLeaseGone, donation.EventLeaseRegained})
}
