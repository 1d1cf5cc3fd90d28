// This file holds the scripted orchestrator of the tests: a guard in memory that keeps its promises (idempotent
// by spawn, busy while a process of the donation lives, exits kept until acknowledged) and misbehaves on demand.

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// A verdict is what becomes of one start.
type verdict string

const (
	starts verdict = "starts"
	// diesAtOnce: it starts, and is dead before the answer arrives.
	diesAtOnce verdict = "dies at once"
	// refused: a definite no.
	refused verdict = "refused"
	// unanswered: nothing is started and no answer comes; answerLost: it is started and no answer comes.
	unanswered verdict = "unanswered"
	answerLost verdict = "answer lost"
	// late: no answer comes, and it is started three seconds later unless it was asked for again.
	late verdict = "late"
	// busy and transient are the passing refusals.
	busy      verdict = "busy"
	transient verdict = "transient"
	// hangs: no answer until the caller has had enough; nothing is started.
	hangs verdict = "hangs"
)

var errRefused = &donation.StartError{Message: "exec node: no such file or directory"}

// A call is one thing that the guard was asked for.
type call struct {
	at       time.Time
	donation donation.ID
	spawn    donation.SpawnID
	reason   donation.Reason // of a stop
	instance string          // of the guard, for a start
}

// guard is the double. Its methods may be called by many goroutines at once.
type guard struct {
	// grace is how long a stop takes; startTime how long a start takes.
	grace, startTime time.Duration

	mu sync.Mutex // guards all below
	// onChange and onConnect are the supervisor's.
	onChange  func(donation.ID)
	onConnect func()
	connected bool
	instance  string
	bootID    string
	guards    int
	pids      int
	procs     map[donation.SpawnID]*donation.Process
	// orphans are alive, and this guard doesn't know them.
	orphans map[donation.SpawnID]donation.Process
	// answers are the final words about spawns: refused, or run already.
	answers  map[donation.SpawnID]*donation.StartError
	script   map[donation.ID][]verdict
	plans    map[string]donation.Plan
	held     map[int]bool // ports that a stranger holds
	workdirs map[donation.ID]bool
	ready    func(context.Context, donation.Launch) (bool, error)
	// reasons are why spawns were told to stop; truth is how each spawn's process really ended.
	reasons map[donation.SpawnID]donation.Reason
	truth   map[donation.SpawnID]donation.Exit
	// forgotten are the ends that a reboot may have made look like its own.
	forgotten map[donation.SpawnID]bool

	started, refusals, stopped, reclaimed []call
	acked                                 []donation.SpawnID
	atOnce, maxAtOnce                     int
	violations                            []string
}

var _ donation.Orchestrator = (*guard)(nil)

func newGuard() *guard {
	g := &guard{
		grace: 100 * time.Millisecond, connected: true, instance: "guard-1", bootID: "boot-1", guards: 1, pids: 1000,
		procs: map[donation.SpawnID]*donation.Process{}, orphans: map[donation.SpawnID]donation.Process{},
		answers: map[donation.SpawnID]*donation.StartError{}, script: map[donation.ID][]verdict{},
		plans: map[string]donation.Plan{"node": {PortNames: []string{"http"}, Hash: "h"}, "cadre": {PortNames: []string{"http"}, Hash: "h", NeedsSeed: true}},
		held:  map[int]bool{}, workdirs: map[donation.ID]bool{}, truth: map[donation.SpawnID]donation.Exit{}, reasons: map[donation.SpawnID]donation.Reason{}, forgotten: map[donation.SpawnID]bool{},
		ready: func(context.Context, donation.Launch) (bool, error) { return true, nil },
	}
	g.tell(nil, nil)
	return g
}

// tell names who hears of changes from now on; nil is nobody.
func (g *guard) tell(change func(donation.ID), connect func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onChange, g.onConnect = func(donation.ID) {}, func() {}
	if change != nil {
		g.onChange, g.onConnect = change, connect
	}
}

// will scripts the donation's next starts; after them all go well.
func (g *guard) will(id donation.ID, v ...verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.script[id] = append(g.script[id], v...)
}

// away is the error of a call that no guard answers.
func (g *guard) away() error {
	if !g.connected {
		return fmt.Errorf("no guard: %w", donation.ErrDisconnected)
	}
	return nil
}

// Start implements donation.Orchestrator by the script.
func (g *guard) Start(ctx context.Context, l donation.Launch) (donation.Process, error) {
	if err := g.enter(ctx); err != nil {
		return donation.Process{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.atOnce--
	if err := g.away(); err != nil {
		return donation.Process{}, err
	}
	if p, ok := g.procs[l.Spawn.ID]; ok {
		return *p, nil
	}
	if answer, ok := g.answers[l.Spawn.ID]; ok {
		return donation.Process{}, answer
	}
	if other := g.aliveOf(l.Donation); other != "" {
		return donation.Process{}, fmt.Errorf("%s lives: %w", other, donation.ErrBusy)
	}
	v := starts
	if s := g.script[l.Donation]; len(s) > 0 {
		v, g.script[l.Donation] = s[0], s[1:]
	}
	switch c := (call{at: time.Now(), donation: l.Donation, spawn: l.Spawn.ID}); v {
	case refused:
		g.refusals = append(g.refusals, c)
		g.answers[l.Spawn.ID] = errRefused
		g.truth[l.Spawn.ID] = donation.Exit{Reason: donation.ReasonStartFailed}
		return donation.Process{}, errRefused
	case busy:
		return donation.Process{}, donation.ErrBusy
	case transient:
		return donation.Process{}, fmt.Errorf("text file busy: %w", donation.ErrTransient)
	case unanswered:
		return donation.Process{}, fmt.Errorf("no answer: %w", donation.ErrDisconnected)
	case late:
		instance := g.instance
		time.AfterFunc(lateness, func() { g.startLate(l, instance) })
		return donation.Process{}, fmt.Errorf("no answer: %w", donation.ErrDisconnected)
	case hangs:
		g.mu.Unlock()
		<-ctx.Done()
		g.mu.Lock()
		return donation.Process{}, context.Cause(ctx)
	default:
		p := g.launch(l, c)
		if v == diesAtOnce {
			g.end(p, crashed)
		}
		if v == answerLost {
			return donation.Process{}, fmt.Errorf("no answer: %w", donation.ErrDisconnected)
		}
		return *p, nil
	}
}

// enter counts a start that is under way and takes its time.
func (g *guard) enter(ctx context.Context) error {
	g.mu.Lock()
	g.atOnce++
	g.maxAtOnce = max(g.maxAtOnce, g.atOnce)
	pause := g.startTime
	g.mu.Unlock()
	if pause == 0 {
		return nil
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.atOnce--
		return context.Cause(ctx)
	}
}

// launch makes the process. mu is held.
func (g *guard) launch(l donation.Launch, c call) *donation.Process {
	for _, o := range g.orphans {
		if o.Donation == l.Donation {
			g.violations = append(g.violations, fmt.Sprintf("%s started while %s of %s lives", l.Spawn.ID, o.Spawn, l.Donation))
		}
	}
	for _, before := range g.started {
		if before.spawn == c.spawn && before.instance == g.instance {
			g.violations = append(g.violations, fmt.Sprintf("%s of %s was started twice", c.spawn, c.donation))
		}
	}
	delete(g.truth, c.spawn) // a start that died unseen with its guard is repeated by the next
	c.instance = g.instance
	g.pids++
	p := &donation.Process{
		Spawn: l.Spawn.ID, Donation: l.Donation, State: donation.ProcessRunning, StartedAt: time.Now(),
		Identity: donation.Identity{BootID: g.bootID, PID: g.pids, StartTime: uint64(g.pids)},
	}
	g.procs[p.Spawn] = p
	g.workdirs[l.Donation] = true
	g.started = append(g.started, c)
	g.onChange(p.Donation)
	return p
}

const lateness = 3 * time.Second

// startLate does what was asked for long ago, if this is still the guard that was asked.
func (g *guard) startLate(l donation.Launch, instance string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, known := g.procs[l.Spawn.ID]
	_, answered := g.answers[l.Spawn.ID]
	if g.instance == instance && !known && !answered && g.aliveOf(l.Donation) == "" {
		g.launch(l, call{at: time.Now(), donation: l.Donation, spawn: l.Spawn.ID})
	}
}

// aliveOf returns a living spawn of the donation. mu is held.
func (g *guard) aliveOf(id donation.ID) donation.SpawnID {
	for _, p := range g.procs {
		if p.Donation == id && p.State != donation.ProcessExited {
			return p.Spawn
		}
	}
	return ""
}

var crashed = donation.Exit{Reason: donation.ReasonCrash, Known: true, Code: 3}

// end ends a process. mu is held.
func (g *guard) end(p *donation.Process, e donation.Exit) {
	e.At = time.Now()
	p.State, p.Exit = donation.ProcessExited, &e
	g.truth[p.Spawn] = e
	g.onChange(p.Donation)
}

// die kills the donation's process, as nobody asked for; false if there is none.
func (g *guard) die(id donation.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.procs[g.aliveOf(id)]
	if !ok || p.State != donation.ProcessRunning {
		return false
	}
	g.end(p, crashed)
	return true
}

// Stop implements donation.Orchestrator: the exit follows after the grace.
func (g *guard) Stop(_ context.Context, spawn donation.SpawnID, reason donation.Reason, force bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.away(); err != nil {
		return err
	}
	p, ok := g.procs[spawn]
	if !ok || p.State == donation.ProcessExited {
		return nil
	}
	if p.State != donation.ProcessStopping {
		g.stopped = append(g.stopped, call{at: time.Now(), donation: p.Donation, spawn: spawn, reason: reason})
		g.reasons[spawn] = reason
		p.State, p.StopSince = donation.ProcessStopping, time.Now()
		g.onChange(p.Donation)
		time.AfterFunc(g.grace, func() { g.graceOver(spawn) })
	}
	if force {
		g.end(p, donation.Exit{Reason: g.reasons[spawn], Known: true, Signal: 9})
	}
	return nil
}

// graceOver ends a process that was told to stop, whichever guard it has by now.
func (g *guard) graceOver(spawn donation.SpawnID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.procs[spawn]; ok && p.State == donation.ProcessStopping {
		g.end(p, donation.Exit{Reason: g.reasons[spawn], Known: true, Signal: 15})
	}
	if _, ok := g.orphans[spawn]; ok { // the signal was sent, whoever sees the end
		delete(g.orphans, spawn)
		g.truth[spawn] = donation.Exit{Reason: donation.ReasonGuardLost, At: time.Now()}
	}
}

// Ack implements donation.Orchestrator.
func (g *guard) Ack(_ context.Context, spawns ...donation.SpawnID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.away(); err != nil {
		return err
	}
	for _, s := range spawns {
		p, ok := g.procs[s]
		if !ok {
			continue
		}
		if p.State != donation.ProcessExited {
			return errors.New("it has not exited")
		}
		delete(g.procs, s)
		g.answers[s] = &donation.StartError{Message: "it has run already"}
		g.acked = append(g.acked, s)
		g.onChange(p.Donation)
	}
	return nil
}

// Reclaim implements donation.Orchestrator.
func (g *guard) Reclaim(_ context.Context, id donation.ID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.away(); err != nil {
		return err
	}
	if g.aliveOf(id) != "" {
		return donation.ErrBusy
	}
	delete(g.workdirs, id)
	g.reclaimed = append(g.reclaimed, call{at: time.Now(), donation: id})
	return nil
}
