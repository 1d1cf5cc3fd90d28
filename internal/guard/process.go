// This file holds one spawn as the guard keeps it, and the table of all of them.

package guard

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// process is one spawn. Its fields are guarded by table.mu unless they say otherwise.
type process struct {
	// spooling serialises writes of the spool file. Lock order: forker.reap, spooling, table.mu.
	spooling sync.Mutex

	view   Process
	record record

	// Set when the process starts running, and not changed after that. pidfd is -1 once it has exited.
	pidfd  int
	group  *nodeCgroup
	tree   tree
	log    *nodeLogFile
	notify *notifySocket

	lease lease
	// pending is a stop that came while the process was starting.
	pending *StopRequest
	// grace is the timer between the stop signal and the kill.
	grace *time.Timer
	// killing is true once a goroutine clears the tree; kick (capacity 1) tells it to look again at once.
	killing bool
	kick    chan struct{}

	// mainEnded and endedAt are the end of the process itself; outcome is how, once known (outcomeKnown is closed).
	mainEnded    bool
	endedAt      time.Time
	outcome      outcome
	outcomeKnown chan struct{}
	// floorRSS is the guard's own peak memory when it forked, in KiB.
	floorRSS int64
	// lostMessage explains an outcome that can't be known.
	lostMessage string
	// parked: the process is a zombie that is kept until its tree is gone, so that its pid stays its own.
	parked bool

	// started is closed when the start has its answer; startErr is that answer if it failed.
	started  chan struct{}
	startErr *Error
}

// outcome is how the main process ended.
type outcome struct {
	known  bool
	status unix.WaitStatus
	usage  unix.Rusage
}

func newProcess(spawn, donation string) *process {
	return &process{
		view:  Process{Spawn: spawn, Donation: donation, State: StateStarting, BootID: bootID()},
		pidfd: -1, kick: make(chan struct{}, 1), started: make(chan struct{}), outcomeKnown: make(chan struct{}),
	}
}

// facts is what decisions rest on. table.mu is held.
func (p *process) facts() facts {
	return facts{state: p.view.State, asked: !p.view.StopSince.IsZero(), killing: p.killing}
}

// fields identify the process in the log.
func (p *process) fields(more ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.String("donation", p.view.Donation), zap.String("spawn", p.view.Spawn)}, more...)
}

// poke makes the goroutine that clears the tree look again.
func (p *process) poke() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// How many answers are remembered for requests that are sent again.
const rememberedAnswers = 4096

// table is all spawns.
type table struct {
	mu sync.Mutex
	// procs is by spawn, byPID by the pid of those whose end hasn't been seen, live by donation of those that
	// haven't exited (at most one each). Guarded by mu.
	procs map[string]*process
	byPID map[int]*process
	live  map[string]*process
	// answers are final answers for spawns that aren't in procs any more, oldest first in order. Guarded by mu.
	answers map[string]*Error
	order   []string
	// reclaiming are the donations whose directory is being deleted. Guarded by mu.
	reclaiming map[string]bool
	// leaving refuses new starts; closed also leaves trees alone from now on. Guarded by mu.
	leaving, closed bool
	// hub gets every change, in order, under mu.
	hub hub
	log *zap.Logger
	// change is closed at the next change of anything, and replaced. Guarded by mu.
	change chan struct{}
}

func newTable(log *zap.Logger) *table {
	return &table{
		procs: make(map[string]*process), byPID: make(map[int]*process), live: make(map[string]*process),
		answers: make(map[string]*Error), reclaiming: make(map[string]bool), log: log, change: make(chan struct{}),
		hub: hub{subscribers: make(map[*subscriber]struct{})},
	}
}

// move changes a process's state and tells everybody. mu is held. An illegal move is a fault of ours: it is
// reported and not made.
func (t *table) move(p *process, to State) {
	if err := checkMove(p.view.State, to); err != nil {
		t.log.Error("illegal change of state", p.fields(zap.Error(err))...)
		return
	}
	p.view.State = to
	t.tell(p)
}

// tell publishes the process as it is. mu is held.
func (t *table) tell(p *process) {
	t.hub.publish(p.snapshot())
	t.wake()
}

// wake tells whoever waits for a change that there was one. mu is held.
func (t *table) wake() {
	close(t.change)
	t.change = make(chan struct{})
}

// changed returns a channel that is closed at the next change. Ask before looking.
func (t *table) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.change
}

// snapshot copies the process for somebody else. mu is held.
func (p *process) snapshot() Process {
	view := p.view
	if view.Exit != nil {
		exit := *view.Exit
		view.Exit = &exit
	}
	view.TTL, view.LeaseLeft = p.lease.ttl, p.lease.left(time.Now())
	return view
}

// remember keeps an answer for a request that is sent again. mu is held.
func (t *table) remember(spawn string, answer *Error) {
	if _, ok := t.answers[spawn]; !ok {
		t.order = append(t.order, spawn)
	}
	t.answers[spawn] = answer
	if len(t.order) > rememberedAnswers {
		delete(t.answers, t.order[0])
		t.order = t.order[1:]
	}
}

// dropPID takes the process out of byPID, unless its pid is another one's already. mu is held.
func (t *table) dropPID(p *process) {
	if t.byPID[p.view.PID] == p {
		delete(t.byPID, p.view.PID)
	}
}

// subscribe returns all processes as they are now and a subscription to every change after that.
func (t *table) subscribe() ([]Process, *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Process, 0, len(t.procs))
	for _, p := range t.procs {
		list = append(list, p.snapshot())
	}
	return list, t.hub.add()
}

func (t *table) unsubscribe(s *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hub.drop(s)
	t.wake()
}

// counts returns how many processes are known, and how many of them have not exited.
func (t *table) counts() (known, alive int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.procs), len(t.live)
}
