// This file decides when a guard that was started for a daemon has nothing left to do.

package guard

import "time"

// idle returns a channel that is sent to when the guard has been idle for a while; nil if it never leaves by itself.
func (g *Guard) idle() <-chan struct{} {
	if !g.cfg.ExitWhenIdle {
		return nil
	}
	idle := make(chan struct{})
	g.tasks.Go(func() { g.watchIdle(idle) })
	return idle
}

func (g *Guard) watchIdle(idle chan<- struct{}) {
	begun := time.Now()
	timer := time.NewTimer(idleFirst)
	defer timer.Stop()
	for {
		changed := g.table.changed()
		select {
		case <-changed:
			// Something has happened: the time begins anew.
			timer.Reset(g.idleWait(begun))
			continue
		case <-timer.C:
		case <-g.life.Done():
			return
		}
		if !g.isIdle() {
			timer.Reset(idleLinger)
			continue
		}
		select {
		case idle <- struct{}{}:
			timer.Reset(idleLinger)
		case <-g.life.Done():
			return
		}
	}
}

// idleWait is how long the guard must be idle: longer before its first client has come.
func (g *Guard) idleWait(begun time.Time) time.Duration {
	if g.served.Load() {
		return idleLinger
	}
	return max(idleLinger, idleFirst-time.Since(begun))
}

func (g *Guard) isIdle() bool {
	known, _ := g.table.counts()
	return known == 0 && g.requests.Load() == 0
}

// close refuses further starts if the guard is still idle, and reports whether it is.
func (g *Guard) close() bool {
	t := g.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.procs) > 0 || g.requests.Load() > 0 {
		return false
	}
	t.leaving = true
	return true
}

// watched reports whether anybody watches.
func (t *table) watched() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.hub.subscribers) > 0
}
