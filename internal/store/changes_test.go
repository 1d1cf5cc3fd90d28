// This file tests the promises of donation.Store that are about how donations change and end.

package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestFail(t *testing.T) {
	for _, c := range []struct {
		name       string
		status     donation.Status
		from       []donation.Status
		generation int64
		gaveUp     bool
		conflict   bool
		reason     donation.Reason
	}{
		{name: "a provision that broke", status: donation.Provisioning, from: []donation.Status{donation.Provisioning}, reason: donation.ReasonAbandoned},
		{name: "any generation", status: donation.Seeded, from: donation.Live, generation: -1, reason: donation.ReasonAbandoned},
		{name: "a give-up", status: donation.Seeded, from: donation.Supervised, generation: 1, gaveUp: true, reason: donation.ReasonGiveUp},
		{name: "another generation", status: donation.Seeded, from: donation.Supervised, generation: 2, gaveUp: true, conflict: true},
		{name: "another status", status: donation.Seeded, from: []donation.Status{donation.Provisioning}, conflict: true},
		{name: "S14: ended meanwhile", status: donation.Terminated, from: donation.Supervised, generation: 1, gaveUp: true, conflict: true},
		{name: "failed already", status: donation.Failed, from: donation.Live, conflict: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openTest(t)
			before := in(t, s, c.status)
			err := s.Fail(t.Context(), before.ID, c.from, c.generation, "because", c.gaveUp)
			got := get(t, s, before.ID)
			if c.conflict {
				wantConflict(t, err)
				wantSame(t, "the untouched record", got, before)
				return
			}
			noError(t, err)
			want := before
			want.Status, want.Message, want.GaveUp, want.UpdatedAt = donation.Failed, "because", c.gaveUp, got.UpdatedAt
			if c.gaveUp {
				want.Before = c.status
			}
			spawn := *before.Spawn
			spawn.StopReason = c.reason
			want.Spawn = &spawn
			wantSame(t, "the failed record", got, want)
			if !got.UpdatedAt.After(before.UpdatedAt) {
				t.Error("UpdatedAt did not move with the status")
			}
			if k := kinds(t, s, before.ID); !slices.Equal(k[len(k)-2:], []string{"donation.error", "spawn.stop-intended"}) {
				t.Errorf("events = %v", k)
			}
		})
	}
	s := openTest(t)
	wantCode(t, s.Fail(t.Context(), "don_x", donation.Live, 0, "", false), donation.CodeNotFound)
	rec := in(t, s, donation.Provisioning)
	wantCode(t, s.Fail(t.Context(), rec.ID, []donation.Status{donation.Provisioning}, 0, "", true), donation.CodeInvalidState)
	wantCode(t, s.Fail(t.Context(), rec.ID, []donation.Status{donation.Terminated}, 0, "", false), donation.CodeInvalidState)
}

func TestTerminateFromEveryStatus(t *testing.T) {
	s := openTest(t)
	for _, status := range append(donation.Statuses(), "gave up") {
		t.Run(string(status), func(t *testing.T) {
			var before donation.Record
			if status == "gave up" {
				before = gaveUp(t, s, donation.AwaitingSeed, 2)
			} else {
				before = in(t, s, status)
			}
			got, err := s.Terminate(t.Context(), before.ID)
			noError(t, err)
			if got.Status != donation.Terminated || got.Message != "" || got.GaveUp || got.Before != "" || !got.HasWorkdir || len(got.Ports) != 2 {
				t.Errorf("record = %+v", got)
			}
			if !got.Spawn.State.Ended() && got.Spawn.StopReason == "" {
				t.Error("the live spawn isn't marked for stopping")
			}
			events := kinds(t, s, before.ID)
			again, err := s.Terminate(t.Context(), before.ID)
			noError(t, err)
			wantSame(t, "the record terminated twice", again, got)
			wantSame(t, "the events after the second", kinds(t, s, before.ID), events)
		})
	}
	_, err := s.Terminate(t.Context(), "don_x")
	wantCode(t, err, donation.CodeNotFound)
}

func TestS15_RefillLeavesUpdatedAtAlone(t *testing.T) {
	s := openTest(t)
	rec := respawn(t, s, die(t, s, in(t, s, donation.Seeded)))
	if rec.Attempts != 1 || rec.LastAttempt.IsZero() {
		t.Fatalf("attempts = %d at %s", rec.Attempts, rec.LastAttempt)
	}
	noError(t, s.Refill(t.Context(), rec.ID, rec.Generation))
	want := rec
	want.Attempts, want.LastAttempt = 0, time.Time{}
	wantSame(t, "the refilled record", get(t, s, rec.ID), want)
	events := kinds(t, s, rec.ID)
	noError(t, s.Refill(t.Context(), rec.ID, rec.Generation))
	wantSame(t, "the events after a refill of nothing", kinds(t, s, rec.ID), events)

	wantConflict(t, s.Refill(t.Context(), rec.ID, rec.Generation-1))
	_, err := s.Terminate(t.Context(), rec.ID)
	noError(t, err)
	wantConflict(t, s.Refill(t.Context(), rec.ID, rec.Generation))
	wantCode(t, s.Refill(t.Context(), "don_x", 1), donation.CodeNotFound)
}

func TestS16_RefillMergesWithWhatLandsMeanwhile(t *testing.T) {
	// Read, then something lands, then write: in both orders both must survive.
	lands := map[string]func(*testing.T, *Store, donation.Record){
		"terminate": func(t *testing.T, s *Store, r donation.Record) {
			_, err := s.Terminate(t.Context(), r.ID)
			noError(t, err)
		},
		"a seed": func(t *testing.T, s *Store, r donation.Record) {
			noError(t, setStatus(t, s, r.ID, donation.AwaitingSeed, donation.Seeded))
		},
	}
	for name, land := range lands {
		for _, order := range []string{"before the refill", "after the refill"} {
			t.Run(name+" "+order, func(t *testing.T) {
				s := openTest(t)
				read := respawn(t, s, die(t, s, in(t, s, donation.AwaitingSeed)))
				if order == "after the refill" {
					noError(t, s.Refill(t.Context(), read.ID, read.Generation))
					land(t, s, read)
				} else {
					land(t, s, read)
					err := s.Refill(t.Context(), read.ID, read.Generation)
					if name == "terminate" {
						wantConflict(t, err)
					} else {
						noError(t, err)
					}
				}
				got := get(t, s, read.ID)
				want := donation.Seeded
				if name == "terminate" {
					want = donation.Terminated
				}
				if got.Status != want {
					t.Errorf("status = %s, want %s", got.Status, want)
				}
				if name == "a seed" && got.Attempts != 0 {
					t.Errorf("attempts = %d, want 0", got.Attempts)
				}
			})
		}
	}
}

// setStatus is what the seed of a later release does: a compare-and-set of the status through the committer.
func setStatus(t *testing.T, s *Store, id donation.ID, from, to donation.Status) error {
	t.Helper()
	noError(t, donation.CheckTransition(from, to))
	return s.writer.do(t.Context(), "seed", func(w *writeTx) error {
		return w.must(id, `UPDATE donations SET status = ?, updated_at = ? WHERE id = ? AND status = ?`, to, micros(w.now), id, from)
	})
}

func TestS27_RetryRevivesAGiveUpOnly(t *testing.T) {
	s := openTest(t)
	for _, before := range donation.Supervised {
		rec := gaveUp(t, s, before, 2)
		if rec.Attempts != 2 || rec.Before != before || !rec.GaveUp {
			t.Fatalf("the given-up record = %+v", rec)
		}
		got, err := s.Retry(t.Context(), rec.ID)
		noError(t, err)
		want := rec
		want.Status, want.Before, want.GaveUp, want.Message = before, "", false, ""
		want.Attempts, want.LastAttempt, want.UpdatedAt = 0, time.Time{}, got.UpdatedAt
		wantSame(t, "the revived record", got, want)
		if !got.UpdatedAt.After(rec.UpdatedAt) {
			t.Error("UpdatedAt did not move with the status")
		}
	}
	for _, status := range []donation.Status{donation.Provisioning, donation.Failed, donation.Terminated} {
		rec := in(t, s, status)
		_, err := s.Retry(t.Context(), rec.ID)
		wantCode(t, err, donation.CodeInvalidState)
		wantWords(t, err, string(rec.ID), string(status))
		wantSame(t, "the untouched record", get(t, s, rec.ID), rec)
	}
	_, err := s.Retry(t.Context(), "don_x")
	wantCode(t, err, donation.CodeNotFound)
}

func TestRetryOfASupervisedOneAsksForHurryUntilTheNextRespawn(t *testing.T) {
	s := openTest(t)
	rec := die(t, s, respawn(t, s, die(t, s, in(t, s, donation.Seeded))))
	for range 2 {
		got, err := s.Retry(t.Context(), rec.ID)
		noError(t, err)
		want := rec
		want.RetryNow = true
		wantSame(t, "the hurried record", got, want)
	}
	if n := strings.Count(strings.Join(kinds(t, s, rec.ID), " "), "donation.retried"); n != 1 {
		t.Errorf("%d events of the retry, want 1", n)
	}
	if got := respawn(t, s, rec); got.RetryNow || got.Attempts != 2 {
		t.Errorf("after the respawn: RetryNow %v, attempts %d", got.RetryNow, got.Attempts)
	}
}

func TestReclaimedAppliesToEndedDonationsOnly(t *testing.T) {
	s := openTest(t)
	for _, c := range []struct {
		name string
		rec  donation.Record
		ok   bool
	}{
		{"terminated", in(t, s, donation.Terminated), true},
		{"failed", in(t, s, donation.Failed), true},
		{"given up, which retry may revive", gaveUp(t, s, donation.Seeded, 1), false},
		{"seeded", in(t, s, donation.Seeded), false},
		{"provisioning", in(t, s, donation.Provisioning), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := s.Reclaimed(t.Context(), c.rec.ID)
			got := get(t, s, c.rec.ID)
			if !c.ok {
				wantConflict(t, err)
				wantSame(t, "the untouched record", got, c.rec)
				return
			}
			noError(t, err)
			want := c.rec
			want.HasWorkdir, want.Ports = false, nil
			wantSame(t, "the reclaimed record", got, want)
			events := kinds(t, s, c.rec.ID)
			noError(t, s.Reclaimed(t.Context(), c.rec.ID))
			wantSame(t, "the events after the second", kinds(t, s, c.rec.ID), events)
		})
	}
	wantCode(t, s.Reclaimed(t.Context(), "don_x"), donation.CodeNotFound)
}

func TestUIDsAreHandedOutLateAgain(t *testing.T) {
	s := openTest(t)
	uids := donation.UIDRange{Min: 50, Max: 53}
	take := func() (donation.Record, error) {
		d := newDonation()
		d.UIDs = uids
		return s.Create(t.Context(), d)
	}
	var recs []donation.Record
	for want := uids.Min; want <= uids.Max; want++ {
		rec, err := take()
		noError(t, err)
		wantSame(t, "the uid", rec.UID, want)
		recs = append(recs, rec)
	}
	_, err := take()
	wantCode(t, err, donation.CodeUnavailable)
	wantWords(t, err, "50-53", "widen")

	_, err = s.Terminate(t.Context(), recs[1].ID)
	noError(t, err)
	if _, err = take(); err == nil {
		t.Error("a uid was handed out again while its workdir is still there")
	}
	for _, i := range []int{3, 1} {
		_, err = s.Terminate(t.Context(), recs[i].ID)
		noError(t, err)
		noError(t, s.Reclaimed(t.Context(), recs[i].ID))
	}
	for _, want := range []uint32{51, 53} { // after 53 it goes round, past 50 and 52
		rec, err := take()
		noError(t, err)
		wantSame(t, "the uid", rec.UID, want)
	}
	uids = donation.UIDRange{Min: 90, Max: 95} // the range was changed
	rec, err := take()
	noError(t, err)
	wantSame(t, "the first uid of another range", rec.UID, uint32(90))
}

func TestD10_SeededIsACompareAndSet(t *testing.T) {
	s := openTest(t)
	rec := in(t, s, donation.AwaitingSeed)
	wantConflict(t, s.Seeded(t.Context(), rec.ID, rec.Generation+1, 1))
	wantSame(t, "the status", get(t, s, rec.ID).Status, donation.AwaitingSeed)
	noError(t, s.Seeded(t.Context(), rec.ID, rec.Generation, 2))
	seeded := get(t, s, rec.ID)
	wantSame(t, "the status", seeded.Status, donation.Seeded)
	noError(t, s.Seeded(t.Context(), rec.ID, rec.Generation, 0))
	wantSame(t, "the record after another seed", get(t, s, rec.ID), seeded)
	_, err := s.Terminate(t.Context(), rec.ID)
	noError(t, err)
	wantConflict(t, s.Seeded(t.Context(), rec.ID, rec.Generation, 1))
	wantCode(t, s.Seeded(t.Context(), "don_unknown", 1, 1), donation.CodeNotFound)
}

func TestD21_ExpireEndsOnlyWhatStillWaits(t *testing.T) {
	s := openTest(t)
	rec := in(t, s, donation.AwaitingSeed)
	wantConflict(t, s.Expire(t.Context(), rec.ID, rec.UpdatedAt.Add(-time.Second), "too late"))
	seeded := in(t, s, donation.Seeded)
	wantConflict(t, s.Expire(t.Context(), seeded.ID, time.Now().Add(time.Hour), "too late"))
	noError(t, s.Expire(t.Context(), rec.ID, rec.UpdatedAt, "too late"))
	ended := get(t, s, rec.ID)
	if ended.Status != donation.Terminated || ended.Message != "too late" || ended.Spawn.StopReason != donation.ReasonTerminate {
		t.Errorf("%+v, spawn %+v", ended.Donation, ended.Spawn)
	}
}
