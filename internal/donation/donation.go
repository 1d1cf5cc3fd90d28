// Package donation is the domain: what a donation is, which statuses it may take, what it asks of the
// store and of the orchestrator, and the service that provisions, respawns, restarts, retries and ends it.
//
// It imports nothing of ours, no SQL and no exec: the technology sits behind the interfaces in ports.go.
package donation

import (
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// ID names a donation for ever: "don_" and a ULID in lower case.
type ID string

// SpawnID names one spawn of a donation: "spn_" and a ULID in lower case.
type SpawnID string

// NewID returns a fresh donation id; ids made later sort later.
func NewID() ID { return ID("don_" + strings.ToLower(ulid.Make().String())) }

// NewSpawnID returns a fresh spawn id; ids made later sort later.
func NewSpawnID() SpawnID { return SpawnID("spn_" + strings.ToLower(ulid.Make().String())) }

// Request is what the person who provisions chose. It is stored with the donation and given to every spawn.
type Request struct {
	Template       string   `json:"template"`
	Name           string   `json:"name,omitempty"`
	PartyID        string   `json:"party_id,omitempty"`
	BootstrapNodes []string `json:"bootstrap_nodes,omitempty"`
	OwnerKeys      []string `json:"owner_keys,omitempty"`
	Profile        string   `json:"profile,omitempty"`
}

// Donation is the record of one loan.
type Donation struct {
	ID      ID
	Request Request
	Status  Status
	// Message says why the status is what it is; empty while all is well.
	Message string
	// GaveUp is true for an error that came from a give-up, which is the only kind that retry revives.
	GaveUp bool
	// Before is the status that the give-up replaced; retry goes back to it.
	Before Status
	// Attempts counts the respawns that a death nobody asked for began, since the last refill.
	Attempts int
	// LastAttempt is when the last counted attempt was recorded; zero when none is or it can't be read.
	LastAttempt time.Time
	// RetryNow asks for the next attempt without waiting for the backoff.
	RetryNow bool
	// Generation counts spawns. Only the transaction that begins a spawn changes it.
	Generation int64
	// InputsMissing says that what a spawn needs could not be read from the record.
	InputsMissing bool
	// UID is the user that the node runs as; 0 means the guard's own (a guard without root).
	UID uint32
	// Ports are the sticky ports by name.
	Ports map[string]int
	// HasWorkdir is true from the first spawn until the workdir has been reclaimed.
	HasWorkdir bool
	CreatedAt  time.Time
	// UpdatedAt moves with the status only: it is the clock of the reap of unseeded donations.
	UpdatedAt time.Time
}

// Spawn is the record of one process that was started, or was to be started, for a donation.
type Spawn struct {
	ID         SpawnID
	Donation   ID
	Generation int64
	State      SpawnState
	// SeedToken is the bearer for the node's /seed; StartupToken is what the node writes to show it started.
	SeedToken    Secret
	StartupToken Secret
	// TemplateHash identifies the template text that the spawn was rendered from.
	TemplateHash string
	// Guard is the instance of the guard that the start was meant for.
	Guard    string
	Identity Identity
	// Begun is when the record was written, StartedAt when the process was, EndedAt when it ended.
	Begun     time.Time
	StartedAt time.Time
	ReadyAt   time.Time
	// StopReason is the intended stop that was recorded before the child was signalled; empty when none was.
	StopReason Reason
	// Exit is set once the spawn has ended.
	Exit *Exit
}

// Identity tells one process from every other, before and after: a pid alone never does.
type Identity struct {
	BootID string `json:"boot_id"`
	PID    int    `json:"pid"`
	// StartTime is the process's start in clock ticks since boot (field 22 of /proc/pid/stat).
	StartTime uint64 `json:"start_time"`
}

// IsZero reports whether the identity is unset.
func (i Identity) IsZero() bool { return i.PID == 0 }

// Record is a donation with its latest spawn, read in one transaction.
type Record struct {
	Donation
	// Spawn is the latest generation's; nil when the donation never had one.
	Spawn *Spawn
}

// Event is one entry of the append-only log: a change of state and its reason.
type Event struct {
	Seq      int64     `json:"seq"`
	At       time.Time `json:"at"`
	Donation ID        `json:"donation,omitempty"`
	Spawn    SpawnID   `json:"spawn,omitempty"`
	// Kind is what happened, e.g. "donation.seeded" or "spawn.exited".
	Kind   string `json:"kind"`
	Detail string `json:"detail,omitempty"`
}
