// This file answers the calls that neither start nor stop: acknowledge, reclaim, ready, and a node's own READY=1.

package guard

import "fmt"

// ack forgets exits that are on record elsewhere now. If one of them has not exited none is forgotten.
func (g *Guard) ack(req AckRequest) error {
	t := g.table
	t.mu.Lock()
	var gone []*process
	for _, spawn := range req.Spawns {
		p, ok := t.procs[spawn]
		if !ok {
			continue
		}
		if p.view.State != StateExited {
			t.mu.Unlock()
			return &Error{Code: CodeNotExited, Message: fmt.Sprintf("%s has not exited; it is %s", spawn, p.view.State)}
		}
		gone = append(gone, p)
	}
	for _, p := range gone {
		if p.view.State == StateForgotten {
			continue // named twice
		}
		delete(t.procs, p.view.Spawn)
		t.remember(p.view.Spawn, &Error{Code: CodeFailed, Message: p.view.Spawn + " has run already, and its exit was acknowledged"})
		t.move(p, StateForgotten)
	}
	t.mu.Unlock()
	for _, p := range gone {
		p.spooling.Lock()
		err := g.spool.remove(p.view.Spawn)
		p.spooling.Unlock()
		g.report(p, "spool file left behind", err)
	}
	return nil
}

// notified notes that the node has said it is ready: on record first, so that the next guard knows it too.
func (g *Guard) notified(p *process) {
	t := g.table
	t.mu.Lock()
	fresh := !p.record.Notified
	p.record.Notified = true
	t.mu.Unlock()
	if !fresh {
		return
	}
	g.report(p, "readiness isn't in the spool", g.persist(p))
	t.mu.Lock()
	defer t.mu.Unlock()
	p.view.Notified = true
	if p.view.State != StateForgotten {
		t.tell(p)
	}
}

// reclaim deletes the directory of a donation that has no live process.
func (g *Guard) reclaim(req ReclaimRequest) error {
	if !validID(req.Donation) {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("donation %q isn't a donation id", req.Donation)}
	}
	t := g.table
	t.mu.Lock()
	p, alive := t.live[req.Donation]
	switch {
	case alive:
		t.mu.Unlock()
		return &Error{Code: CodeBusy, Message: fmt.Sprintf("%s of %s is still alive", p.view.Spawn, req.Donation)}
	case t.reclaiming[req.Donation]:
		t.mu.Unlock()
		return &Error{Code: CodeBusy, Message: fmt.Sprintf("the directory of %s is being deleted", req.Donation)}
	}
	t.reclaiming[req.Donation] = true
	t.mu.Unlock()

	g.startSlots <- struct{}{}
	err := g.dirs.reclaim(req.Donation)
	<-g.startSlots

	t.mu.Lock()
	delete(t.reclaiming, req.Donation)
	t.mu.Unlock()
	if err != nil {
		return &Error{Code: CodeFailed, Message: err.Error()}
	}
	return nil
}

// ready reports whether a running spawn's file has the content.
func (g *Guard) ready(req ReadyRequest) bool {
	t := g.table
	t.mu.Lock()
	p, ok := t.procs[req.Spawn]
	running := ok && p.view.State == StateRunning
	t.mu.Unlock()
	return running && localPath(req.Path) && g.dirs.ready(p.view.Donation, req.Path, req.Content)
}
