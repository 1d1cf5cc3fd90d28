// Package api is the admin surface: HTTP/JSON over the unix socket, its server and its Go client.
//
// This file holds the types that both sides share and what the server asks of the daemon.
package api

import (
	"context"
	"io"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Overview is the daemon's own state.
type Overview struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	StateDir  string    `json:"state_dir"`
	NodesDir  string    `json:"nodes_dir,omitempty"`
	// Mode is "starting", "running", "caretaker", "draining" or "stopping".
	Mode  string     `json:"mode"`
	Guard GuardState `json:"guard"`
	// Faults are what the owner should know, each naming the thing, the reason and the remedy.
	Faults []Fault `json:"faults"`
	// Counts are the donations by status.
	Counts map[donation.Status]int `json:"counts"`
	// Templates are the names that a donation may be made from, sorted; empty while there is no configuration.
	Templates []string `json:"templates,omitempty"`
}

// GuardState is what the daemon knows of its guard.
type GuardState struct {
	// State is "connected", "silent" (it holds its lock but doesn't answer), or "absent".
	State     string `json:"state"`
	PID       int    `json:"pid,omitempty"`
	Instance  string `json:"instance,omitempty"`
	Version   string `json:"version,omitempty"`
	Tracking  string `json:"tracking,omitempty"`
	Root      bool   `json:"root"`
	Processes int    `json:"processes"`
}

// Fault is one thing that is wrong.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// View is a donation as its host sees it. It holds no token.
type View struct {
	ID       donation.ID     `json:"id"`
	Name     string          `json:"name,omitempty"`
	Template string          `json:"template"`
	Status   donation.Status `json:"status"`
	Message  string          `json:"message,omitempty"`
	// Hold says what keeps the node from being respawned without a charge, e.g. its template is gone.
	Hold string `json:"hold,omitempty"`
	// Running is true while the main process is alive; Ready when the template's readiness held.
	Running   bool       `json:"running"`
	Ready     bool       `json:"ready"`
	PID       int        `json:"pid,omitempty"`
	Spawn     string     `json:"spawn,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	// StopSince and KillSince are set while it is being stopped.
	StopSince   *time.Time     `json:"stop_since,omitempty"`
	KillSince   *time.Time     `json:"kill_since,omitempty"`
	Generation  int64          `json:"generation"`
	Attempts    int            `json:"attempts"`
	MaxAttempts int            `json:"max_attempts"`
	NextAttempt *time.Time     `json:"next_attempt,omitempty"`
	Ports       map[string]int `json:"ports"`
	UID         uint32         `json:"uid,omitempty"`
	Workdir     string         `json:"workdir,omitempty"`
	LastExit    *ExitView      `json:"last_exit,omitempty"`
	// Lease is how long the node outlives its host; nil if it has none, or doesn't run.
	Lease     *LeaseView `json:"lease,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	// Spawns is the history, newest first; only when one donation was asked for.
	Spawns []SpawnView `json:"spawns,omitempty"`
}

// LeaseView is a node's lease.
type LeaseView struct {
	// TTLSeconds is how long a renewal lasts. ExpiresAt is the last expiry that was confirmed.
	TTLSeconds float64    `json:"ttl_seconds"`
	ExpiresAt  time.Time  `json:"expires_at"`
	RenewedAt  *time.Time `json:"renewed_at,omitempty"`
	// Failures counts the renewals that failed in a row since; LastError says what of.
	Failures  int    `json:"failures,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// Low is true while less than a quarter of the TTL is left, which healthy renewals never let happen.
	Low bool `json:"low,omitempty"`
	// History is what happened to it, newest first; only when one donation was asked for.
	History []donation.Event `json:"history,omitempty"`
}

// ExitView is how a spawn ended.
type ExitView struct {
	// Words say it, e.g. "killed by SIGKILL".
	Words  string          `json:"words"`
	Reason donation.Reason `json:"reason"`
	Known  bool            `json:"known"`
	Code   int             `json:"code"`
	Signal int             `json:"signal,omitempty"`
	OOM    bool            `json:"oom,omitempty"`
	// CPUSeconds and MaxRSS (bytes) are what the process used; 0 is unknown.
	CPUSeconds float64   `json:"cpu_seconds,omitempty"`
	MaxRSS     int64     `json:"max_rss,omitempty"`
	At         time.Time `json:"at"`
}

// SpawnView is one spawn of the history.
type SpawnView struct {
	ID         donation.SpawnID    `json:"id"`
	Generation int64               `json:"generation"`
	State      donation.SpawnState `json:"state"`
	PID        int                 `json:"pid,omitempty"`
	Begun      time.Time           `json:"begun"`
	StartedAt  *time.Time          `json:"started_at,omitempty"`
	ReadyAt    *time.Time          `json:"ready_at,omitempty"`
	Exit       *ExitView           `json:"exit,omitempty"`
}

// Backend is the daemon as the server needs it. Refs are ids, unique id prefixes or names. Errors are
// *donation.Error where the caller can act on them.
type Backend interface {
	// Overview never fails: what can't be known is a fault in it.
	Overview(ctx context.Context) Overview
	// Donations lists all that haven't been terminated, or all.
	Donations(ctx context.Context, all bool) ([]View, error)
	// Donation returns one, with its history.
	Donation(ctx context.Context, ref string) (View, error)
	// Donate provisions; it returns once the process runs, not when it is ready.
	Donate(ctx context.Context, r donation.Request) (View, error)
	// Terminate returns when the tree is gone and reclaimed; CodeStillStopping when ctx ends before.
	Terminate(ctx context.Context, ref string, force bool) (View, error)
	// Restart stops the node and returns once the stop is on record and begun.
	Restart(ctx context.Context, ref string) (View, error)
	// Retry revives a give-up, or ends the wait for the next attempt.
	Retry(ctx context.Context, ref string) (View, error)
	// Seed presents a seed to the donation's node; CodeSeedRejected with its reason, CodeSeedFailed, CodeAbandoned.
	Seed(ctx context.Context, ref string, seed []byte) (donation.SeedResult, error)
	// Peer returns how the node is known to its cadre, read fresh; CodePeerUnavailable until it can tell.
	Peer(ctx context.Context, ref string) (donation.Peer, error)
	// Drain begins to stop every node in order, after which the daemon leaves. It returns at once.
	Drain(ctx context.Context) error
	// Logs writes the last lines (negative: all) of the node's output to w and, with follow, what comes until ctx ends.
	Logs(ctx context.Context, ref string, lines int, follow bool, w io.Writer) error
	// Events returns events after seq, oldest first, limit at most; ref "" means of all donations.
	Events(ctx context.Context, ref string, after int64, limit int) ([]donation.Event, error)
	// LastSeq is the newest event's number.
	LastSeq(ctx context.Context) (int64, error)
	// Changed returns a channel that is closed at the next change. Ask before reading.
	Changed() <-chan struct{}
}
