// This file tests the decision: one row for each thing that may be found.

package supervisor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

const (
	spawnNow donation.SpawnID = "spn_now" // the one on record
	spawnOld donation.SpawnID = "spn_old"
)

// facts returns those of a seeded donation whose node runs well, changed by each of change.
func facts(change ...func(*Facts)) Facts {
	f := Facts{
		Record: donation.Record{
			Donation: donation.Donation{ID: "don_1", Status: donation.Seeded, Generation: 2, HasWorkdir: true},
			Spawn: &donation.Spawn{
				ID: spawnNow, State: donation.SpawnRunning, Guard: "guard-1", StartedAt: now.Add(-time.Minute),
				Identity: donation.Identity{BootID: "boot-1", PID: 7, StartTime: 9},
			},
		},
		Seen: donation.Observation{Connected: true, Instance: "guard-1", BootID: "boot-1"},
		Now:  now,
	}
	process(spawnNow, donation.ProcessRunning)(&f)
	for _, c := range change {
		c(&f)
	}
	return f
}

func process(id donation.SpawnID, state donation.ProcessState) func(*Facts) {
	return func(f *Facts) {
		p := donation.Process{Spawn: id, State: state}
		if state == donation.ProcessExited {
			p.Exit = new(exit(donation.ReasonCrash))
		}
		f.Seen.Processes = append(f.Seen.Processes, p)
	}
}

// gone says that the guard knows no process; died that it holds the exit of the current one.
func gone(f *Facts) { f.Seen.Processes = nil }

func died(reason donation.Reason) func(*Facts) {
	return func(f *Facts) {
		f.Seen.Processes = []donation.Process{{Spawn: spawnNow, State: donation.ProcessExited, Exit: new(exit(reason))}}
	}
}

// ended says that the end of the spawn is on record.
func ended(state donation.SpawnState, reason donation.Reason) func(*Facts) {
	return func(f *Facts) { f.Record.Spawn.State, f.Record.Spawn.Exit = state, new(exit(reason)) }
}

func status(s donation.Status) func(*Facts) { return func(f *Facts) { f.Record.Status = s } }
func gaveUp(f *Facts)                       { f.Record.Status, f.Record.GaveUp = donation.Failed, true }
func reclaimed(f *Facts)                    { f.Record.HasWorkdir = false }
func neverSpawned(f *Facts)                 { f.Record.Spawn, f.Seen.Processes = nil, nil }
func starting(f *Facts)                     { f.Record.Spawn.State = donation.SpawnStarting }
func otherGuard(f *Facts)                   { f.Seen.Instance = "guard-2" }
func otherBoot(f *Facts)                    { f.Seen.Instance, f.Seen.BootID = "guard-2", "boot-2" }
func orphan(f *Facts)                       { f.OrphanAlive = true }
func inputsMissing(f *Facts)                { f.Record.InputsMissing = true }
func retryNow(f *Facts)                     { f.Record.RetryNow = true }
func drained(f *Facts)                      { f.Draining = true }
func noExit(f *Facts)                       { f.Seen.Processes[0].Exit = nil }

func intended(r donation.Reason) func(*Facts) {
	return func(f *Facts) { f.Record.Spawn.StopReason = r }
}

// tried says that n attempts are on record, the last one some time ago.
func tried(n int, ago time.Duration) func(*Facts) {
	return func(f *Facts) { f.Record.Attempts, f.Record.LastAttempt = n, now.Add(-ago) }
}

func up(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Record.Spawn.StartedAt = now.Add(-d) }
}

func exit(r donation.Reason) donation.Exit {
	return donation.Exit{Reason: r, Known: true, Code: 3, At: now.Add(-time.Millisecond)}
}

var (
	crash   = new(exit(donation.ReasonCrash))
	unknown = &donation.Exit{Reason: donation.ReasonGuardLost, At: now}
	leave   = Action{Kind: Leave}
)

// settled and stop are the actions on a spawn.
func settled(id donation.SpawnID, state donation.SpawnState, e *donation.Exit) Action {
	return Action{Kind: Settle, Spawn: id, State: state, Exit: e}
}

func stop(id donation.SpawnID, r donation.Reason) Action {
	return Action{Kind: Stop, Spawn: id, Reason: r}
}

func reclaim(e *donation.Exit) Action {
	return Action{Kind: Reclaim, Spawn: spawnNow, State: donation.SpawnExited, Exit: e}
}

func attempt(e *donation.Exit, charge bool) Action {
	return Action{Kind: Attempt, State: donation.SpawnExited, Exit: e, Charge: charge}
}

func TestDecide(t *testing.T) {
	dead := ended(donation.SpawnExited, donation.ReasonCrash)
	for _, tt := range []struct {
		name string
		f    Facts
		want Action
	}{
		// What is left alone.
		{"S03 a node that runs", facts(), leave},
		{"a guard that is away tells nothing", facts(gone, func(f *Facts) { f.Seen = donation.Observation{} }), leave},
		{"S05 a provision in flight owns its donation", facts(gone, func(f *Facts) { f.InFlight = true }), leave},
		{"S05 provisioning, its node running", facts(status(donation.Provisioning)), leave},
		{"S05 provisioning, its node dead", facts(status(donation.Provisioning), died(donation.ReasonCrash)), leave},
		{"S06 supervised and never spawned", facts(neverSpawned), leave},
		{"S04 terminated and reclaimed", facts(status(donation.Terminated), gone, dead, reclaimed), leave},
		{"S04 failed and reclaimed, never spawned", facts(status(donation.Failed), neverSpawned, reclaimed), leave},
		{"S04 given up", facts(gaveUp, gone, dead), leave},
		{"a node that is stopping", facts(func(f *Facts) { f.Seen.Processes[0].State = donation.ProcessStopping }), leave},
		{"a node that the guard is starting", facts(starting, func(f *Facts) { f.Seen.Processes[0].State = donation.ProcessStarting }), leave},

		// Processes of former spawns go first.
		{"a former process lives", facts(process(spawnOld, donation.ProcessRunning)), stop(spawnOld, donation.ReasonAbandoned)},
		{"a former process is stopping", facts(gone, process(spawnOld, donation.ProcessStopping), dead), leave},
		{"a former process has ended", facts(process(spawnOld, donation.ProcessExited)), settled(spawnOld, donation.SpawnExited, crash)},
		{
			"a former process has ended and nobody knows how",
			facts(gone, process(spawnOld, donation.ProcessExited), noExit), settled(spawnOld, donation.SpawnExited, unknown),
		},
		{
			"one former process is stopping, another lives",
			facts(process(spawnOld, donation.ProcessStopping), process("spn_older", donation.ProcessRunning)), stop("spn_older", donation.ReasonAbandoned),
		},
		{
			"a process of a donation that never had a spawn",
			facts(neverSpawned, process(spawnOld, donation.ProcessRunning)), stop(spawnOld, donation.ReasonAbandoned),
		},

		// Living nodes that the record doesn't want.
		{"S28 terminated", facts(status(donation.Terminated)), stop(spawnNow, donation.ReasonTerminate)},
		{"S13 given up", facts(gaveUp), stop(spawnNow, donation.ReasonGiveUp)},
		{"S28 failed", facts(status(donation.Failed)), stop(spawnNow, donation.ReasonAbandoned)},
		{"ended on record", facts(dead), stop(spawnNow, donation.ReasonAbandoned)},
		{"S28 a restart that was intended", facts(intended(donation.ReasonRestart)), stop(spawnNow, donation.ReasonRestart)},
		{"the node of a start whose answer was lost", facts(starting), Action{Kind: Confirm, Spawn: spawnNow}},

		// The budget.
		{"S15 attempts, and up for less than the refill", facts(tried(2, time.Hour), up(9*time.Minute)), Action{Kind: Wait, At: now.Add(time.Minute)}},
		{"S15 attempts, and up for long", facts(tried(2, time.Hour), up(10*time.Minute)), Action{Kind: Refill}},
		{"S17 attempts, and started in the future", facts(tried(2, time.Hour), up(-time.Hour)), leave},
		{"S17 attempts, and no start on record", facts(tried(2, time.Hour), func(f *Facts) { f.Record.Spawn.StartedAt = time.Time{} }), leave},

		// How a spawn ended.
		{"S08 a first death", facts(died(donation.ReasonCrash)), attempt(crash, true)},
		{"S08 a first death that is on record", facts(gone, dead), attempt(nil, true)},
		{"an end without an exit", facts(died(donation.ReasonCrash), noExit), attempt(unknown, true)},
		{"a death that is on record but not acknowledged", facts(died(donation.ReasonCrash), dead), settled(spawnNow, donation.SpawnExited, crash)},
		{"a death before its start was confirmed", facts(starting, died(donation.ReasonCrash)), attempt(crash, true)},
		{"a death that no guard saw", facts(gone, otherGuard), attempt(unknown, true)},
		{"a death that this guard has lost", facts(gone), attempt(unknown, true)},
		{"P13 no answer to a start yet", facts(starting, gone), Action{Kind: Resend, Spawn: spawnNow}},
		{
			"a start that its guard didn't live to see", facts(starting, gone, otherGuard),
			Action{Kind: Attempt, State: donation.SpawnLost, Exit: &donation.Exit{Reason: donation.ReasonLost, At: now}},
		},
		{"a reboot", facts(gone, otherBoot), attempt(&donation.Exit{Reason: donation.ReasonReboot, At: now}, false)},
		{
			"a node that lives although the guard doesn't know it", facts(gone, otherGuard, orphan),
			Action{Kind: Hold, Message: "process 7 is alive but the guard doesn't know it; kill 7 and the node comes back"},
		},
		{
			"the same, of an ended donation", facts(gone, otherGuard, orphan, status(donation.Terminated)),
			Action{Kind: Hold, Message: "process 7 is alive but the guard doesn't know it; kill 7 and its donation is cleaned up"},
		},

		// Ends that cost nothing.
		{"S26 a restart", facts(died(donation.ReasonRestart)), attempt(new(exit(donation.ReasonRestart)), false)},
		{"S26 a restart, and it died first", facts(intended(donation.ReasonRestart), died(donation.ReasonCrash)), attempt(crash, false)},
		{"S28 a restart, and the guard was lost with it", facts(intended(donation.ReasonRestart), gone, otherGuard), attempt(unknown, false)},
		{
			"S28 a restart on record as lost with the guard",
			facts(intended(donation.ReasonRestart), gone, ended(donation.SpawnExited, donation.ReasonGuardLost)), attempt(nil, false),
		},
		{"a lease that ran out", facts(died(donation.ReasonLeaseExpired), tried(5, 0)), attempt(new(exit(donation.ReasonLeaseExpired)), false)},
		{"an end that is on record without an exit", facts(gone, dead, func(f *Facts) { f.Record.Spawn.Exit = nil }), attempt(nil, false)},

		// Ends of ended donations.
		{"terminated, and it has ended", facts(status(donation.Terminated), died(donation.ReasonTerminate)), reclaim(new(exit(donation.ReasonTerminate)))},
		{"terminated, the end on record", facts(status(donation.Terminated), gone, dead), reclaim(nil)},
		{"terminated and never spawned", facts(status(donation.Terminated), neverSpawned), Action{Kind: Reclaim}},
		{
			"terminated and reclaimed, then a late start ended", facts(status(donation.Terminated), reclaimed, dead, died(donation.ReasonAbandoned)),
			reclaim(nil),
		},
		{"terminated, and its end was unseen", facts(status(donation.Terminated), gone, otherGuard), settled(spawnNow, donation.SpawnExited, unknown)},
		{
			"terminated before its start was answered", facts(status(donation.Terminated), starting, gone),
			settled(spawnNow, donation.SpawnLost, &donation.Exit{Reason: donation.ReasonAbandoned, At: now}),
		},
		{
			"a stop intended before its start was answered", facts(intended(donation.ReasonDrain), starting, gone),
			settled(spawnNow, donation.SpawnLost, &donation.Exit{Reason: donation.ReasonAbandoned, At: now}),
		},
		{"failed, and it has ended", facts(status(donation.Failed), died(donation.ReasonAbandoned)), reclaim(new(exit(donation.ReasonAbandoned)))},
		{
			"S13 given up, and it has ended: the workdir stays", facts(gaveUp, died(donation.ReasonGiveUp)),
			settled(spawnNow, donation.SpawnExited, new(exit(donation.ReasonGiveUp))),
		},
		{"given up, and it ended without an exit", facts(gaveUp, dead, died(donation.ReasonGiveUp), noExit), settled(spawnNow, donation.SpawnExited, unknown)},

		// The backoff. What is news is recorded before the wait.
		{"S09 too early, and news", facts(tried(1, 3*time.Second), died(donation.ReasonCrash)), settled(spawnNow, donation.SpawnExited, crash)},
		{"S09 too early", facts(tried(1, 3*time.Second), gone, dead), Action{Kind: Wait, At: now.Add(7 * time.Second)}},
		{"S09 at the moment", facts(tried(1, 10*time.Second), gone, dead), attempt(nil, true)},
		{"a retry ends the wait", facts(tried(4, time.Second), gone, dead, retryNow), attempt(nil, true)},

		// A drain stops what runs and starts nothing.
		{"a drain, and it runs", facts(drained), Action{Kind: Drain, Spawn: spawnNow}},
		{"a drain that is on record for it", facts(drained, intended(donation.ReasonDrain)), stop(spawnNow, donation.ReasonDrain)},
		{"a drain, and it is meant to restart", facts(drained, intended(donation.ReasonRestart)), stop(spawnNow, donation.ReasonRestart)},
		{"a drain, and no answer to its start yet", facts(drained, starting, gone), Action{Kind: Drain, Spawn: spawnNow}},
		{"a drain, and it has ended", facts(drained, died(donation.ReasonDrain)), settled(spawnNow, donation.SpawnExited, new(exit(donation.ReasonDrain)))},
		{"a drain, and its end is on record", facts(drained, gone, ended(donation.SpawnExited, donation.ReasonDrain)), leave},
		{"a drain, and it was to be tried again", facts(drained, tried(1, time.Hour), gone, dead), leave},
		{"a drain, and it is terminated", facts(drained, status(donation.Terminated)), stop(spawnNow, donation.ReasonTerminate)},
		{"after a drain", facts(gone, ended(donation.SpawnExited, donation.ReasonDrain)), attempt(nil, false)},

		// What can't be respawned.
		{"S07 inputs missing, and news", facts(inputsMissing, died(donation.ReasonCrash)), settled(spawnNow, donation.SpawnExited, crash)},
		{"S07 inputs missing", facts(inputsMissing, gone, dead), Action{
			Kind:    Hold,
			Message: "not respawnable: what the spawn needs can't be read from the record; terminate the donation and donate again",
		}},
		{"S07 inputs missing, and it runs", facts(inputsMissing), leave},

		// Too many attempts.
		{"S11 all attempts used, and news", facts(tried(5, time.Hour), died(donation.ReasonCrash)), settled(spawnNow, donation.SpawnExited, crash)},
		{"a retry is one attempt more", facts(tried(5, time.Second), gone, dead, retryNow), attempt(nil, true)},
		{"all attempts used, and a restart", facts(tried(5, time.Second), died(donation.ReasonRestart)), attempt(new(exit(donation.ReasonRestart)), false)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Decide(tt.f, defaults)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
