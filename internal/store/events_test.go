// This file tests the log of events and the signal that something has changed.

package store

import (
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestEventsAreNumberedAndFiltered(t *testing.T) {
	s := openTest(t)
	seq, err := s.LastSeq(t.Context())
	noError(t, err)
	wantSame(t, "the sequence number of an empty log", seq, int64(0))
	a, b := in(t, s, donation.Seeded), in(t, s, donation.AwaitingSeed)
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	noError(t, s.Note(t.Context(), donation.Event{Seq: 999, At: at, Kind: "guard.connected", Detail: "instance x"}))
	noError(t, s.Note(t.Context(), donation.Event{Donation: a.ID, Kind: "donation.held"}))

	all, err := s.Events(t.Context(), "", 0, 0)
	noError(t, err)
	var ofA []donation.Event
	for i, e := range all {
		if e.Seq != int64(i+1) || e.At.IsZero() {
			t.Errorf("event %d = %+v", i, e)
		}
		if e.Donation == a.ID {
			ofA = append(ofA, e)
		}
	}
	n := len(all)
	wantSame(t, "the noted event", all[n-2], donation.Event{Seq: int64(n - 1), At: at, Kind: "guard.connected", Detail: "instance x"})
	seq, err = s.LastSeq(t.Context())
	noError(t, err)
	wantSame(t, "the last sequence number", seq, int64(n))

	got, err := s.Events(t.Context(), a.ID, 0, 0)
	noError(t, err)
	wantSame(t, "the events of one donation", got, ofA)
	got, err = s.Events(t.Context(), a.ID, ofA[0].Seq, 2)
	noError(t, err)
	wantSame(t, "two after the first", got, ofA[1:3])
	got, err = s.Events(t.Context(), "", int64(n), 10)
	noError(t, err)
	wantSame(t, "those after the last", got, []donation.Event{})
	wantSame(t, "the kinds of a provision", kinds(t, s, b.ID), []string{"donation.provisioning", "spawn.starting", "spawn.running", "donation.awaiting_seed"})
}

func TestEventsAreAppendOnly(t *testing.T) {
	s := openTest(t)
	in(t, s, donation.Seeded)
	db := raw(t, s)
	if _, err := db.Exec(`UPDATE events SET detail = 'rewritten'`); err == nil {
		t.Error("an event could be rewritten")
	}
	last, err := s.LastSeq(t.Context())
	noError(t, err)
	_, err = db.Exec(`DELETE FROM events`) // pruning is allowed, and no number comes back after it
	noError(t, err)
	noError(t, s.Note(t.Context(), donation.Event{Kind: "x"}))
	seq, err := s.LastSeq(t.Context())
	noError(t, err)
	wantSame(t, "the number after pruning", seq, last+1)
}

func TestChangedIsClosedByEachCommitThatChangesSomething(t *testing.T) {
	s := openTest(t)
	rec := in(t, s, donation.Terminated)
	ch := s.Changed()
	if _, err := s.Terminate(t.Context(), rec.ID); err != nil { // changes nothing
		t.Fatal(err)
	}
	wantConflict(t, s.Refill(t.Context(), rec.ID, 1))
	select {
	case <-ch:
		t.Error("closed although nothing has changed")
	default:
	}
	noError(t, s.Note(t.Context(), donation.Event{Kind: "x"}))
	select {
	case <-ch: // closed before the caller is answered
	default:
		t.Error("not closed by a commit")
	}
	if s.Changed() == ch {
		t.Error("the closed channel is still handed out")
	}
}
