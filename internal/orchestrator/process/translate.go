// This file translates the guard's words into the domain's.

package process

import (
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// states of the guard in the domain's terms; a forgotten process is none.
var states = map[guard.State]donation.ProcessState{
	guard.StateStarting: donation.ProcessStarting,
	guard.StateRunning:  donation.ProcessRunning,
	guard.StateStopping: donation.ProcessStopping,
	guard.StateExited:   donation.ProcessExited,
}

func toProcess(p process) donation.Process {
	return donation.Process{
		Spawn:     donation.SpawnID(p.Spawn),
		Donation:  donation.ID(p.Donation),
		State:     states[p.State],
		Identity:  donation.Identity{BootID: p.BootID, PID: p.PID, StartTime: p.StartTime},
		StartedAt: p.StartedAt,
		StopSince: p.StopSince,
		KillSince: p.KillSince,
		TTL:       p.TTL,
		LeaseEnds: p.leaseEnds,
		Exit:      toExit(p.Process),
	}
}

func toExit(p guard.Process) *donation.Exit {
	e := p.Exit
	if e == nil {
		return nil
	}
	return &donation.Exit{
		Reason: reason(p.StopReason, e.Known), Known: e.Known, Code: e.Code, Signal: e.Signal, OOM: e.OOM,
		CPU: e.CPU, MaxRSS: e.MaxRSS, At: e.At, Message: e.Message,
	}
}

// reason says why a process ended. One that nobody stopped is a crash; where its status is unknown, a guard was
// lost, for a parent always gets it.
func reason(stop string, known bool) donation.Reason {
	switch {
	case stop != "":
		return donation.Reason(stop)
	case known:
		return donation.ReasonCrash
	default:
		return donation.ReasonGuardLost
	}
}
