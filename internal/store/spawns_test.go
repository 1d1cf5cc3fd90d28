// This file tests the promises of donation.Store that are about spawns.

package store

import (
	"slices"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestBeginRespawnIsOneTransaction(t *testing.T) {
	s := openTest(t)
	before := in(t, s, donation.AwaitingSeed)
	spawn := newSpawn()
	got, err := s.BeginRespawn(t.Context(), donation.Respawn{ID: before.ID, Generation: 1, Exit: &crash, Charge: true, Spawn: spawn})
	noError(t, err)
	want := before
	want.Generation, want.Attempts, want.LastAttempt = 2, 1, got.LastAttempt
	want.Spawn = &donation.Spawn{
		ID: spawn.ID, Donation: before.ID, Generation: 2, State: donation.SpawnStarting, SeedToken: spawn.SeedToken,
		StartupToken: spawn.StartupToken, TemplateHash: spawn.TemplateHash, Guard: spawn.Guard, Begun: got.LastAttempt,
	}
	wantSame(t, "the record", got, want)
	wantSame(t, "the record read back", get(t, s, before.ID), want)
	if got.LastAttempt.IsZero() {
		t.Error("the attempt has no time")
	}
	spawns, err := s.Spawns(t.Context(), before.ID, 10)
	noError(t, err)
	old := *before.Spawn
	old.State, old.Exit = donation.SpawnExited, &crash
	wantSame(t, "the spawns", spawns, []donation.Spawn{*want.Spawn, old})
	k := kinds(t, s, before.ID)
	wantSame(t, "the last events", k[len(k)-3:], []string{"spawn.exited", "donation.attempt", "spawn.starting"})
}

func TestS26_UnchargedRespawnLeavesAttemptsAndUpdatedAt(t *testing.T) {
	s := openTest(t)
	before := respawn(t, s, die(t, s, in(t, s, donation.Seeded)))
	noError(t, s.IntendStop(t.Context(), before.Spawn.ID, donation.ReasonRestart))
	got, err := s.BeginRespawn(t.Context(), donation.Respawn{ID: before.ID, Generation: 2, Exit: &crash, Spawn: newSpawn()})
	noError(t, err)
	if got.Attempts != 1 || !got.LastAttempt.Equal(before.LastAttempt) || !got.UpdatedAt.Equal(before.UpdatedAt) || got.Generation != 3 {
		t.Errorf("record = %+v", got.Donation)
	}
	spawns, err := s.Spawns(t.Context(), before.ID, 2)
	noError(t, err)
	wantSame(t, "the reason of the old exit", spawns[1].Exit.Reason, donation.ReasonRestart)
}

func TestS26_RestartAfterTheLookIsNotCharged(t *testing.T) {
	s := openTest(t)
	rec := in(t, s, donation.Seeded)
	noError(t, s.IntendStop(t.Context(), rec.Spawn.ID, donation.ReasonRestart))
	r := donation.Respawn{ID: rec.ID, Generation: rec.Generation, Exit: &crash, Charge: true, Spawn: newSpawn()}
	_, err := s.BeginRespawn(t.Context(), r)
	wantConflict(t, err)
	r.Charge = false
	after, err := s.BeginRespawn(t.Context(), r)
	noError(t, err)
	wantSame(t, "attempts", after.Attempts, 0)
}

func TestBeginRespawnConflicts(t *testing.T) {
	s := openTest(t)
	dead := func(status donation.Status) donation.Record { return die(t, s, in(t, s, status)) }
	for _, c := range []struct {
		name       string
		rec        donation.Record
		generation int64
		exit       *donation.Exit
	}{
		{"provisioning", dead2(t, s), 1, nil},
		{"terminated", dead(donation.Terminated), 1, nil},
		{"error", dead(donation.Failed), 1, nil},
		{"given up", gaveUp(t, s, donation.Seeded, 1), 2, nil},
		{"an older generation", respawn(t, s, dead(donation.Seeded)), 1, &crash},
		{"a newer generation", dead(donation.Seeded), 2, nil},
		{"a spawn that is alive", in(t, s, donation.Seeded), 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			events := kinds(t, s, c.rec.ID)
			_, err := s.BeginRespawn(t.Context(), donation.Respawn{ID: c.rec.ID, Generation: c.generation, Exit: c.exit, Charge: true, Spawn: newSpawn()})
			wantConflict(t, err)
			wantSame(t, "the untouched record", get(t, s, c.rec.ID), c.rec)
			wantSame(t, "the events", kinds(t, s, c.rec.ID), events)
		})
	}
	_, err := s.BeginRespawn(t.Context(), donation.Respawn{ID: "don_x", Generation: 1, Spawn: newSpawn()})
	wantCode(t, err, donation.CodeNotFound)

	// An exit that is on record already is no news, and the one on record stands.
	rec := dead(donation.Seeded)
	lost := donation.Exit{Reason: donation.ReasonGuardLost}
	_, err = s.BeginRespawn(t.Context(), donation.Respawn{ID: rec.ID, Generation: 1, Exit: &lost, Spawn: newSpawn()})
	noError(t, err)
	spawns, err := s.Spawns(t.Context(), rec.ID, 0)
	noError(t, err)
	wantSame(t, "the exit on record", spawns[1].Exit, &crash)
}

// dead2 is a provisioning donation whose spawn has failed.
func dead2(t *testing.T, s *Store) donation.Record {
	t.Helper()
	rec := provision(t, s)
	noError(t, s.SpawnEnded(t.Context(), rec.Spawn.ID, donation.SpawnFailed, donation.Exit{Reason: donation.ReasonStartFailed, Message: "no such file"}))
	return get(t, s, rec.ID)
}

func TestSpawnStarted(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	big := donation.Identity{BootID: "b", PID: 1 << 22, StartTime: 1<<64 - 1}
	t.Run("moves the donation on", func(t *testing.T) {
		s := openTest(t)
		for _, to := range donation.Supervised {
			before := provision(t, s)
			noError(t, s.SpawnStarted(t.Context(), before.Spawn.ID, big, at, to))
			got := get(t, s, before.ID)
			if got.Status != to || got.Spawn.State != donation.SpawnRunning || got.Spawn.Identity != big || !got.Spawn.StartedAt.Equal(at) || !got.UpdatedAt.After(before.UpdatedAt) {
				t.Errorf("record = %+v, spawn = %+v", got.Donation, got.Spawn)
			}
			k := kinds(t, s, before.ID)
			wantSame(t, "the last events", k[len(k)-2:], []string{"spawn.running", "donation." + string(to)})
		}
	})
	t.Run("of a respawn leaves the status", func(t *testing.T) {
		s := openTest(t)
		rec := respawn(t, s, die(t, s, in(t, s, donation.Seeded)))
		if rec.Status != donation.Seeded || rec.Spawn.State != donation.SpawnRunning {
			t.Errorf("record = %+v", rec)
		}
	})
	t.Run("twice is a conflict", func(t *testing.T) {
		s := openTest(t)
		rec := in(t, s, donation.Seeded)
		wantConflict(t, s.SpawnStarted(t.Context(), rec.Spawn.ID, big, at, ""))
		wantConflict(t, s.SpawnStarted(t.Context(), die(t, s, rec).Spawn.ID, big, at, ""))
		wantCode(t, s.SpawnStarted(t.Context(), "spn_x", big, at, ""), donation.CodeNotFound)
	})
	t.Run("D07: after an ending it is recorded and abandoned", func(t *testing.T) {
		s := openTest(t)
		ends := []func(donation.Record) error{
			func(r donation.Record) error { _, err := s.Terminate(t.Context(), r.ID); return err },
			func(r donation.Record) error { return s.Fail(t.Context(), r.ID, donation.Live, 0, "no", false) },
		}
		for _, end := range ends {
			rec := provision(t, s)
			noError(t, end(rec))
			ended := get(t, s, rec.ID)
			wantConflict(t, s.SpawnStarted(t.Context(), rec.Spawn.ID, ident, at, donation.Seeded))
			got := get(t, s, rec.ID)
			if got.Spawn.State != donation.SpawnRunning || got.Spawn.Identity != ident || got.Spawn.StopReason != donation.ReasonAbandoned {
				t.Errorf("spawn = %+v", got.Spawn)
			}
			wantSame(t, "the donation", got.Donation, ended.Donation)
		}
	})
}

func TestSpawnReadyStampsOnce(t *testing.T) {
	s := openTest(t)
	rec := provision(t, s)
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	wantConflict(t, s.SpawnReady(t.Context(), rec.Spawn.ID, at))
	noError(t, s.SpawnStarted(t.Context(), rec.Spawn.ID, ident, at, donation.Seeded))
	noError(t, s.SpawnReady(t.Context(), rec.Spawn.ID, at))
	noError(t, s.SpawnReady(t.Context(), rec.Spawn.ID, at.Add(time.Hour)))
	got := get(t, s, rec.ID)
	wantSame(t, "ReadyAt", got.Spawn.ReadyAt, at)
	die(t, s, got)
	wantConflict(t, s.SpawnReady(t.Context(), rec.Spawn.ID, at))
	wantCode(t, s.SpawnReady(t.Context(), "spn_x", at), donation.CodeNotFound)
}

func TestSpawnEnded(t *testing.T) {
	s := openTest(t)
	oom := donation.Exit{Reason: donation.ReasonCrash, Known: true, Signal: 9, OOM: true, CPU: 3, MaxRSS: 5, At: crash.At}
	started := donation.Exit{Reason: donation.ReasonStartFailed, Message: "exec: no such file", At: crash.At}
	stopped := oom
	stopped.Reason = donation.ReasonDrain
	lease := oom
	lease.Reason = donation.ReasonLeaseExpired
	for _, c := range []struct {
		name      string
		rec       donation.Record
		intention donation.Reason
		state     donation.SpawnState
		exit      donation.Exit
		want      donation.Exit
		detail    string
	}{
		{"a crash", in(t, s, donation.Seeded), "", donation.SpawnExited, crash, crash, "exit status 3"},
		{"out of memory", in(t, s, donation.Seeded), "", donation.SpawnExited, oom, oom, "killed by SIGKILL (out of memory)"},
		{"never started", provision(t, s), "", donation.SpawnFailed, started, started, "did not start: exec: no such file"},
		{"lost", provision(t, s), "", donation.SpawnLost, donation.Exit{Reason: donation.ReasonLost, At: crash.At}, donation.Exit{Reason: donation.ReasonLost, At: crash.At}, "never started (the guard was replaced)"},
		{"a crash that was an intended stop", in(t, s, donation.Seeded), donation.ReasonDrain, donation.SpawnExited, oom, stopped, "killed by SIGKILL (out of memory) (drain)"},
		{"another reason than a crash stands", in(t, s, donation.Seeded), donation.ReasonDrain, donation.SpawnExited, lease, lease, "killed by SIGKILL (out of memory) (lease-expired)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.intention != "" {
				noError(t, s.IntendStop(t.Context(), c.rec.Spawn.ID, c.intention))
			}
			noError(t, s.SpawnEnded(t.Context(), c.rec.Spawn.ID, c.state, c.exit))
			got := get(t, s, c.rec.ID)
			wantSame(t, "the state", got.Spawn.State, c.state)
			wantSame(t, "the exit", *got.Spawn.Exit, c.want)
			wantSame(t, "the donation", got.Donation, c.rec.Donation)
			events, err := s.Events(t.Context(), c.rec.ID, 0, 0)
			noError(t, err)
			last := events[len(events)-1]
			if last.Kind != "spawn."+string(c.state) || last.Detail != c.detail || last.Spawn != got.Spawn.ID {
				t.Errorf("event = %+v, want the detail %q", last, c.detail)
			}
			// The second time, whatever it says, changes nothing.
			noError(t, s.SpawnEnded(t.Context(), c.rec.Spawn.ID, donation.SpawnLost, lease))
			wantSame(t, "the record after the second", get(t, s, c.rec.ID), got)
			again, err := s.Events(t.Context(), c.rec.ID, 0, 0)
			noError(t, err)
			wantSame(t, "the events after the second", again, events)
		})
	}
	wantCode(t, s.SpawnEnded(t.Context(), "spn_x", donation.SpawnExited, crash), donation.CodeNotFound)
	rec := in(t, s, donation.Seeded)
	wantCode(t, s.SpawnEnded(t.Context(), rec.Spawn.ID, donation.SpawnRunning, crash), donation.CodeInternal)
	noError(t, s.SpawnEnded(t.Context(), rec.Spawn.ID, donation.SpawnExited, donation.Exit{}))
	if e := get(t, s, rec.ID).Spawn.Exit; e.At.IsZero() || e.Reason != donation.ReasonCrash {
		t.Errorf("an empty exit was stored as %+v", e)
	}
}

func TestIntendStopFirstStandsUnlessAnEndingComes(t *testing.T) {
	s := openTest(t)
	for _, c := range []struct{ first, second, want donation.Reason }{
		{donation.ReasonRestart, donation.ReasonDrain, donation.ReasonRestart},
		{donation.ReasonDrain, donation.ReasonRestart, donation.ReasonDrain},
		{donation.ReasonRestart, donation.ReasonTerminate, donation.ReasonTerminate},
		{donation.ReasonDrain, donation.ReasonGiveUp, donation.ReasonGiveUp},
		{donation.ReasonGiveUp, donation.ReasonTerminate, donation.ReasonGiveUp},
		{donation.ReasonTerminate, donation.ReasonRestart, donation.ReasonTerminate},
		{donation.ReasonAbandoned, donation.ReasonTerminate, donation.ReasonAbandoned},
	} {
		rec := in(t, s, donation.Seeded)
		noError(t, s.IntendStop(t.Context(), rec.Spawn.ID, c.first))
		events := kinds(t, s, rec.ID)
		wantSame(t, "the last event", events[len(events)-1], "spawn.stop-intended")
		noError(t, s.IntendStop(t.Context(), rec.Spawn.ID, c.second))
		if got := get(t, s, rec.ID).Spawn.StopReason; got != c.want {
			t.Errorf("%s, then %s: %s, want %s", c.first, c.second, got, c.want)
		}
		if wrote := len(kinds(t, s, rec.ID)) > len(events); wrote != (c.want == c.second) {
			t.Errorf("%s, then %s: a second event: %v", c.first, c.second, wrote)
		}
	}
	starting := provision(t, s)
	noError(t, s.IntendStop(t.Context(), starting.Spawn.ID, donation.ReasonRestart))
	ended := die(t, s, in(t, s, donation.Seeded))
	wantConflict(t, s.IntendStop(t.Context(), ended.Spawn.ID, donation.ReasonRestart))
	wantCode(t, s.IntendStop(t.Context(), "spn_x", donation.ReasonRestart), donation.CodeNotFound)

	// Terminate replaces a restart in the same way.
	rec := in(t, s, donation.Seeded)
	noError(t, s.IntendStop(t.Context(), rec.Spawn.ID, donation.ReasonRestart))
	got, err := s.Terminate(t.Context(), rec.ID)
	noError(t, err)
	wantSame(t, "the stop reason", got.Spawn.StopReason, donation.ReasonTerminate)
}

func TestSpawnsAreNewestFirst(t *testing.T) {
	s := openTest(t)
	rec := in(t, s, donation.Seeded)
	for range 4 {
		rec = respawn(t, s, die(t, s, rec))
	}
	for limit, want := range map[int][]int64{0: {5, 4, 3, 2, 1}, 1: {5}, 3: {5, 4, 3}, 99: {5, 4, 3, 2, 1}} {
		spawns, err := s.Spawns(t.Context(), rec.ID, limit)
		noError(t, err)
		var got []int64
		for _, sp := range spawns {
			got = append(got, sp.Generation)
		}
		wantSame(t, "the generations", got, want)
	}
	_, err := s.Spawns(t.Context(), "don_x", 1)
	wantCode(t, err, donation.CodeNotFound)
}

func TestNoTokenIsInAnEvent(t *testing.T) {
	s := openTest(t)
	rec := provision(t, s)
	secrets := []string{rec.Spawn.SeedToken.Reveal(), rec.Spawn.StartupToken.Reveal()}
	noError(t, s.SpawnStarted(t.Context(), rec.Spawn.ID, ident, time.Now(), donation.Seeded))
	respawn(t, s, die(t, s, get(t, s, rec.ID)))
	var n int
	noError(t, raw(t, s).Get(&n, `SELECT count(*) FROM events WHERE instr(detail || kind, ?) OR instr(detail || kind, ?)`, secrets[0], secrets[1]))
	if n != 0 || slices.Contains(secrets, "") {
		t.Errorf("%d events hold a token", n)
	}
}
