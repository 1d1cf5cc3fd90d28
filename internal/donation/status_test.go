// This file tests the pure parts of the domain: statuses, ids, errors.

package donation_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// TestTransitions draws the table: a row for each status, a column for each that may follow.
func TestTransitions(t *testing.T) {
	const legal = true
	table := map[donation.Status]map[donation.Status]bool{
		donation.Provisioning: {donation.AwaitingSeed: legal, donation.Seeded: legal, donation.Failed: legal, donation.Terminated: legal},
		donation.AwaitingSeed: {donation.Seeded: legal, donation.Failed: legal, donation.Terminated: legal},
		donation.Seeded:       {donation.Failed: legal, donation.Terminated: legal},
		donation.Failed:       {donation.AwaitingSeed: legal, donation.Seeded: legal, donation.Terminated: legal},
		donation.Terminated:   {},
	}
	for _, from := range donation.Statuses() {
		for _, to := range donation.Statuses() {
			err := donation.CheckTransition(from, to)
			if (err == nil) != table[from][to] {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			if err != nil {
				wantCode(t, err, donation.CodeInvalidState, string(from), string(to))
			}
			if slices.Contains(donation.From(to), from) != table[from][to] {
				t.Errorf("From(%s) = %v", to, donation.From(to))
			}
		}
	}
	if len(table) != len(donation.Statuses()) {
		t.Errorf("Statuses() = %v", donation.Statuses())
	}
	wantCode(t, donation.CheckTransition("nonsense", donation.Seeded), donation.CodeInvalidState, "nonsense")
}

func TestWhatAStatusMeans(t *testing.T) {
	for status, want := range map[donation.Status]struct{ supervised, live, ending bool }{
		donation.Provisioning: {live: true},
		donation.AwaitingSeed: {supervised: true, live: true},
		donation.Seeded:       {supervised: true, live: true},
		donation.Failed:       {ending: true},
		donation.Terminated:   {ending: true},
		"nonsense":            {},
	} {
		if status.IsSupervised() != want.supervised || status.IsLive() != want.live || status.IsEnding() != want.ending {
			t.Errorf("%s: supervised %v, live %v, ending %v; want %+v", status, status.IsSupervised(), status.IsLive(), status.IsEnding(), want)
		}
	}
	for state, want := range map[donation.SpawnState]bool{
		donation.SpawnStarting: false, donation.SpawnRunning: false,
		donation.SpawnExited: true, donation.SpawnFailed: true, donation.SpawnLost: true, "nonsense": false,
	} {
		if state.Ended() != want {
			t.Errorf("%s has ended: %v", state, state.Ended())
		}
	}
}

func TestIDsAreLowerCaseULIDsAndDiffer(t *testing.T) {
	shape := regexp.MustCompile(`^(don|spn)_[0-9a-hjkmnp-tv-z]{26}$`)
	seen := map[string]bool{}
	for range 1000 {
		for _, id := range []string{string(donation.NewID()), string(donation.NewSpawnID())} {
			if !shape.MatchString(id) || seen[id] {
				t.Fatalf("id %q: of another shape, or seen before (%v)", id, seen[id])
			}
			seen[id] = true
		}
	}
	if id := string(donation.NewID()); !strings.HasPrefix(id, "don_") {
		t.Errorf("NewID() = %s", id)
	}
	if id := string(donation.NewSpawnID()); !strings.HasPrefix(id, "spn_") {
		t.Errorf("NewSpawnID() = %s", id)
	}
	if !(donation.Identity{BootID: "boot"}).IsZero() || (donation.Identity{PID: 1}).IsZero() {
		t.Error("an identity is set when it has a pid")
	}
}

func TestErrorsKeepTheirCodeAndCause(t *testing.T) {
	cause := errors.New("disk full")
	err := donation.Errorf(donation.CodeUnavailable, "%s can't be written: %w", "don_1", cause)
	wantSame(t, "the text", err.Error(), "don_1 can't be written: disk full")
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	if plain := donation.Errorf(donation.CodeNotFound, "no %d", 7); plain.Unwrap() != nil || plain.Error() != "no 7" {
		t.Errorf("without a cause: %q, cause %v", plain, plain.Unwrap())
	}
	wrapped := fmt.Errorf("terminate: %w", err)
	for name, c := range map[string]struct {
		err  error
		want donation.Code
	}{
		"itself":        {err, donation.CodeUnavailable},
		"wrapped":       {wrapped, donation.CodeUnavailable},
		"joined":        {errors.Join(cause, wrapped), donation.CodeUnavailable},
		"the outermost": {donation.Errorf(donation.CodeInternal, "outer: %w", err), donation.CodeInternal},
		"another's":     {cause, donation.CodeInternal},
		"none":          {nil, donation.CodeInternal},
	} {
		if got := donation.CodeOf(c.err); got != c.want {
			t.Errorf("%s: code %s, want %s", name, got, c.want)
		}
	}
}

// wantWords checks that text holds each of words.
func wantWords(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q doesn't say %q", text, w)
		}
	}
}
