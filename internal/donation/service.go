// This file is the service's frame: what it is made of, who owns its goroutines, and how a caller waits for
// a donation to settle.

package donation

import (
	"context"
	"sync"
	"time"
)

// Service does what a caller or the supervisor has decided: each method records first and acts then.
type Service struct {
	store Store
	orch  Orchestrator
	opts  Options

	// base is cancelled by Close; it carries what must outlive a caller's context.
	base   context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu sync.Mutex
	// closed refuses new provisions; guarded by mu.
	closed bool
	// inFlight counts the provisions that own a donation; guarded by mu.
	inFlight map[ID]int
	// waiters are closed at the next effect on their donation; guarded by mu.
	waiters map[ID]chan struct{}
}

// Options are the service's surroundings.
type Options struct {
	// Dirty is told of every donation that the supervisor should look at.
	Dirty func(ID)
	// Nodes reaches the nodes themselves, to seed them.
	Nodes Nodes
	// SettleInterval is the pause before an unanswered start is sent again.
	SettleInterval time.Duration
	// ProvisioningTimeout is when a provisioning that nobody works on becomes an error.
	ProvisioningTimeout time.Duration
	// UnseededTimeout is when a donation that nobody has seeded is terminated; 0 is never.
	UnseededTimeout time.Duration
}

// NewService returns a service; Close it before the store.
func NewService(store Store, orch Orchestrator, opts Options) *Service {
	s := &Service{store: store, orch: orch, opts: opts, inFlight: map[ID]int{}, waiters: map[ID]chan struct{}{}}
	s.base, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Close abandons what is in flight and waits for it: nodes are left as they are, and the records say how
// far each one got.
func (s *Service) Close() {
	s.Refuse()
	s.cancel(errStopping)
	s.wg.Wait()
}

var errStopping = Errorf(CodeUnavailable, "the daemon is stopping; ask again when it is back")

// Refuse refuses new provisions from now on; those in flight go on.
func (s *Service) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// InFlight reports whether a provision owns the donation now.
func (s *Service) InFlight(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight[id] > 0
}

// enter makes the donation the property of one provision more, until leave; false once the service is closed.
// What it allows, Close waits for.
func (s *Service) enter(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.inFlight[id]++
	s.wg.Add(1)
	return true
}

func (s *Service) leave(id ID) {
	s.mu.Lock()
	if s.inFlight[id]--; s.inFlight[id] <= 0 {
		delete(s.inFlight, id)
	}
	s.mu.Unlock()
	s.touched(id)
	s.opts.Dirty(id)
	s.wg.Done()
}

// changed returns a channel that is closed at the next effect on the donation. Ask before looking.
func (s *Service) changed(id ID) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, ok := s.waiters[id]
	if !ok {
		ch = make(chan struct{})
		s.waiters[id] = ch
	}
	return ch
}

// touched wakes who waits for the donation.
func (s *Service) touched(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch, ok := s.waiters[id]; ok {
		close(ch)
		delete(s.waiters, id)
	}
}

// sleep waits for d or the end of ctx; it reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
