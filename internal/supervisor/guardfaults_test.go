// This file holds what befalls the scripted guard as a whole: it is gone, comes back, is replaced, or the
// machine is restarted.

package supervisor

import (
	"fmt"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// disconnect makes every call fail and shows nothing.
func (g *guard) disconnect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.connected = false
}

// connect ends a disconnection; the connection's first list is a look at everything.
func (g *guard) connect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.connected = true
	g.onConnect()
}

// A loss is what becomes of the processes when the guard is replaced.
type loss string

const (
	adopted  loss = "adopted"  // the new guard knows them all
	killed   loss = "killed"   // they died unseen
	orphaned loss = "orphaned" // they live and the new guard doesn't know them
	rebooted loss = "rebooted" // the machine was restarted
)

// replace puts a guard of another instance in the place of this one.
func (g *guard) replace(l loss) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guards++
	g.instance, g.connected = fmt.Sprintf("guard-%d", g.guards), true
	g.answers = map[donation.SpawnID]*donation.StartError{}
	if l == rebooted {
		g.bootID = fmt.Sprintf("boot-%d", g.guards)
		g.orphans = map[donation.SpawnID]donation.Process{}
	}
	for id, e := range g.truth {
		if l == rebooted && e.Reason == donation.ReasonGuardLost {
			g.forgotten[id] = true // whoever finds it gone takes it for the reboot's
		}
	}
	for id, p := range g.procs {
		if l == adopted {
			continue
		}
		delete(g.procs, id)
		switch {
		case p.State == donation.ProcessExited:
			// Its exit is known and not acknowledged: the spool keeps it, but for a reboot.
			if l != rebooted {
				g.procs[id] = p
			} else {
				g.forgotten[id] = true
			}
		case l == orphaned:
			g.orphans[id] = *p
		case l == killed:
			g.truth[id] = donation.Exit{Reason: donation.ReasonGuardLost, At: time.Now()}
		case l == rebooted:
			g.truth[id] = donation.Exit{Reason: donation.ReasonReboot, At: time.Now()}
		}
	}
	g.onConnect()
}

// appear makes a process of a spawn that nobody asked for any more: a start that was under way for long.
func (g *guard) appear(l donation.Launch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.launch(l, call{at: time.Now(), donation: l.Donation, spawn: l.Spawn.ID})
}

// alive is the supervisor's look past the guard.
func (g *guard) alive(id donation.Identity) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.orphans {
		if p.Identity == id {
			return true
		}
	}
	return false
}

// lose ends the donation's process and forgets that there was one.
func (g *guard) lose(id donation.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	spawn := g.aliveOf(id)
	delete(g.procs, spawn)
	g.truth[spawn] = donation.Exit{Reason: donation.ReasonGuardLost, At: time.Now()}
}

// killOrphans ends what no guard watches.
func (g *guard) killOrphans() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.orphans {
		delete(g.orphans, id)
		g.truth[id] = donation.Exit{Reason: donation.ReasonGuardLost, At: time.Now()}
	}
}

// livingOf returns the spawns of the donation that have a living process, known to the guard or not.
func (g *guard) livingOf(id donation.ID) []donation.SpawnID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var living []donation.SpawnID
	for _, p := range g.procs {
		if p.Donation == id && p.State != donation.ProcessExited {
			living = append(living, p.Spawn)
		}
	}
	for _, p := range g.orphans {
		if p.Donation == id {
			living = append(living, p.Spawn)
		}
	}
	return living
}

// startsOf returns when the donation's processes were started, in order.
func (g *guard) startsOf(id donation.ID) []time.Time { return g.times(&g.started, id) }

// refusalsOf returns when starts of the donation were refused.
func (g *guard) refusalsOf(id donation.ID) []time.Time { return g.times(&g.refusals, id) }

func (g *guard) times(calls *[]call, id donation.ID) []time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	var at []time.Time
	for _, c := range *calls {
		if c.donation == id {
			at = append(at, c.at)
		}
	}
	return at
}

// stopsOf returns the reasons of the donation's stops, in order.
func (g *guard) stopsOf(id donation.ID) []donation.Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	var reasons []donation.Reason
	for _, c := range g.stopped {
		if c.donation == id {
			reasons = append(reasons, c.reason)
		}
	}
	return reasons
}
