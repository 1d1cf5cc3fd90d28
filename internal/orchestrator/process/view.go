// This file holds the view: what the guard has said of its processes, in memory. Within one connection a
// process only moves forward, whatever the order in which an answer and the stream come in.

package process

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// order is how far along a state is; the guard's states move up only.
var order = map[guard.State]int{
	guard.StateStarting:  1,
	guard.StateRunning:   2,
	guard.StateStopping:  3,
	guard.StateExited:    4,
	guard.StateForgotten: 5,
}

// view is the guard's table as far as it is known. All methods may be called by many goroutines.
type view struct {
	mu sync.Mutex // guards all below
	// connected is true from a connection's first list to its end; epoch counts connections.
	connected bool
	epoch     int
	guard     guard.Hello
	// why says what keeps it from being connected.
	why   error
	procs map[string]map[string]process // donation → spawn → process
	// starts counts the starts in flight; forgotten are the spawns that ran and that the guard has forgotten
	// since the first of them began. A start's answer that arrives after that must not bring one back.
	starts    int
	forgotten map[string]bool
}

// process is what the guard said last of one, and when the lease that it spoke of ends.
type process struct {
	guard.Process
	leaseEnds time.Time
}

// heard is a process as the guard has just told of it.
func heard(p guard.Process) process {
	h := process{Process: p}
	if p.LeaseLeft > 0 {
		h.leaseEnds = time.Now().Add(p.LeaseLeft)
	}
	return h
}

var errNotYet = errors.New("not connected yet")

func newView() *view {
	return &view{why: errNotYet, procs: map[string]map[string]process{}, forgotten: map[string]bool{}}
}

// connect replaces everything by a connection's first message.
func (v *view) connect(hello guard.Hello, list []guard.Process) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connected, v.guard, v.why = true, hello, nil
	v.epoch++
	v.procs = map[string]map[string]process{}
	for _, p := range list {
		v.put(p)
	}
}

// disconnect forgets all processes and keeps the reason; it reports whether there was a connection.
func (v *view) disconnect(why error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	was := v.connected
	v.connected, v.why = false, why
	v.procs = map[string]map[string]process{}
	return was
}

// put takes over what is known of a process unless something newer is. mu is held.
func (v *view) put(p guard.Process) {
	of := v.procs[p.Donation]
	if known, ok := of[p.Spawn]; ok && order[p.State] < order[known.State] {
		return
	}
	if p.State == guard.StateForgotten {
		v.forget(p)
		return
	}
	if of == nil {
		of = map[string]process{}
		v.procs[p.Donation] = of
	}
	of[p.Spawn] = heard(p)
}

// forget drops a process. mu is held. A spawn whose start failed is forgotten without ever having had a pid; that
// doesn't concern the same spawn started once more since, which has one.
func (v *view) forget(p guard.Process) {
	of := v.procs[p.Donation]
	if of[p.Spawn].PID != p.PID {
		return
	}
	if v.starts > 0 && p.PID != 0 {
		v.forgotten[p.Spawn] = true
	}
	delete(of, p.Spawn)
	if len(of) == 0 {
		delete(v.procs, p.Donation)
	}
}

// update takes over a change from the stream.
func (v *view) update(p guard.Process) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.put(p)
}

// beginStart announces a start and returns the connection that its answer will belong to; endStart ends it.
func (v *view) beginStart() (epoch int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.starts++
	return v.epoch
}

func (v *view) endStart() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.starts--; v.starts == 0 {
		clear(v.forgotten)
	}
}

// started takes over the answer to a start; false if the connection that it was asked on has ended.
func (v *view) started(epoch int, p guard.Process) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.connected || v.epoch != epoch {
		return false
	}
	// Of the same state, what the stream said knows more (that the node has notified, say).
	known, ok := v.procs[p.Donation][p.Spawn]
	if older := ok && order[p.State] <= order[known.State]; !older && !v.forgotten[p.Spawn] {
		v.put(p)
	}
	return true
}

// find returns one process.
func (v *view) find(id donation.ID, spawn donation.SpawnID) (process, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.procs[string(id)][string(spawn)]
	return p, ok
}

// alive reports whether the donation has a process that hasn't exited.
func (v *view) alive(id donation.ID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.procs[string(id)] {
		if order[p.State] < order[guard.StateExited] {
			return true
		}
	}
	return false
}

// observe returns what is known of a donation.
func (v *view) observe(id donation.ID) donation.Observation {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.connected {
		return donation.Observation{}
	}
	return donation.Observation{
		Connected: true, Instance: v.guard.Instance, BootID: v.guard.BootID,
		Processes: toProcesses(v.procs[string(id)]),
	}
}

// processes returns every process there is.
func (v *view) processes() []donation.Process {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []donation.Process
	for _, of := range v.procs {
		all = append(all, toProcesses(of)...)
	}
	slices.SortFunc(all, bySpawn)
	return all
}

func toProcesses(of map[string]process) []donation.Process {
	var list []donation.Process
	for _, p := range of {
		list = append(list, toProcess(p))
	}
	slices.SortFunc(list, bySpawn)
	return list
}

// bySpawn sorts by spawn id, which is by time.
func bySpawn(a, b donation.Process) int { return cmp.Compare(a.Spawn, b.Spawn) }

// hello returns the connected guard's.
func (v *view) hello() (guard.Hello, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.guard, v.connected
}

// lastHello returns that of the guard that was connected last.
func (v *view) lastHello() guard.Hello {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.guard
}

// trouble returns why there is no connection.
func (v *view) trouble() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.why
}
