// This file holds the engine: the store, the service and the supervisor of a daemon that can work.

package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
	"github.com/serfab/cadre-hostd/internal/store"
	"github.com/serfab/cadre-hostd/internal/supervisor"
)

// engine is made complete by newEngine, runs between start and close, and owns what it is made of.
type engine struct {
	store  *store.Store
	svc    *donation.Service
	sup    *supervisor.Supervisor
	limits supervisor.Limits
	log    *zap.Logger

	stop    context.CancelFunc
	stopped chan struct{}
}

func newEngine(d *daemon, s *store.Store) *engine {
	cfg := d.settings.current().Supervision
	e := &engine{store: s, limits: limitsOf(cfg), log: d.log, stopped: make(chan struct{})}
	e.sup = supervisor.New(s, d.link.orch, supervisor.Options{
		Limits:         e.limits,
		SweepInterval:  cfg.SweepInterval.D(),
		SettleInterval: cfg.SettleInterval.D(),
		ReapInterval:   cfg.ReapInterval.D(),
		Concurrency:    cfg.Concurrency,
		Alive:          alive,
		OnSweep:        d.checkEndpoint,
		Log:            d.log,
	})
	e.svc = donation.NewService(s, d.link.orch, donation.Options{
		Dirty:               e.sup.Add,
		Nodes:               d.link.orch,
		SettleInterval:      cfg.SettleInterval.D(),
		ProvisioningTimeout: cfg.ProvisioningTimeout.D(),
		UnseededTimeout:     cfg.UnseededTimeout.D(),
	})
	return e
}

func limitsOf(c config.Supervision) supervisor.Limits {
	return supervisor.Limits{
		MaxAttempts: c.MaxAttempts,
		BackoffBase: c.BackoffBase.D(),
		BackoffCap:  c.BackoffCap.D(),
		RefillAfter: c.RefillAfter.D(),
	}
}

// alive asks the kernel about a process that the guard doesn't know.
func alive(id donation.Identity) bool { return guard.Alive(id.BootID, id.PID, id.StartTime) }

// start takes up what a former daemon left half done, and sets the supervisor to work.
func (e *engine) start() {
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	if err := e.svc.Resume(ctx, time.Now()); err != nil {
		e.log.Error("provisions not taken up", zap.Error(err))
	}
	go func() {
		defer close(e.stopped)
		e.sup.Run(ctx, e.svc)
	}()
}

// close ends in order: those who wait are told, reconciles under way are finished, the store is closed. It
// touches no node.
func (e *engine) close() error {
	e.svc.Close()
	e.stop()
	<-e.stopped
	return e.store.Close()
}

// noteTimeout bounds an entry in the event log that nothing depends on.
const noteTimeout = 5 * time.Second

// note adds to the event log what happened to the daemon itself.
func (e *engine) note(ctx context.Context, kind, detail string) {
	e.record(ctx, donation.Event{Kind: kind, Detail: detail})
}

// record adds an event that nothing depends on.
func (e *engine) record(ctx context.Context, ev donation.Event) {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	if err := e.store.Note(ctx, ev); err != nil {
		e.log.Warn("event not recorded", zap.String("kind", ev.Kind), zap.Error(err))
	}
}

// checkEndpoint opens the admin socket again if something removed it.
func (d *daemon) checkEndpoint() {
	if _, err := d.endpoint.Check(); err != nil {
		d.log.Error("the admin socket is gone and can't be opened again", zap.Error(err))
	}
}
