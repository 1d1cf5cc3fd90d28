// This file ends processes: the stop and its grace, the clearing of the tree, and the exit that is
// kept.

package guard

import (
	"errors"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// stop begins a stop, or makes one harder. It returns when the signal is sent.
func (g *Guard) stop(req StopRequest) StopResponse {
	t := g.table
	t.mu.Lock()
	p, ok := t.procs[req.Spawn]
	if !ok || p.view.State == StateExited {
		t.mu.Unlock()
		return StopResponse{}
	}
	e := eventStop
	if req.Force {
		e = eventForce
	}
	d := decide(p.facts(), e)
	if d.later {
		if p.pending == nil {
			p.pending = &req
		}
		p.pending.Force = p.pending.Force || req.Force
		t.mu.Unlock()
		return StopResponse{Found: true}
	}
	first := p.view.StopSince.IsZero() && !p.mainEnded
	if first {
		now := time.Now()
		p.view.StopReason, p.view.StopSince = req.Reason, now
		p.record.StopReason, p.record.StopSince, p.record.KillAt = req.Reason, now, now.Add(p.record.Grace)
		if req.Force {
			p.record.KillAt = now
		}
	}
	t.mu.Unlock()
	if first {
		// On record before it acts, so that the next guard goes on with it.
		g.report(p, "stop isn't in the spool", g.persist(p))
	}
	t.mu.Lock()
	if checkMove(p.view.State, d.next) == nil {
		t.move(p, d.next)
	}
	t.mu.Unlock()
	if d.signal {
		g.signalStop(p, p.record.Grace)
	}
	if d.kill {
		g.clear(p)
	}
	return StopResponse{Found: true}
}

// signalStop sends the stop signal and starts the grace.
func (g *Guard) signalStop(p *process, grace time.Duration) {
	t := g.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.pidfd < 0 || p.view.State == StateExited {
		return // it has ended meanwhile
	}
	err := signalProcess(p.pidfd, unix.Signal(p.record.StopSignal))
	// A stopped process must be able to act on it.
	if errCont := signalProcess(p.pidfd, unix.SIGCONT); err == nil {
		err = errCont
	}
	if err != nil {
		g.log.Warn("stop signal not sent; the kill follows after the grace", p.fields(zap.Error(err))...)
	}
	p.grace = time.AfterFunc(grace, func() { g.graceOver(p) })
}

func (g *Guard) graceOver(p *process) {
	g.table.mu.Lock()
	d := decide(p.facts(), eventGraceOver)
	g.table.mu.Unlock()
	if d.kill {
		g.log.Info("grace over", p.fields()...)
		g.clear(p)
	}
}

// mainEnded notes that the main process has ended; how may be told later (o nil). Its tree is cleared.
func (g *Guard) mainEnded(p *process, o *outcome, at time.Time) {
	t := g.table
	t.mu.Lock()
	if p.mainEnded {
		t.mu.Unlock()
		return
	}
	p.mainEnded, p.endedAt = true, at
	if o != nil {
		p.outcome = *o
		close(p.outcomeKnown)
		t.dropPID(p)
	} else {
		p.parked = !p.view.Adopted
	}
	if p.grace != nil {
		p.grace.Stop()
	}
	d := decide(p.facts(), eventMainEnded)
	t.mu.Unlock()
	if s, ok := p.tree.(*sessionTree); ok && p.view.Adopted {
		s.leaderReaped(bootTicks())
	}
	if d.kill {
		g.clear(p)
	}
	p.poke()
}

// clear starts the goroutine that kills the tree until it is gone, unless there is one.
func (g *Guard) clear(p *process) {
	t := g.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.killing || t.closed {
		return
	}
	p.killing = true
	g.tasks.Go(func() {
		if g.clearTree(p) {
			g.exited(p)
		}
	})
}

// How long a zombie leader is kept for the sake of its pid when its tree won't go.
const parkMost = 200 * time.Millisecond

// clearTree kills until nothing is left, at growing intervals: what can't be killed (a process in a wait that the
// kernel won't interrupt) costs little and blocks nobody. It reports false if the guard left before.
func (g *Guard) clearTree(p *process) bool {
	t := g.table
	for wait := time.Duration(0); ; {
		g.endSlots <- struct{}{}
		alive, err := p.tree.sweep()
		<-g.endSlots
		t.mu.Lock()
		ended := p.mainEnded
		if alive || !ended {
			g.survivors(p)
		}
		if !ended && p.pidfd >= 0 {
			// Wherever somebody may have moved it: the process itself is never missed.
			err = errors.Join(err, signalProcess(p.pidfd, unix.SIGKILL))
		}
		t.mu.Unlock()
		if err != nil {
			g.log.Warn("the node's tree can't be cleared yet", p.fields(zap.Error(err))...)
		}
		if !alive && ended {
			return true
		}
		wait = nextSweep(wait)
		if ended && wait > parkMost {
			g.reapParked(p)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.kick:
			wait = 0
		case <-g.life.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// survivors notes since when the tree has been being killed. table.mu is held.
func (g *Guard) survivors(p *process) {
	changed := p.view.KillSince.IsZero()
	if changed {
		p.view.KillSince = time.Now()
	}
	if d := decide(p.facts(), eventSurvivors); d.next != p.view.State {
		g.table.move(p, d.next)
	} else if changed {
		g.table.tell(p)
	}
}

// exited gathers how it went and keeps it, for now the whole tree is gone.
func (g *Guard) exited(p *process) {
	g.reapParked(p)
	select {
	case <-p.outcomeKnown:
	case <-g.life.Done():
		return
	}
	g.endSlots <- struct{}{}
	defer func() { <-g.endSlots }()
	used := p.group.usage()
	g.report(p, "cgroup left behind", g.removeCgroup(p.group))
	if p.log != nil {
		g.logs.remove(p.log)
	}
	if p.notify != nil {
		p.notify.close()
	}
	t := g.table
	t.mu.Lock()
	exit := exitOf(p, used)
	p.record.Exit = exit
	t.mu.Unlock()
	g.report(p, "exit isn't in the spool", g.persist(p))
	t.mu.Lock()
	p.view.Exit = exit
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
	t.dropPID(p)
	if t.live[p.view.Donation] == p {
		delete(t.live, p.view.Donation)
	}
	t.move(p, decide(p.facts(), eventTreeGone).next)
	t.mu.Unlock()
	g.log.Info("node exited", p.fields(zap.Int("code", exit.Code), zap.Int("signal", exit.Signal),
		zap.Bool("known", exit.Known), zap.Bool("oom", exit.OOM), zap.String("stop_reason", p.view.StopReason))...)
}

// exitOf puts the end together. table.mu is held.
func exitOf(p *process, used usage) *Exit {
	e := &Exit{Known: p.outcome.known, OOM: used.oom, CPU: used.cpu, MaxRSS: used.peak, At: p.endedAt}
	if !e.Known {
		e.Message = p.lostMessage
		return e
	}
	if s := p.outcome.status; s.Signaled() {
		e.Signal = int(s.Signal())
	} else {
		e.Code = s.ExitStatus()
	}
	ru := p.outcome.usage
	if e.CPU == 0 {
		e.CPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	// What the child was before its exec, a copy of the guard, counts in the kernel's number: only more than that
	// is the node's own. It is in KiB.
	if ru.Maxrss > p.floorRSS {
		e.MaxRSS = int64(ru.Maxrss) * 1024
	}
	return e
}

// removeCgroup removes an empty cgroup; the last process may take an instant to leave it.
func (g *Guard) removeCgroup(group *nodeCgroup) error {
	var err error
	for wait := sweepFirst; wait < 100*time.Millisecond; wait *= 2 {
		if err = group.remove(); err == nil {
			return nil
		}
		if pause(g.life, wait) != nil {
			break
		}
	}
	return err
}

// report logs trouble that a process's fate doesn't depend on.
func (g *Guard) report(p *process, what string, err error) {
	if err != nil {
		g.log.Warn(what, p.fields(zap.Error(err))...)
	}
}
