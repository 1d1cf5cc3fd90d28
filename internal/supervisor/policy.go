// Package supervisor keeps every node that should be running running: it is told which donations are
// dirty, looks at each, decides with a pure function what to do, and has the donation service do it.
//
// This file is the decision: facts in, one action out, no I/O and no clock. Supervisor.reconcile applies
// it again and again until there is nothing left to do now.
package supervisor

import (
	"fmt"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Limits are the constants of the policy (docs/conformance.md); all are configuration keys.
type Limits struct {
	// MaxAttempts is how many respawns are tried before giving up.
	MaxAttempts int
	// BackoffBase and BackoffCap: after n attempts the next comes min(base·2ⁿ, cap) after the last.
	BackoffBase time.Duration
	BackoffCap  time.Duration
	// RefillAfter is the node's uptime that sets the attempts back to 0.
	RefillAfter time.Duration
}

// Facts is all that a decision depends on.
type Facts struct {
	Record donation.Record
	Seen   donation.Observation
	// InFlight is true while a provision owns the donation.
	InFlight bool
	// OrphanAlive is true when the process on record is alive although the guard doesn't know it.
	OrphanAlive bool
	// Draining is true once every node is to be stopped and none to be started.
	Draining bool
	Now      time.Time
}

// Kind is what an Action does.
type Kind string

// The kinds of actions.
const (
	// Leave: nothing to do now; the next trigger will tell.
	Leave Kind = "leave"
	// Wait: nothing to do before Action.At.
	Wait Kind = "wait"
	// Hold: nothing can be done, for the reason in Action.Message; it charges nothing.
	Hold Kind = "hold"
	// Confirm: the process of a starting spawn exists; put it on record.
	Confirm Kind = "confirm"
	// Resend: the start has no definite answer yet; send the same spawn again.
	Resend Kind = "resend"
	// Settle: a spawn has ended; put its Exit on record and let the guard forget it.
	Settle Kind = "settle"
	// Attempt: begin a respawn, with the old Exit if it is news.
	Attempt Kind = "attempt"
	// GiveUp: too many attempts; end the donation with Action.Message.
	GiveUp Kind = "give-up"
	// Stop: a process lives that the record doesn't want.
	Stop Kind = "stop"
	// Drain: every node is to stop; put the intention on record for this one.
	Drain Kind = "drain"
	// Refill: the node has been up for long; set the attempts to 0.
	Refill Kind = "refill"
	// Reclaim: an ended donation has no process any more; delete its workdir.
	Reclaim Kind = "reclaim"
)

// Action is one decision.
type Action struct {
	Kind Kind
	// At is the moment that Wait waits for.
	At time.Time
	// Spawn is the one that Settle and Stop are about.
	Spawn donation.SpawnID
	// State and Exit are what Settle writes; they are also the news that Attempt and Reclaim carry.
	State donation.SpawnState
	Exit  *donation.Exit
	// Charge says whether Attempt counts.
	Charge bool
	// Reason is given to the guard with Stop.
	Reason donation.Reason
	// Message is for GiveUp and Hold.
	Message string
}

// Decide says what is to be done for one donation. It is total: any facts give an action.
func Decide(f Facts, l Limits) Action {
	if !f.Seen.Connected || f.InFlight {
		return Action{Kind: Leave}
	}
	current, alive, act := survey(f)
	if act != nil {
		return *act
	}
	rec := f.Record
	if !rec.Status.IsSupervised() && !rec.Status.IsEnding() {
		// Provisioning: the provision in flight owns it; if that died, the reap of stale provisionings ends it.
		return Action{Kind: Leave}
	}
	if rec.Spawn == nil {
		return decideNeverSpawned(rec)
	}
	if alive {
		return decideAlive(f, l, *current)
	}
	return decideGone(f, l, current)
}

// survey looks at the processes: it returns the current spawn's (nil if the guard doesn't know it), whether
// that one is alive, and an action if a process of an older spawn needs one first.
func survey(f Facts) (current *donation.Process, alive bool, act *Action) {
	for i := range f.Seen.Processes {
		p := &f.Seen.Processes[i]
		if f.Record.Spawn != nil && p.Spawn == f.Record.Spawn.ID {
			current = p
			continue
		}
		if p.State == donation.ProcessExited {
			return nil, false, &Action{Kind: Settle, Spawn: p.Spawn, State: donation.SpawnExited, Exit: exitOf(p, f.Now)}
		}
		if p.State != donation.ProcessStopping {
			return nil, false, &Action{Kind: Stop, Spawn: p.Spawn, Reason: donation.ReasonAbandoned}
		}
		// A former process is on its way out: its exit will be the next trigger.
		act = &Action{Kind: Leave}
	}
	if act != nil {
		return nil, false, act
	}
	return current, current != nil && current.State != donation.ProcessExited, nil
}

func decideNeverSpawned(rec donation.Record) Action {
	if rec.Status.IsEnding() && mustReclaim(rec, false) {
		return Action{Kind: Reclaim}
	}
	return Action{Kind: Leave}
}

// mustReclaim reports whether an ended donation's workdir has to go: after a terminate, and after a
// provision that failed; a give-up keeps it for retry.
func mustReclaim(rec donation.Record, hadProcess bool) bool {
	keeps := rec.Status == donation.Failed && rec.GaveUp
	return !keeps && (rec.HasWorkdir || hadProcess)
}

// decideAlive is for a current spawn whose process lives.
func decideAlive(f Facts, l Limits, p donation.Process) Action {
	rec, sp := f.Record, f.Record.Spawn
	switch {
	case p.State == donation.ProcessStopping:
		return Action{Kind: Leave} // its exit is the next trigger
	case p.State == donation.ProcessStarting:
		return Action{Kind: Leave} // the guard is at it; the answer is the next trigger
	case rec.Status == donation.Terminated:
		return Action{Kind: Stop, Spawn: sp.ID, Reason: donation.ReasonTerminate}
	case rec.Status == donation.Failed && rec.GaveUp:
		return Action{Kind: Stop, Spawn: sp.ID, Reason: donation.ReasonGiveUp}
	case rec.Status == donation.Failed, sp.State.Ended():
		return Action{Kind: Stop, Spawn: sp.ID, Reason: donation.ReasonAbandoned}
	case sp.StopReason != "":
		return Action{Kind: Stop, Spawn: sp.ID, Reason: sp.StopReason}
	case sp.State == donation.SpawnStarting:
		return Action{Kind: Confirm, Spawn: sp.ID}
	case f.Draining:
		return Action{Kind: Drain, Spawn: sp.ID}
	case rec.Attempts > 0:
		return decideRefill(f, l)
	}
	return Action{Kind: Leave}
}

// decideRefill is for a healthy node with attempts on its record: they go after enough uptime of its own.
func decideRefill(f Facts, l Limits) Action {
	started := f.Record.Spawn.StartedAt
	if started.IsZero() || started.After(f.Now) {
		return Action{Kind: Leave} // the clock was set back: not due, the sweep looks again
	}
	if due := started.Add(l.RefillAfter); f.Now.Before(due) {
		return Action{Kind: Wait, At: due}
	}
	return Action{Kind: Refill}
}

// decideGone is for a current spawn whose process is not alive; p is its unacknowledged exit, or nil.
func decideGone(f Facts, l Limits, p *donation.Process) Action {
	rec, sp := f.Record, f.Record.Spawn
	if sp.State.Ended() && p != nil && !rec.Status.IsEnding() {
		// On record already: only the acknowledgement is missing.
		return Action{Kind: Settle, Spawn: sp.ID, State: donation.SpawnExited, Exit: exitOf(p, f.Now)}
	}
	var news *donation.Exit
	state := donation.SpawnExited
	if !sp.State.Ended() {
		if news, state = howItEnded(f, p); news == nil {
			return decideUnanswered(f)
		}
	}
	settle := Action{Kind: Settle, Spawn: sp.ID, State: state, Exit: news}
	if rec.Status.IsEnding() {
		switch {
		case news != nil && p == nil:
			return settle
		case mustReclaim(rec, p != nil):
			return Action{Kind: Reclaim, Spawn: sp.ID, State: state, Exit: news}
		case p != nil:
			return Action{Kind: Settle, Spawn: sp.ID, State: state, Exit: exitOf(p, f.Now)}
		}
		return Action{Kind: Leave}
	}
	return decideRespawn(f, l, settle)
}

// exitOf returns the exit of a process that has ended. One that comes without is an unknown end: the guard
// never sends that, and if it did, a node must not stay down for it.
func exitOf(p *donation.Process, now time.Time) *donation.Exit {
	if p.Exit == nil {
		return &donation.Exit{Reason: donation.ReasonGuardLost, At: now}
	}
	return p.Exit
}

// howItEnded returns the news of a spawn that the record believes in and that has no living process: its
// exit and the state to record; nil when nothing definite is known yet.
func howItEnded(f Facts, p *donation.Process) (*donation.Exit, donation.SpawnState) {
	sp := f.Record.Spawn
	switch {
	case p != nil:
		return exitOf(p, f.Now), donation.SpawnExited
	case sp.State == donation.SpawnStarting && sp.Guard == f.Seen.Instance:
		return nil, "" // this guard may still be about to start it
	case sp.State == donation.SpawnStarting:
		return &donation.Exit{Reason: donation.ReasonLost, At: f.Now}, donation.SpawnLost
	case sp.Identity.BootID != f.Seen.BootID:
		return &donation.Exit{Reason: donation.ReasonReboot, At: f.Now}, donation.SpawnExited
	case f.OrphanAlive:
		return nil, ""
	}
	return &donation.Exit{Reason: donation.ReasonGuardLost, At: f.Now}, donation.SpawnExited
}

// decideUnanswered is for a spawn of which nothing definite is known.
func decideUnanswered(f Facts) Action {
	rec, sp := f.Record, f.Record.Spawn
	switch {
	case sp.State == donation.SpawnRunning:
		then := "the node comes back"
		if rec.Status.IsEnding() {
			then = "its donation is cleaned up"
		}
		return Action{Kind: Hold, Message: fmt.Sprintf(
			"process %d is alive but the guard doesn't know it; kill %d and %s", sp.Identity.PID, sp.Identity.PID, then)}
	case rec.Status.IsEnding() || sp.StopReason != "":
		// It was never confirmed and isn't wanted any more. Should the guard start it after all, late, then its
		// process is one that the record doesn't want, and is stopped.
		return Action{Kind: Settle, Spawn: sp.ID, State: donation.SpawnLost, Exit: &donation.Exit{Reason: donation.ReasonAbandoned, At: f.Now}}
	}
	if f.Draining {
		return Action{Kind: Drain, Spawn: sp.ID}
	}
	return Action{Kind: Resend, Spawn: sp.ID}
}

// decideRespawn is for a supervised donation whose last spawn has ended. How is on record, or is the news
// that settle brings.
func decideRespawn(f Facts, l Limits, settle Action) Action {
	rec, news, last := f.Record, settle.Exit, f.Record.Spawn.Exit
	if news != nil {
		last = news
	}
	if f.Draining {
		if news != nil {
			return settle
		}
		return Action{Kind: Leave} // the next start finds it
	}
	if rec.InputsMissing {
		if news != nil {
			return settle
		}
		return Action{Kind: Hold, Message: "not respawnable: what the spawn needs can't be read from the record; terminate the donation and donate again"}
	}
	if last == nil || !last.Reason.Charged() || rec.Spawn.StopReason != "" {
		// A stop that was intended is never charged, however the end then came about.
		return Action{Kind: Attempt, State: settle.State, Exit: news}
	}
	if rec.Attempts >= l.MaxAttempts && !rec.RetryNow {
		if news != nil {
			return settle
		}
		return Action{Kind: GiveUp, Message: giveUpMessage(rec.Attempts, *last)}
	}
	if at := NextAttempt(rec.Donation, l, f.Now); at.After(f.Now) {
		if news != nil {
			return settle
		}
		return Action{Kind: Wait, At: at}
	}
	return Action{Kind: Attempt, State: settle.State, Exit: news, Charge: true}
}

func giveUpMessage(attempts int, last donation.Exit) string {
	if last.Reason == donation.ReasonStartFailed {
		return fmt.Sprintf("respawn gave up after %d attempts: %s", attempts, last)
	}
	return fmt.Sprintf("respawn gave up after %d attempts: the node did not stay running (last exit: %s)", attempts, last)
}

// NextAttempt returns the earliest moment of the next charged attempt. A last attempt that is unknown or
// lies in the future (the clock was set back) never wedges: the next may come at once.
func NextAttempt(d donation.Donation, l Limits, now time.Time) time.Time {
	if d.Attempts <= 0 || d.RetryNow || d.LastAttempt.IsZero() || d.LastAttempt.After(now) {
		return now
	}
	return d.LastAttempt.Add(Backoff(d.Attempts, l))
}

// Backoff returns min(base·2ⁿ, cap) without overflowing, for any n at once.
func Backoff(attempts int, l Limits) time.Duration {
	d := l.BackoffBase
	for range attempts {
		if d > l.BackoffCap-d {
			return l.BackoffCap // doubled it would pass the cap
		}
		if d <= 0 {
			break
		}
		d *= 2
	}
	return min(d, l.BackoffCap)
}
