// This file holds the table of a process's states and the pure decisions about what happens to it next.

package guard

import (
	"fmt"
	"slices"
	"time"
)

// moves lists, for each state, the states that may follow it.
//
//	starting ──► running ──► stopping ──► exited ──► forgotten
//	    │           └────────────────────────▲
//	    └──► forgotten   (never started)
var moves = map[State][]State{
	StateStarting:  {StateRunning, StateForgotten},
	StateRunning:   {StateStopping, StateExited},
	StateStopping:  {StateExited},
	StateExited:    {StateForgotten},
	StateForgotten: {},
}

// checkMove returns an error that names both ends if from may not be followed by to.
func checkMove(from, to State) error {
	if slices.Contains(moves[from], to) {
		return nil
	}
	return fmt.Errorf("a process can't go from %s to %s", from, to)
}

// event is what may happen to a process.
type event string

const (
	// eventStop and eventForce are requests; eventGraceOver is the timer of the former.
	eventStop      event = "stop"
	eventForce     event = "force"
	eventGraceOver event = "grace over"
	// eventMainEnded: the process that was started has ended.
	eventMainEnded event = "main process ended"
	// eventSurvivors: something of the tree was alive when it was to be cleared, and has been sent SIGKILL.
	eventSurvivors event = "survivors"
	// eventTreeGone: the main process has ended and nothing of its tree is left.
	eventTreeGone event = "tree gone"
)

// facts are what a decision rests on.
type facts struct {
	state State
	// asked is true once somebody asked for the stop, killing once the tree is being cleared.
	asked, killing bool
}

// decision is the state that follows, and what is to be done.
type decision struct {
	next State
	// signal: send the stop signal and start the grace. kill: clear the whole tree now.
	signal, kill bool
	// later: nothing can be signalled yet; act when it runs.
	later bool
}

// decide says what an event means for a process. It is total: an event that means nothing leaves all as it is.
func decide(f facts, e event) decision {
	d := decision{next: f.state}
	switch f.state {
	case StateStarting:
		d.later = e == eventStop || e == eventForce
	case StateRunning, StateStopping:
		switch e {
		case eventStop:
			d.next, d.signal = StateStopping, !f.asked && !f.killing
		case eventForce:
			d.next, d.kill = StateStopping, !f.killing
		case eventGraceOver:
			d.kill = f.state == StateStopping && !f.killing
		case eventMainEnded:
			// The state moves when it turns out that something else is alive: usually nothing is.
			d.kill = !f.killing
		case eventSurvivors:
			d.next = StateStopping
		case eventTreeGone:
			d.next = StateExited
		}
	case StateExited, StateForgotten:
	}
	return d
}

// graceLeft is what is left, at now, of the grace of a stop whose kill falls due at killAt; never more than
// the grace, so that a clock that was set can't prolong it.
func graceLeft(grace time.Duration, killAt, now time.Time) time.Duration {
	return min(max(killAt.Sub(now), 0), grace)
}

// The waits between two attempts to clear a tree.
const (
	sweepFirst = 500 * time.Microsecond
	sweepMost  = time.Second
)

// nextSweep doubles the wait up to the longest one.
func nextSweep(d time.Duration) time.Duration { return min(max(2*d, sweepFirst), sweepMost) }
