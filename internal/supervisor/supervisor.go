// This file is the supervisor's frame: the workers that take dirty donations from the queue, the sweep and
// the reap, and what the rest of the daemon can ask it.

package supervisor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Store is what the supervisor reads; all writing is the service's.
type Store interface {
	Get(ctx context.Context, id donation.ID) (donation.Record, error)
	List(ctx context.Context, f donation.Filter) ([]donation.Record, error)
}

// Orchestrator is what the supervisor asks of it; all acting is the service's.
type Orchestrator interface {
	Observe(id donation.ID) donation.Observation
	// Processes returns every process that is known, of whatever donation.
	Processes() []donation.Process
	Ready(ctx context.Context, l donation.Launch) (bool, error)
}

// Service does what has been decided; *donation.Service is one.
type Service interface {
	InFlight(id donation.ID) bool
	Respawn(ctx context.Context, rec donation.Record, exit *donation.Exit, charge bool) error
	Resend(ctx context.Context, rec donation.Record) error
	Confirm(ctx context.Context, id donation.ID, p donation.Process) error
	Ready(ctx context.Context, id donation.ID, spawn donation.SpawnID) error
	Settle(ctx context.Context, id donation.ID, spawn donation.SpawnID, state donation.SpawnState, exit donation.Exit) error
	GiveUp(ctx context.Context, rec donation.Record, message string) error
	Stop(ctx context.Context, spawn donation.SpawnID, reason donation.Reason) error
	IntendDrain(ctx context.Context, spawn donation.SpawnID) error
	Refill(ctx context.Context, rec donation.Record) error
	Reclaim(ctx context.Context, rec donation.Record, state donation.SpawnState, exit *donation.Exit) error
	ReapStale(ctx context.Context, now time.Time) error
}

// Options are the supervisor's surroundings and its numbers.
type Options struct {
	Limits Limits
	// SweepInterval is how often everything is made dirty, whatever events said.
	SweepInterval time.Duration
	// SettleInterval is the pause before another look at what could not be done now.
	SettleInterval time.Duration
	// ReapInterval is how often stale provisionings are looked for.
	ReapInterval time.Duration
	// Concurrency is how many donations are reconciled at a time.
	Concurrency int
	// Alive reports whether the process with this identity lives; it is asked when the guard doesn't know it.
	Alive func(donation.Identity) bool
	// OnSweep, if set, is called with every sweep, for other things that want a regular look.
	OnSweep func()
	Log     *zap.Logger
}

// Supervisor reconciles dirty donations. Make one with New, then Run it.
type Supervisor struct {
	store Store
	orch  Orchestrator
	svc   Service
	opts  Options
	queue *Queue
	ready *prober
	errs  *throttle

	draining atomic.Bool
	sweepNow chan struct{} // capacity 1: a sweep that is asked for twice is one sweep

	mu sync.Mutex
	// holds says what keeps a donation from being respawned without a charge; guarded by mu.
	holds map[donation.ID]string
}

// New returns a supervisor that does nothing before Run. Keys may be added at once.
func New(store Store, orch Orchestrator, opts Options) *Supervisor {
	s := &Supervisor{
		store: store, orch: orch, opts: opts,
		queue: NewQueue(), sweepNow: make(chan struct{}, 1), holds: map[donation.ID]string{},
	}
	s.errs = newThrottle(opts.SettleInterval, opts.Log)
	return s
}

// Add makes the donation dirty: it will be looked at soon, once, however often it is added before.
func (s *Supervisor) Add(id donation.ID) { s.queue.Add(id) }

// Sweep asks for a look at everything; it returns at once.
func (s *Supervisor) Sweep() {
	select {
	case s.sweepNow <- struct{}{}:
	default: // one is asked for already
	}
}

// Drain has every node stopped, in order and uncharged, and none started any more. It returns at once.
func (s *Supervisor) Drain() {
	s.draining.Store(true)
	s.Sweep()
}

// Hold returns what keeps the donation from being respawned, "" if nothing does.
func (s *Supervisor) Hold(id donation.ID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[id]
}

// setHold remembers why; it reports whether that is news.
func (s *Supervisor) setHold(id donation.ID, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds[id] == why {
		return false
	}
	if why == "" {
		delete(s.holds, id)
	} else {
		s.holds[id] = why
	}
	return true
}

// Run works until ctx ends, then waits for the reconciles that are under way; what is still dirty is left
// for the next start. svc does the acting.
func (s *Supervisor) Run(ctx context.Context, svc Service) {
	s.svc = svc
	s.ready = newProber(s.orch, svc, s.opts.Log)
	var wg sync.WaitGroup
	for range s.opts.Concurrency {
		wg.Go(func() { s.work(ctx) })
	}
	wg.Go(func() { s.tick(ctx) })
	<-ctx.Done()
	s.queue.Close()
	wg.Wait()
	s.ready.close()
}

// work reconciles one key after another.
func (s *Supervisor) work(ctx context.Context) {
	for {
		id, ok := s.queue.Get()
		if !ok {
			return
		}
		if ctx.Err() == nil {
			s.reconcile(ctx, id)
		}
		s.queue.Done(id)
	}
}

// tick sweeps at the start, whenever asked, and regularly; and it reaps.
func (s *Supervisor) tick(ctx context.Context) {
	sweep := time.NewTicker(s.opts.SweepInterval)
	defer sweep.Stop()
	reap := time.NewTicker(s.opts.ReapInterval)
	defer reap.Stop()
	s.reap(ctx)
	s.sweep(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.sweepNow:
			s.sweep(ctx)
		case <-sweep.C:
			s.sweep(ctx)
			if s.opts.OnSweep != nil {
				s.opts.OnSweep()
			}
		case <-reap.C:
			s.reap(ctx)
		}
	}
}

// sweep makes dirty whatever is supervised or has something left to settle, and whatever has a process: one
// that started late, or whose exit nobody acknowledged, may belong to a record that is settled. One bad row
// never hides the others; a store that can't be read is one logged error, and the next trigger tries again.
func (s *Supervisor) sweep(ctx context.Context) {
	recs, err := s.store.List(ctx, donation.Filter{Statuses: donation.Supervised, Unsettled: true})
	if err != nil && ctx.Err() == nil {
		s.opts.Log.Error("sweep incomplete", zap.Error(err), zap.Int("read", len(recs)))
	}
	for _, rec := range recs {
		s.queue.Add(rec.ID)
	}
	for _, p := range s.orch.Processes() {
		s.queue.Add(p.Donation)
	}
}

func (s *Supervisor) reap(ctx context.Context) {
	if err := s.svc.ReapStale(ctx, time.Now()); err != nil && ctx.Err() == nil {
		s.opts.Log.Error("reap incomplete", zap.Error(err))
	}
}
