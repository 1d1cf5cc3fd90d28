// This file holds what the domain asks of the store and of the orchestrator. Each interface's comments
// are the contract that its implementations are tested against.

package donation

import (
	"context"
	"errors"
	"time"
)

// ErrConflict is returned by a compare-and-set whose expectation no longer holds: the record has moved
// on (an ending landed, another spawn began). Nothing was written. Read again and decide again.
var ErrConflict = errors.New("the record has changed meanwhile")

// NewDonation is what Store.Create writes.
type NewDonation struct {
	ID      ID
	Request Request
	// PortNames are the ports to allocate, in order.
	PortNames []string
	// PortFree reports whether nobody else holds the port now. It is asked inside the transaction.
	PortFree func(port int) bool
	// UIDs is the range to allocate a user from; zero Min means none.
	UIDs  UIDRange
	Spawn NewSpawn
}

// UIDRange is an inclusive range of user ids.
type UIDRange struct{ Min, Max uint32 }

// NewSpawn is the record of a spawn about to be started.
type NewSpawn struct {
	ID           SpawnID
	SeedToken    Secret
	StartupToken Secret
	TemplateHash string
	Guard        string
}

// Respawn is step 1 of a respawn: one transaction.
type Respawn struct {
	ID ID
	// Generation is the one the decision was made on; a different one on record is ErrConflict.
	Generation int64
	// Exit is the old spawn's end, if it isn't on record yet.
	Exit *Exit
	// Charge adds one to the attempts and stamps the time.
	Charge bool
	Spawn  NewSpawn
}

// Store keeps the records. Every change is one compare-and-set transaction with its events; a change that
// no longer applies is ErrConflict. A record that doesn't exist is an Error with CodeNotFound. Writes
// are durable when they return, and are not undone by the cancellation of ctx once begun.
type Store interface {
	// Create writes a provisioning donation, its ports, its uid and its first spawn (generation 1). It
	// returns CodePortsExhausted, CodeNameTaken (a live donation has the name), or the record.
	Create(ctx context.Context, d NewDonation) (Record, error)
	// Get returns one record.
	Get(ctx context.Context, id ID) (Record, error)
	// List returns the records that f selects, oldest first. Rows that can't be read don't sink the
	// others: they are reported joined in the error beside the good ones.
	List(ctx context.Context, f Filter) ([]Record, error)
	// Resolve finds the one donation that ref names: a full id, the name of a donation that hasn't
	// been terminated, a unique id prefix (with or without "don_"), or the name of the last one that was
	// terminated. CodeNotFound, CodeAmbiguous.
	Resolve(ctx context.Context, ref string) (ID, error)
	// Spawns returns the spawns of a donation, newest first, limit at most.
	Spawns(ctx context.Context, id ID, limit int) ([]Spawn, error)

	// BeginRespawn records the old exit, the attempt and the new spawn, where the donation is
	// supervised, its generation is as expected and its latest spawn has ended or Exit ends it. A Charge
	// for an end that isn't charged, as it stands on record, is ErrConflict. It clears RetryNow and
	// returns the new record.
	BeginRespawn(ctx context.Context, r Respawn) (Record, error)
	// SpawnStarted moves a starting spawn to running. If to isn't empty the donation goes there from
	// provisioning, in the same transaction. ErrConflict if the spawn isn't starting any more, or the
	// donation has ended: then the spawn is recorded as running all the same (it exists), with its
	// StopReason set to abandoned, so that the next look stops it.
	SpawnStarted(ctx context.Context, spawn SpawnID, ident Identity, startedAt time.Time, to Status) error
	// SpawnReady stamps ReadyAt of a running spawn, once.
	SpawnReady(ctx context.Context, spawn SpawnID, at time.Time) error
	// SpawnEnded records how a spawn ended, from any state that isn't an end. Recorded twice, the
	// second is a no-op. An Exit whose Reason is crash or guard-lost takes the recorded StopReason
	// instead, if any.
	SpawnEnded(ctx context.Context, spawn SpawnID, state SpawnState, exit Exit) error
	// IntendStop records why a starting or running spawn will be stopped, before it is. The first
	// intention stands, except that terminate and give-up replace a restart or drain.
	IntendStop(ctx context.Context, spawn SpawnID, reason Reason) error

	// Fail moves a donation in one of from to error with a message and marks its live spawn for
	// stopping (give-up or abandoned). gaveUp keeps the former status for retry. ErrConflict if it is in none of from.
	Fail(ctx context.Context, id ID, from []Status, generation int64, message string, gaveUp bool) error
	// Terminate moves a donation from any status to terminated and marks its live spawn for stopping.
	// It returns the record, also when it was terminated already.
	Terminate(ctx context.Context, id ID) (Record, error)
	// Expire terminates a donation that has been awaiting_seed since before, with a message, and marks its live spawn
	// for stopping. ErrConflict if it isn't any more.
	Expire(ctx context.Context, id ID, before time.Time, message string) error
	// Seeded moves a donation from awaiting_seed to seeded, or notes that a seeded one was seeded again, if the
	// generation is still as expected. peers goes into the event.
	Seeded(ctx context.Context, id ID, generation int64, peers int) error
	// Refill sets the attempts to 0 if the generation is still as expected and the donation still
	// supervised. UpdatedAt is untouched.
	Refill(ctx context.Context, id ID, generation int64) error
	// Retry revives an error that came from a give-up: attempts 0, status as before. For a supervised
	// donation it sets RetryNow. Any other: an Error with CodeInvalidState.
	Retry(ctx context.Context, id ID) (Record, error)
	// Reclaimed notes that the workdir is gone and frees the ports. It applies to ended donations only.
	Reclaimed(ctx context.Context, id ID) error
	// Note appends an event that changes no record.
	Note(ctx context.Context, e Event) error

	// Events returns events after seq, oldest first, limit at most; id "" means of all donations.
	Events(ctx context.Context, id ID, after int64, limit int) ([]Event, error)
	// LastSeq returns the sequence number of the newest event, 0 if there is none.
	LastSeq(ctx context.Context) (int64, error)
	// Changed returns a channel that is closed at the next committed change. Ask before reading.
	Changed() <-chan struct{}
}

// Filter selects records for List.
type Filter struct {
	// Statuses to take; empty means all.
	Statuses []Status
	// Unsettled also takes donations of any status that have a spawn that hasn't ended or a workdir left to
	// reclaim (ended, and not kept by a give-up).
	Unsettled bool
}

// The errors of Orchestrator's methods. Of Start, anything else is indefinite: the spawn may or may not exist, and the
// same spawn id is sent again until the answer is one of these or a process.
var (
	// ErrBusy: a process of the same donation is still alive; nothing was started.
	ErrBusy = errors.New("another process of this donation is still alive")
	// ErrTransient: nothing was started, for a reason that passes by itself (text file busy, no free
	// descriptor, fork refused).
	ErrTransient = errors.New("not started for a passing reason")
	// ErrGone: there is no such process, so its lease can't be renewed.
	ErrGone = errors.New("the process doesn't exist")
	// ErrDisconnected: the guard can't be reached now.
	ErrDisconnected = errors.New("the guard can't be reached")
)

// StartError is a definite refusal: the spawn was not started and won't be under this id.
type StartError struct{ Message string }

func (e *StartError) Error() string { return e.Message }

// Launch is all that a spawn is given; it comes from the record alone, so that sending it again is the same.
type Launch struct {
	Donation ID
	Spawn    Spawn
	Request  Request
	UID      uint32
	Ports    map[string]int
}

// LaunchOf returns the launch of r's latest spawn.
func LaunchOf(r Record) Launch {
	return Launch{Donation: r.ID, Spawn: *r.Spawn, Request: r.Request, UID: r.UID, Ports: r.Ports}
}

// Plan is what a template asks for before anything is recorded.
type Plan struct {
	PortNames []string
	Hash      string
	// NeedsSeed is true when the node waits for a seed after its start.
	NeedsSeed bool
}

// ProcessState is what the orchestrator knows of one process.
type ProcessState string

// The states of a process at the guard.
const (
	ProcessStarting ProcessState = "starting"
	ProcessRunning  ProcessState = "running"
	// ProcessStopping: told to stop, or its main process has ended and the rest is being killed.
	ProcessStopping ProcessState = "stopping"
	// ProcessExited: the whole tree is gone; the exit waits to be acknowledged.
	ProcessExited ProcessState = "exited"
)

// Process is one process as the orchestrator knows it.
type Process struct {
	Spawn     SpawnID
	Donation  ID
	State     ProcessState
	Identity  Identity
	StartedAt time.Time
	// StopSince is when the stop began, KillSince when SIGKILL was first sent; zero if not.
	StopSince time.Time
	KillSince time.Time
	// TTL is that of the lease it was started or last renewed with, 0 if it has none; LeaseEnds is when it ran out
	// as far as the guard has told.
	TTL       time.Duration
	LeaseEnds time.Time
	Exit      *Exit
}

// Observation is what the orchestrator sees of one donation at one moment, from memory.
type Observation struct {
	// Connected is false while nothing can be known; then the rest is empty.
	Connected bool
	// Instance and BootID are the guard's.
	Instance  string
	BootID    string
	Processes []Process
}

// Orchestrator runs nodes somewhere. Its methods may be called by many goroutines at once.
type Orchestrator interface {
	// Plan returns what the template asks for: CodeUnknownTemplate if it isn't configured.
	Plan(template string) (Plan, error)
	// Check says whether a launch can be rendered and its ports are free of strangers, before anything
	// is charged. A *BlockedError says what stands in the way.
	Check(ctx context.Context, l Launch) error
	// Start starts the launch's spawn or finds it started already: idempotent by spawn id. See the
	// errors above for what is definite; a *BlockedError says that it can't be asked for now.
	Start(ctx context.Context, l Launch) (Process, error)
	// Stop begins an orderly stop (the template's signal and grace, then the whole tree) and returns;
	// the exit is observed. force kills at once. A spawn that isn't there is no error.
	Stop(ctx context.Context, spawn SpawnID, reason Reason, force bool) error
	// Ack says that the exits are on record, so that they can be forgotten.
	Ack(ctx context.Context, spawns ...SpawnID) error
	// Reclaim deletes the donation's workdir. Nothing there is no error; ErrBusy while a process lives.
	Reclaim(ctx context.Context, id ID) error
	// Ready asks once whether the launch's readiness condition holds.
	Ready(ctx context.Context, l Launch) (bool, error)
	// Observe returns what is known of the donation now.
	Observe(id ID) Observation
	// UIDs is the range that nodes' users come from; zero when nodes run as the guard's own user.
	UIDs() UIDRange
	// PortFree reports whether nothing on this machine listens on the port.
	PortFree(port int) bool
}

// SeedResult is a node's judgement of a seed.
type SeedResult struct {
	Accepted bool `json:"accepted"`
	// PeersAdded counts the peers that the node didn't know before.
	PeersAdded int `json:"peers_added"`
	// Reason says why it was rejected.
	Reason string `json:"reason,omitempty"`
}

// Peer is how a node is known to its cadre.
type Peer struct {
	ID    string   `json:"peer_id"`
	Addrs []string `json:"multiaddrs"`
}

// ErrSeedToken is returned when the node refused the seed token of its own spawn.
var ErrSeedToken = errors.New("the node refused the seed token")

// Nodes asks running nodes over their own contract (docs/node-contract.md). The launch says which spawn is meant: an
// answer of anybody else, such as a stranger on its port, is an error.
type Nodes interface {
	// Seed presents a seed. A rejection is a result; an error means that it wasn't judged, ErrSeedToken that the
	// token was refused.
	Seed(ctx context.Context, l Launch, seed []byte) (SeedResult, error)
	// Peer returns what the node says of itself now.
	Peer(ctx context.Context, l Launch) (Peer, error)
}

// BlockKind says what blocks a spawn before it is charged.
type BlockKind string

// What may block a spawn.
const (
	// BlockTemplate: the template is gone, or can't be rendered with this record.
	BlockTemplate BlockKind = "not_respawnable"
	// BlockPort: a stranger holds one of the sticky ports.
	BlockPort BlockKind = "port_held"
)

// BlockedError says why a spawn isn't tried now; it charges nothing.
type BlockedError struct {
	Kind    BlockKind
	Message string
}

func (e *BlockedError) Error() string {
	if e.Kind == BlockTemplate {
		return "not respawnable: " + e.Message
	}
	return e.Message
}
