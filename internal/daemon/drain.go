// This file drains: every node is stopped in order before the daemon leaves.

package daemon

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// drainPoll is how often a drain looks whether all is stopped, drainTell how often it says that it isn't.
const (
	drainPoll = 20 * time.Millisecond
	drainTell = 10 * time.Second
)

// drainNodes stops every node in order and returns when none is left, or when ctx ends. What it can't reach, because
// no guard answers, is waited for.
func (d *daemon) drainNodes(ctx context.Context, e *engine) {
	d.setFaults(draining)
	d.log.Info("draining", zap.Int("nodes", d.link.alive()))
	e.note(ctx, "daemon.draining", fmt.Sprintf("%d nodes are to be stopped", d.link.alive()))
	e.svc.Refuse()
	e.sup.Drain()
	poll, tell := time.NewTicker(drainPoll), time.NewTicker(drainTell)
	defer poll.Stop()
	defer tell.Stop()
	for !e.drained(ctx, d.link) {
		select {
		case <-poll.C:
		case <-tell.C:
			d.log.Warn("still draining", zap.Int("nodes", d.link.alive()))
			e.sup.Sweep()
		case <-ctx.Done():
			return
		}
	}
}

// drained reports whether every node that is on record has stopped and its end is on record too.
func (e *engine) drained(ctx context.Context, l *link) bool {
	if _, ok := l.orch.Hello(); !ok {
		return false
	}
	recs, err := e.store.List(ctx, donation.Filter{Statuses: []donation.Status{donation.Provisioning}, Unsettled: true})
	for _, rec := range recs {
		if rec.Spawn != nil && !rec.Spawn.State.Ended() {
			return false
		}
	}
	return err == nil
}
