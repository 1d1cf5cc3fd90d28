// This file tests what is made of rows that no daemon would write: the file was damaged, or edited by hand.

package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// edit changes a row by hand, past the CHECKs if need be.
func edit(t *testing.T, s *Store, query string, args ...any) {
	t.Helper()
	db := raw(t, s)
	for _, pragma := range []string{"ignore_check_constraints = ON", "foreign_keys = OFF"} {
		_, err := db.Exec("PRAGMA " + pragma)
		noError(t, err)
	}
	res, err := db.Exec(query, args...)
	noError(t, err)
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s changed %d rows: %v", query, n, err)
	}
	noError(t, db.Close())
}

func TestS07_UnreadableInputsAreReportedAndTheRestLoads(t *testing.T) {
	s := openTest(t)
	for _, inputs := range []string{"", " ", "{", "null", "{}", `{"template":""}`, `{"template":7}`, `"x"`, "\x00"} {
		rec := respawn(t, s, die(t, s, in(t, s, donation.Seeded)))
		edit(t, s, `UPDATE donations SET inputs = ?, name = ? WHERE id = ?`, inputs, "n"+string(rec.ID), rec.ID)
		want := rec
		want.InputsMissing, want.Request = true, donation.Request{Name: "n" + string(rec.ID)}
		wantSame(t, fmt.Sprintf("the record with inputs %q", inputs), get(t, s, rec.ID), want)
	}
	recs, err := s.List(t.Context(), donation.Filter{})
	noError(t, err)
	wantSame(t, "how many are listed", len(recs), 9)
}

func TestS17_TimesThatCannotBeReadAreZero(t *testing.T) {
	s := openTest(t)
	for _, bad := range []any{nil, 0, -5, int64(1) << 62, int64(lastMicros) + 1} {
		rec := respawn(t, s, die(t, s, in(t, s, donation.Seeded)))
		edit(t, s, `UPDATE donations SET last_attempt = ? WHERE id = ?`, bad, rec.ID)
		edit(t, s, `UPDATE spawns SET started_at = ? WHERE id = ?`, bad, rec.Spawn.ID)
		got := get(t, s, rec.ID)
		if !got.LastAttempt.IsZero() || !got.Spawn.StartedAt.IsZero() || got.Attempts != 1 {
			t.Errorf("%v was read as %s and %s, with %d attempts", bad, got.LastAttempt, got.Spawn.StartedAt, got.Attempts)
		}
	}
	// A time in the future is a time: what to make of it is the policy's business.
	rec := in(t, s, donation.Seeded)
	future := time.Now().Add(1000 * time.Hour).Truncate(time.Microsecond).UTC()
	edit(t, s, `UPDATE donations SET last_attempt = ? WHERE id = ?`, future.UnixMicro(), rec.ID)
	wantSame(t, "a future attempt", get(t, s, rec.ID).LastAttempt, future)
}

func TestS19_BadRowsNeverSinkAList(t *testing.T) {
	s := openTest(t)
	var good []donation.ID
	for range 3 {
		good = append(good, in(t, s, donation.Seeded).ID)
	}
	bad := map[string]donation.Record{}
	for _, query := range []string{
		`UPDATE donations SET status = 'nonsense' WHERE id = ?`,
		`UPDATE donations SET uid = -1 WHERE id = ?`,
		`UPDATE donations SET uid = 4294967296 WHERE id = ?`,
		`UPDATE donations SET gave_up = 7 WHERE id = ?`,
		`UPDATE spawns SET state = 'nonsense' WHERE donation = ?`,
	} {
		rec := in(t, s, donation.Seeded)
		edit(t, s, query, rec.ID)
		bad[query] = rec
	}
	orphan := in(t, s, donation.Seeded)
	edit(t, s, `DELETE FROM spawns WHERE donation = ?`, orphan.ID)
	good = append(good, in(t, s, donation.Seeded).ID)

	recs, err := s.List(t.Context(), donation.Filter{})
	var got []donation.ID
	for _, r := range recs {
		if r.ID == orphan.ID {
			if r.Spawn != nil || r.Status != donation.Seeded {
				t.Errorf("the donation without a spawn = %+v", r)
			}
			continue
		}
		got = append(got, r.ID)
	}
	wantSame(t, "the good ones", got, good)
	if err == nil {
		t.Fatal("no error tells of the bad ones")
	}
	for query, rec := range bad {
		if !strings.Contains(err.Error(), string(rec.ID)) && !strings.Contains(query, "gave_up") {
			t.Errorf("the error doesn't name %s (%s):\n%v", rec.ID, query, err)
		}
		if _, err := s.Get(t.Context(), rec.ID); err == nil || donation.CodeOf(err) == donation.CodeNotFound {
			t.Errorf("Get after %q: %v, want an error that isn't not_found", query, err)
		}
	}
}
