// This file asks nodes that run whether they are ready, apart from the reconciles, so that a slow answer
// never delays the news of a death.

package supervisor

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// The pace of the probes: the first after firstProbe, each pause half as long again up to slowProbe. A node
// that starts within milliseconds is seen within milliseconds; one that never gets ready costs one probe a second.
const (
	firstProbe = 2 * time.Millisecond
	slowProbe  = time.Second
	// probesAtOnce bounds the probes under way; each may take its time-out of a second.
	probesAtOnce = 64
)

// prober holds one goroutine for each spawn that runs and isn't ready yet.
type prober struct {
	orch Orchestrator
	svc  Service
	log  *zap.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}

	mu      sync.Mutex
	watched map[donation.SpawnID]struct{} // guarded by mu
}

func newProber(orch Orchestrator, svc Service, log *zap.Logger) *prober {
	p := &prober{orch: orch, svc: svc, log: log, slots: make(chan struct{}, probesAtOnce), watched: map[donation.SpawnID]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// watch probes the launch's spawn until it is ready or gone. A spawn that is watched already stays so.
func (p *prober) watch(l donation.Launch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.watched[l.Spawn.ID]; ok || p.ctx.Err() != nil {
		return
	}
	p.watched[l.Spawn.ID] = struct{}{}
	p.wg.Go(func() {
		p.probe(l)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watched, l.Spawn.ID)
	})
}

func (p *prober) probe(l donation.Launch) {
	for pause := firstProbe; ; pause = min(pause*3/2, slowProbe) {
		if !p.alive(l) {
			return
		}
		ready, err := p.ask(l)
		if err == nil && ready {
			if err = p.svc.Ready(p.ctx, l.Donation, l.Spawn.ID); err == nil {
				p.log.Info("ready", zap.String("donation", string(l.Donation)), zap.String("spawn", string(l.Spawn.ID)))
				return
			}
		}
		if err != nil && pause == slowProbe {
			p.log.Debug("readiness", zap.String("donation", string(l.Donation)), zap.Error(err))
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-p.ctx.Done():
			t.Stop()
			return
		}
	}
}

func (p *prober) ask(l donation.Launch) (bool, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-p.ctx.Done():
		return false, p.ctx.Err()
	}
	return p.orch.Ready(p.ctx, l)
}

// alive reports whether the spawn still runs, as far as is known: while the guard is away, it does.
func (p *prober) alive(l donation.Launch) bool {
	seen := p.orch.Observe(l.Donation)
	if !seen.Connected {
		return true
	}
	for _, proc := range seen.Processes {
		if proc.Spawn == l.Spawn.ID {
			return proc.State == donation.ProcessRunning
		}
	}
	return false
}

// close ends all probes and waits for them.
func (p *prober) close() {
	p.cancel()
	p.wg.Wait()
}
