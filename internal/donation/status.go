// This file holds the statuses of donations and spawns and the table of legal transitions.

package donation

import (
	"fmt"
	"slices"
)

// Status is where a donation is in its life.
type Status string

// The statuses of a donation.
const (
	Provisioning Status = "provisioning"
	AwaitingSeed Status = "awaiting_seed"
	Seeded       Status = "seeded"
	Failed       Status = "error"
	Terminated   Status = "terminated"
)

// Supervised are the statuses in which the node is expected to be running.
var Supervised = []Status{AwaitingSeed, Seeded}

// Live are the statuses that count against a quota.
var Live = []Status{Provisioning, AwaitingSeed, Seeded}

// IsSupervised reports whether the node is expected to be running.
func (s Status) IsSupervised() bool { return slices.Contains(Supervised, s) }

// IsLive reports whether the donation counts against its quota.
func (s Status) IsLive() bool { return slices.Contains(Live, s) }

// IsEnding reports whether the status is terminal on its own.
func (s Status) IsEnding() bool { return s == Failed || s == Terminated }

// transitions lists, for each status, the statuses that may follow it. Failed goes back to what it was
// only by retry after a give-up; the store checks that with the row's gave_up in the same statement.
var transitions = map[Status][]Status{
	Provisioning: {AwaitingSeed, Seeded, Failed, Terminated},
	AwaitingSeed: {Seeded, Failed, Terminated},
	Seeded:       {Failed, Terminated},
	Failed:       {AwaitingSeed, Seeded, Terminated},
	Terminated:   {},
}

// Statuses returns every status, in the order of a donation's life.
func Statuses() []Status {
	return []Status{Provisioning, AwaitingSeed, Seeded, Failed, Terminated}
}

// From returns the statuses that may be followed by to; a compare-and-set names them.
func From(to Status) []Status {
	var from []Status
	for _, s := range Statuses() {
		if slices.Contains(transitions[s], to) {
			from = append(from, s)
		}
	}
	return from
}

// CheckTransition returns an error that names both ends if from may not be followed by to.
func CheckTransition(from, to Status) error {
	if slices.Contains(transitions[from], to) {
		return nil
	}
	return &Error{Code: CodeInvalidState, Message: fmt.Sprintf("a donation can't go from %s to %s", from, to)}
}

// SpawnState is where a spawn is in its life; it moves one way.
type SpawnState string

// The states of a spawn.
const (
	// SpawnStarting: recorded; the guard has not given a definite answer yet.
	SpawnStarting SpawnState = "starting"
	// SpawnRunning: the guard started it and its identity is on record.
	SpawnRunning SpawnState = "running"
	// SpawnExited: it ran and has ended.
	SpawnExited SpawnState = "exited"
	// SpawnFailed: the guard could not start it.
	SpawnFailed SpawnState = "failed"
	// SpawnLost: a guard of another instance doesn't know it, so it never ran.
	SpawnLost SpawnState = "lost"
)

// Ended reports whether nothing more can happen to the spawn.
func (s SpawnState) Ended() bool { return s == SpawnExited || s == SpawnFailed || s == SpawnLost }
