// This file says how a spawn ended and why, in values and in words.

package donation

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Reason says why a spawn ended; for an intended stop it is recorded before the child is signalled.
type Reason string

// The reasons. Charged tells which of them count an attempt.
const (
	// ReasonCrash is a death that nobody asked for, whatever its status.
	ReasonCrash Reason = "crash"
	// ReasonStartFailed: the guard said definitely that it could not start it.
	ReasonStartFailed Reason = "start-failed"
	// ReasonGuardLost: it ended while no guard watched, so how is unknown.
	ReasonGuardLost Reason = "guard-lost"
	// ReasonLost: it was recorded, but the guard that was to start it was replaced before it did.
	ReasonLost Reason = "lost"
	// ReasonReboot: the machine was restarted.
	ReasonReboot Reason = "reboot"
	// ReasonTerminate, ReasonRestart, ReasonGiveUp and ReasonDrain were intended by the daemon.
	ReasonTerminate Reason = "terminate"
	ReasonRestart   Reason = "restart"
	ReasonGiveUp    Reason = "give-up"
	ReasonDrain     Reason = "drain"
	// ReasonAbandoned: an ending landed while it was being started.
	ReasonAbandoned Reason = "abandoned"
	// ReasonGuardStop: the guard was told to stop all its nodes.
	ReasonGuardStop Reason = "guard-stop"
	// ReasonLeaseExpired: nobody renewed its lease.
	ReasonLeaseExpired Reason = "lease-expired"
)

// Charged reports whether the respawn that follows this end counts as an attempt: only a death that
// nobody asked for does. A lost spawn's own charge, made when it began, stands; no second one follows.
func (r Reason) Charged() bool {
	switch r {
	case ReasonCrash, ReasonStartFailed, ReasonGuardLost:
		return true
	default:
		return false
	}
}

// Exit is how a spawn ended.
type Exit struct {
	Reason Reason
	// Known is false when the kernel could no longer tell the status.
	Known bool
	// Code is the exit code, if Signal is 0.
	Code int
	// Signal is the number of the signal that killed it, 0 if none did.
	Signal int
	// OOM is true when the kernel killed it for want of memory.
	OOM bool
	// CPU is the processor time the process tree used; MaxRSS its peak memory in bytes. 0 is unknown.
	CPU    time.Duration
	MaxRSS int64
	At     time.Time
	// Message adds what the numbers can't say, such as the errno of a failed start.
	Message string
}

// String says the end in words, e.g. "exit status 3" or "killed by SIGKILL (out of memory)".
func (e Exit) String() string {
	var b strings.Builder
	switch {
	case e.Reason == ReasonStartFailed:
		return "did not start: " + e.Message
	case e.Reason == ReasonLost:
		return "never started (the guard was replaced)"
	case e.Reason == ReasonReboot:
		return "ended by a reboot"
	case !e.Known && e.Reason == ReasonGuardLost:
		return "unknown (guard lost)"
	case !e.Known:
		b.WriteString("unknown")
	case e.Signal != 0:
		name := unix.SignalName(unix.Signal(e.Signal))
		if name == "" {
			name = fmt.Sprintf("signal %d", e.Signal)
		}
		b.WriteString("killed by " + name)
	default:
		fmt.Fprintf(&b, "exit status %d", e.Code)
	}
	if e.OOM {
		b.WriteString(" (out of memory)")
	}
	if e.Reason != "" && e.Reason != ReasonCrash && e.Reason != ReasonGuardLost {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	return b.String()
}
