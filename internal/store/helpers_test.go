// This file holds what the store's tests share: an open store, donations in every status through the
// legal calls, and a second connection that does to the file what no daemon would.

package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jmoiron/sqlx"

	"github.com/serfab/cadre-hostd/internal/donation"
)

var testOptions = Options{PortFirst: 10000, PortLast: 10999}

// cmpOpts compares records: secrets by value, exactly.
var cmpOpts = cmp.Options{cmp.AllowUnexported(donation.Secret{}), cmpopts.EquateEmpty()}

// role is the environment variable that makes a copy of the test binary do something else.
const role = "CADRE_STORE_TEST_ROLE"

// TestMain lets this binary be the second process that some tests need.
func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "lock":
		lockAndWait(os.Args[len(os.Args)-1])
	case "write":
		writeForEver(os.Args[len(os.Args)-1])
	default:
		m.Run() // the test's own main exits with its result
	}
}

func openTest(t testing.TB) *Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "state"))
}

func openAt(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { noError(t, s.Close()) })
	return s
}

// raw is a connection of somebody else to the same file.
func raw(t testing.TB, s *Store) *sqlx.DB {
	t.Helper()
	db, err := sqlx.Open("sqlite", dsn(s.Path(), map[string][]string{"_pragma": {"busy_timeout(5000)"}}))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newSpawn() donation.NewSpawn {
	return donation.NewSpawn{
		ID: donation.NewSpawnID(), SeedToken: donation.NewSeedToken(), StartupToken: donation.NewStartupToken(),
		TemplateHash: "hash", Guard: "guard-1",
	}
}

func newDonation(ports ...string) donation.NewDonation {
	return donation.NewDonation{
		ID:        donation.NewID(),
		Request:   donation.Request{Template: "reference", PartyID: "party", BootstrapNodes: []string{"/dns4/a"}, OwnerKeys: []string{"key"}},
		PortNames: ports,
		PortFree:  func(int) bool { return true },
		Spawn:     newSpawn(),
	}
}

// provision returns a provisioning donation.
func provision(t testing.TB, s *Store, change ...func(*donation.NewDonation)) donation.Record {
	t.Helper()
	d := newDonation("http", "p2p")
	for _, c := range change {
		c(&d)
	}
	rec, err := s.Create(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

var ident = donation.Identity{BootID: "boot", PID: 4711, StartTime: 99}

// in returns a donation that the legal calls have brought to status; its spawn is running unless the
// status is provisioning.
func in(t testing.TB, s *Store, status donation.Status) donation.Record {
	t.Helper()
	rec := provision(t, s)
	to := donation.Seeded
	switch status {
	case donation.Provisioning:
		return rec
	case donation.AwaitingSeed:
		to = status
	}
	noError(t, s.SpawnStarted(t.Context(), rec.Spawn.ID, ident, time.Now(), to))
	switch status {
	case donation.Failed:
		noError(t, s.Fail(t.Context(), rec.ID, donation.Live, 0, "it broke", false))
	case donation.Terminated:
		_, err := s.Terminate(t.Context(), rec.ID)
		noError(t, err)
	}
	return get(t, s, rec.ID)
}

// gaveUp returns a donation that was given up after n attempts; its last spawn has ended.
func gaveUp(t testing.TB, s *Store, before donation.Status, n int) donation.Record {
	t.Helper()
	rec := die(t, s, in(t, s, before))
	for range n {
		rec = die(t, s, respawn(t, s, rec))
	}
	noError(t, s.Fail(t.Context(), rec.ID, donation.Supervised, rec.Generation, "gave up", true))
	return get(t, s, rec.ID)
}

// die ends the donation's spawn with a crash.
func die(t testing.TB, s *Store, rec donation.Record) donation.Record {
	t.Helper()
	noError(t, s.SpawnEnded(t.Context(), rec.Spawn.ID, donation.SpawnExited, crash))
	return get(t, s, rec.ID)
}

var crash = donation.Exit{
	Reason: donation.ReasonCrash, Known: true, Code: 3, CPU: 1500 * time.Millisecond, MaxRSS: 1 << 20,
	At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Message: "boom",
}

// respawn begins a charged respawn of a dead one and starts it.
func respawn(t testing.TB, s *Store, rec donation.Record) donation.Record {
	t.Helper()
	rec, err := s.BeginRespawn(t.Context(), donation.Respawn{ID: rec.ID, Generation: rec.Generation, Charge: true, Spawn: newSpawn()})
	noError(t, err)
	noError(t, s.SpawnStarted(t.Context(), rec.Spawn.ID, ident, time.Now(), ""))
	return get(t, s, rec.ID)
}

func get(t testing.TB, s *Store, id donation.ID) donation.Record {
	t.Helper()
	rec, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantConflict(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, donation.ErrConflict) {
		t.Errorf("error = %v, want a conflict", err)
	}
}

func wantCode(t testing.TB, err error, code donation.Code) {
	t.Helper()
	if err == nil || donation.CodeOf(err) != code {
		t.Errorf("error = %v with code %q, want code %q", err, donation.CodeOf(err), code)
	}
}

// kinds returns the kinds of a donation's events, oldest first.
func kinds(t testing.TB, s *Store, id donation.ID) []string {
	t.Helper()
	events, err := s.Events(t.Context(), id, 0, 0)
	noError(t, err)
	var out []string
	for _, e := range events {
		out = append(out, e.Kind)
	}
	return out
}

func wantSame(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpOpts); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
