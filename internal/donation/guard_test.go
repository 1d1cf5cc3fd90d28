// This file holds the tests' orchestrator: a guard in memory that starts, refuses, hangs, is busy or away as the
// test tells it to, and whose nodes die when the test says so.

package donation_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// answer is what the guard does about one Start.
type answer func(ctx context.Context, g *fakeGuard, l donation.Launch) (donation.Process, error)

// stopCall is one Stop that arrived.
type stopCall struct {
	Spawn  donation.SpawnID
	Reason donation.Reason
	Force  bool
}

// fakeGuard implements donation.Orchestrator.
type fakeGuard struct {
	// exited is told of every donation that a process of ended.
	exited func(donation.ID)

	mu sync.Mutex // guards what follows
	// away is true while the guard can't be reached.
	away bool
	// stubborn nodes ignore all but a forced stop; immortal ones that too.
	stubborn, immortal bool
	plans              map[string]donation.Plan
	checked            error
	reclaimErr         error
	// answers are given to the next starts, one each; when there is none, the node starts.
	answers   []answer
	processes map[donation.SpawnID]*donation.Process
	workdirs  map[donation.ID]bool
	starts    []donation.Launch
	stops     []stopCall
	acked     []donation.SpawnID
	lastPID   int
}

func newFakeGuard() *fakeGuard {
	return &fakeGuard{
		plans: map[string]donation.Plan{
			"plain": {PortNames: []string{"http", "p2p"}, Hash: "hash-1"},
			"seedy": {Hash: "hash-2", NeedsSeed: true},
			"wide":  {PortNames: []string{"a", "b", "c", "d", "e"}, Hash: "hash-3"},
		},
		exited:    func(donation.ID) {},
		processes: map[donation.SpawnID]*donation.Process{},
		workdirs:  map[donation.ID]bool{},
		lastPID:   1000,
	}
}

// next appends what the next starts are answered with.
func (g *fakeGuard) next(answers ...answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers = append(g.answers, answers...)
}

// set changes the guard's settings.
func (g *fakeGuard) set(change func(g *fakeGuard)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

// refuse is a definite refusal; the workdir that was prepared for the start stays behind.
func refuse(message string) answer {
	return func(context.Context, *fakeGuard, donation.Launch) (donation.Process, error) {
		return donation.Process{}, &donation.StartError{Message: message}
	}
}

// indefinitely starts nothing and fails with err.
func indefinitely(err error) answer {
	return func(context.Context, *fakeGuard, donation.Launch) (donation.Process, error) {
		return donation.Process{}, err
	}
}

// startUnheard starts the node, but its answer is lost.
func startUnheard(ctx context.Context, g *fakeGuard, l donation.Launch) (donation.Process, error) {
	g.begin(l)
	return donation.Process{}, context.DeadlineExceeded
}

// held announces the start on arrived and goes on with then once release is closed, or fails when ctx ends.
func held(arrived chan<- donation.ID, release <-chan struct{}, then answer) answer {
	return func(ctx context.Context, g *fakeGuard, l donation.Launch) (donation.Process, error) {
		arrived <- l.Donation
		select {
		case <-release:
		case <-ctx.Done():
			return donation.Process{}, ctx.Err()
		}
		if then != nil {
			return then(ctx, g, l)
		}
		return g.begin(l), nil
	}
}

func (g *fakeGuard) Start(ctx context.Context, l donation.Launch) (donation.Process, error) {
	g.mu.Lock()
	g.starts = append(g.starts, l)
	if p, ok := g.processes[l.Spawn.ID]; ok {
		defer g.mu.Unlock()
		return *p, nil
	}
	if g.away {
		g.mu.Unlock()
		return donation.Process{}, donation.ErrDisconnected
	}
	g.workdirs[l.Donation] = true
	var next answer
	if len(g.answers) > 0 {
		next, g.answers = g.answers[0], g.answers[1:]
	}
	g.mu.Unlock()
	if next != nil {
		return next(ctx, g, l)
	}
	return g.begin(l), nil
}

// begin makes the process of a launch.
func (g *fakeGuard) begin(l donation.Launch) donation.Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastPID++
	p := &donation.Process{
		Spawn: l.Spawn.ID, Donation: l.Donation, State: donation.ProcessRunning, StartedAt: time.Now(),
		Identity: donation.Identity{BootID: "boot", PID: g.lastPID, StartTime: uint64(g.lastPID)},
	}
	g.processes[p.Spawn] = p
	return *p
}

// die ends a process as exit says.
func (g *fakeGuard) die(spawn donation.SpawnID, exit donation.Exit) {
	g.mu.Lock()
	p := g.processes[spawn]
	exit.At = time.Now()
	p.State, p.Exit = donation.ProcessExited, &exit
	g.mu.Unlock()
	g.exited(p.Donation)
}

func (g *fakeGuard) Stop(_ context.Context, spawn donation.SpawnID, reason donation.Reason, force bool) error {
	g.mu.Lock()
	g.stops = append(g.stops, stopCall{spawn, reason, force})
	p := g.processes[spawn]
	switch {
	case g.away:
		g.mu.Unlock()
		return donation.ErrDisconnected
	case p == nil || p.State == donation.ProcessExited:
		g.mu.Unlock()
		return nil
	}
	p.State = donation.ProcessStopping
	exit := donation.Exit{Reason: reason, Known: true, Signal: 15}
	if force {
		p.KillSince, exit.Signal = time.Now(), 9
	}
	lives := g.immortal || g.stubborn && !force
	g.mu.Unlock()
	if !lives {
		g.die(spawn, exit)
	}
	return nil
}

func (g *fakeGuard) Ack(_ context.Context, spawns ...donation.SpawnID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.acked = append(g.acked, spawns...)
	for _, spawn := range spawns {
		delete(g.processes, spawn)
	}
	return nil
}

func (g *fakeGuard) Reclaim(_ context.Context, id donation.ID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.processes {
		if p.Donation == id && p.State != donation.ProcessExited {
			return donation.ErrBusy
		}
	}
	if g.reclaimErr != nil {
		return g.reclaimErr
	}
	delete(g.workdirs, id)
	return nil
}

func (g *fakeGuard) Observe(id donation.ID) donation.Observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away {
		return donation.Observation{}
	}
	seen := donation.Observation{Connected: true, Instance: "guard-1", BootID: "boot"}
	for _, p := range g.processes {
		if p.Donation == id {
			seen.Processes = append(seen.Processes, *p)
		}
	}
	return seen
}

func (g *fakeGuard) Plan(template string) (donation.Plan, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.plans[template]
	if !ok {
		return p, donation.Errorf(donation.CodeUnknownTemplate, "there is no template %q", template)
	}
	return p, nil
}

func (g *fakeGuard) Check(context.Context, donation.Launch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checked
}

func (g *fakeGuard) Ready(context.Context, donation.Launch) (bool, error) { return true, nil }

func (g *fakeGuard) UIDs() donation.UIDRange { return donation.UIDRange{} }

func (g *fakeGuard) PortFree(int) bool { return true }

// sent returns the spawn ids of the starts that arrived, in order.
func (g *fakeGuard) sent() []donation.SpawnID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ids []donation.SpawnID
	for _, l := range g.starts {
		ids = append(ids, l.Spawn.ID)
	}
	return ids
}

// stopped returns the stops that arrived, in order.
func (g *fakeGuard) stopped() []stopCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.stops)
}

// left says what is there of a donation: processes, unacknowledged exits, a workdir; empty is nothing.
func (g *fakeGuard) left(id donation.ID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var left string
	for _, p := range g.processes {
		if p.Donation == id {
			left += fmt.Sprintf("process %d %s; ", p.Identity.PID, p.State)
		}
	}
	if g.workdirs[id] {
		left += "workdir"
	}
	return left
}
