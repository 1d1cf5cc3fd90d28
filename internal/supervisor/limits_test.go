// This file tests the policy's numbers and messages, and that it decides whatever it is given.

package supervisor

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestS09_BackoffDoublesToTheCap(t *testing.T) {
	for attempts, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300} {
		want(t, "backoff", Backoff(attempts, defaults), time.Duration(seconds)*time.Second)
	}
	for _, tt := range []struct {
		name     string
		attempts int
		limits   Limits
		want     time.Duration
	}{
		{"a huge number of attempts doesn't overflow", math.MaxInt, defaults, 5 * time.Minute},
		{"a cap beyond half of all time doesn't either", 100, Limits{BackoffBase: time.Second, BackoffCap: math.MaxInt64}, math.MaxInt64},
		{"a base above the cap", 1, Limits{BackoffBase: time.Hour, BackoffCap: time.Minute}, time.Minute},
		{"no base", math.MaxInt, Limits{BackoffCap: time.Minute}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) { want(t, "backoff", Backoff(tt.attempts, tt.limits), tt.want) })
	}
}

func TestS09_NextAttemptIsCountedFromTheLast(t *testing.T) {
	for attempts, seconds := range map[int]int{1: 10, 2: 20, 3: 40, 4: 80, 5: 160, 6: 300, 60: 300} {
		d := donation.Donation{Attempts: attempts, LastAttempt: now.Add(-time.Second)}
		want(t, "next attempt", NextAttempt(d, defaults, now).Sub(d.LastAttempt), time.Duration(seconds)*time.Second)
	}
}

func TestS17_AnImpossibleLastAttemptNeverWedges(t *testing.T) {
	for name, d := range map[string]donation.Donation{
		"unreadable":        {Attempts: 3},
		"in the future":     {Attempts: 3, LastAttempt: now.Add(time.Hour)},
		"at the end of all": {Attempts: 3, LastAttempt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"negative attempts": {Attempts: -1, LastAttempt: now},
	} {
		t.Run(name, func(t *testing.T) {
			if at := NextAttempt(d, defaults, now); at.After(now.Add(defaults.BackoffCap)) {
				t.Errorf("the next attempt comes at %s, more than one cap from now", at)
			}
		})
	}
}

func TestGiveUpMessages(t *testing.T) {
	dead := func(e donation.Exit) Facts {
		return facts(tried(5, time.Hour), gone, func(f *Facts) { f.Record.Spawn.State, f.Record.Spawn.Exit = donation.SpawnExited, &e })
	}
	for _, tt := range []struct {
		name string
		exit donation.Exit
		want string
	}{
		{
			"S11 the last one could not be started",
			donation.Exit{Reason: donation.ReasonStartFailed, Message: "exec node: no such file or directory"},
			"respawn gave up after 5 attempts: did not start: exec node: no such file or directory",
		},
		{
			"S12 the last one died", exit(donation.ReasonCrash),
			"respawn gave up after 5 attempts: the node did not stay running (last exit: exit status 3)",
		},
		{
			"S12 the last one was killed for want of memory",
			donation.Exit{Reason: donation.ReasonCrash, Known: true, Signal: 9, OOM: true},
			"respawn gave up after 5 attempts: the node did not stay running (last exit: killed by SIGKILL (out of memory))",
		},
		{
			"S12 the last one's end was unseen", *unknown,
			"respawn gave up after 5 attempts: the node did not stay running (last exit: unknown (guard lost))",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			act := Decide(dead(tt.exit), defaults)
			want(t, "kind", act.Kind, GiveUp)
			want(t, "message", act.Message, tt.want)
		})
	}
}

// TestDecideIsTotal: whatever is found, there is an answer, and it is never to start what must not be started.
func TestDecideIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, l := anyFacts(t), anyLimits(t)
		act := Decide(f, l)
		alive := f.OrphanAlive && f.Record.Spawn != nil && f.Record.Spawn.State == donation.SpawnRunning &&
			f.Record.Spawn.Identity.BootID == f.Seen.BootID
		for _, p := range f.Seen.Processes {
			alive = alive || p.State != donation.ProcessExited
		}
		supervised := f.Record.Status.IsSupervised() && f.Record.Spawn != nil && !f.Record.InputsMissing && !f.InFlight && f.Seen.Connected
		switch act.Kind {
		case Attempt:
			if alive || !supervised {
				t.Fatalf("an attempt, alive %t, supervised %t", alive, supervised)
			}
			if act.Charge && f.Record.Attempts >= l.MaxAttempts && !f.Record.RetryNow {
				t.Fatalf("attempt %d of %d", f.Record.Attempts+1, l.MaxAttempts)
			}
		case GiveUp:
			if alive || !supervised || f.Record.Attempts < l.MaxAttempts {
				t.Fatalf("a give-up, alive %t, supervised %t, attempts %d", alive, supervised, f.Record.Attempts)
			}
		case Resend:
			if !supervised && !f.Record.InputsMissing || f.Record.Spawn.State != donation.SpawnStarting || alive {
				t.Fatalf("a start is sent again, spawn %+v", f.Record.Spawn)
			}
		case Settle:
			if act.Exit == nil || !act.State.Ended() {
				t.Fatalf("settled without an end: %+v", act)
			}
		case Refill:
			if f.Record.Attempts <= 0 || f.Now.Sub(f.Record.Spawn.StartedAt) < l.RefillAfter {
				t.Fatalf("refilled after %s", f.Now.Sub(f.Record.Spawn.StartedAt))
			}
		case Reclaim:
			if alive || !f.Record.Status.IsEnding() || f.Record.GaveUp && f.Record.Status == donation.Failed {
				t.Fatalf("reclaimed, alive %t, status %s", alive, f.Record.Status)
			}
		case Wait:
			if !act.At.After(f.Now) {
				t.Fatalf("waits for %s at %s", act.At, f.Now)
			}
		case Leave, Hold, Confirm, Stop:
		default:
			t.Fatalf("unknown action %q", act.Kind)
		}
	})
}

func anyLimits(t *rapid.T) Limits {
	return Limits{
		MaxAttempts: rapid.IntRange(0, 6).Draw(t, "max"),
		BackoffBase: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "base")),
		BackoffCap:  time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "cap")),
		RefillAfter: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "refill")),
	}
}

func anyFacts(t *rapid.T) Facts {
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return now.Add(time.Duration(rapid.Int64Range(-int64(24*time.Hour), int64(24*time.Hour)).Draw(t, "ago")))
	})
	reason := rapid.SampledFrom([]donation.Reason{
		"", "odd", donation.ReasonCrash, donation.ReasonStartFailed, donation.ReasonGuardLost,
		donation.ReasonLost, donation.ReasonReboot, donation.ReasonTerminate, donation.ReasonRestart, donation.ReasonGiveUp, donation.ReasonLeaseExpired,
	})
	anyExit := rapid.Ptr(rapid.Custom(func(t *rapid.T) donation.Exit { return donation.Exit{Reason: reason.Draw(t, "reason")} }), true)
	spawn := rapid.Custom(func(t *rapid.T) donation.Spawn {
		return donation.Spawn{
			ID: spawnNow, StartedAt: moment.Draw(t, "started"), StopReason: reason.Draw(t, "stop"), Exit: anyExit.Draw(t, "exit"),
			State: rapid.SampledFrom([]donation.SpawnState{
				"", donation.SpawnStarting, donation.SpawnRunning, donation.SpawnExited,
				donation.SpawnFailed, donation.SpawnLost,
			}).Draw(t, "state"),
			Guard:    rapid.SampledFrom([]string{"guard-1", "guard-2"}).Draw(t, "guard"),
			Identity: donation.Identity{BootID: rapid.SampledFrom([]string{"boot-1", "boot-2"}).Draw(t, "boot")},
		}
	})
	proc := rapid.Custom(func(t *rapid.T) donation.Process {
		return donation.Process{
			Spawn: rapid.SampledFrom([]donation.SpawnID{spawnNow, spawnOld, "spn_older"}).Draw(t, "spawn"), Exit: anyExit.Draw(t, "exit"),
			State: rapid.SampledFrom([]donation.ProcessState{
				"", donation.ProcessStarting, donation.ProcessRunning, donation.ProcessStopping,
				donation.ProcessExited,
			}).Draw(t, "state"),
		}
	})
	return Facts{
		Record: donation.Record{
			Donation: donation.Donation{
				Status: rapid.SampledFrom(append(donation.Statuses(), "")).Draw(t, "status"),
				GaveUp: rapid.Bool().Draw(t, "gave up"), RetryNow: rapid.Bool().Draw(t, "retry"),
				InputsMissing: rapid.Bool().Draw(t, "inputs missing"), HasWorkdir: rapid.Bool().Draw(t, "workdir"),
				Attempts: rapid.IntRange(-1, 7).Draw(t, "attempts"), LastAttempt: moment.Draw(t, "last"),
			},
			Spawn: rapid.Ptr(spawn, true).Draw(t, "spawn"),
		},
		Seen: donation.Observation{
			Connected: rapid.Bool().Draw(t, "connected"), Instance: "guard-1", BootID: "boot-1",
			Processes: rapid.SliceOfNDistinct(proc, 0, 3, func(p donation.Process) donation.SpawnID { return p.Spawn }).Draw(t, "processes"),
		},
		InFlight: rapid.Bool().Draw(t, "in flight"), OrphanAlive: rapid.Bool().Draw(t, "orphan"), Now: now,
	}
}
