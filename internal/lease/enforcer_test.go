// This file holds the other side of the tests: an enforcer that obeys a script.

package lease

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// enforcer is the other side: it obeys a script and notes when it was asked.
type enforcer struct {
	mu     sync.Mutex // guards what follows
	begun  time.Time
	asked  []time.Duration
	answer func(ctx context.Context, n int) error

	renewed, failed, gone int
	lastErr               error
	expiry                time.Time
}

func newEnforcer(answer func(ctx context.Context, n int) error) *enforcer {
	return &enforcer{begun: time.Now(), answer: answer}
}

func (e *enforcer) renew(ctx context.Context, expiresAt time.Time) error {
	e.mu.Lock()
	e.asked = append(e.asked, time.Since(e.begun))
	n := len(e.asked)
	e.mu.Unlock()
	if err := e.answer(ctx, n); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expiry = expiresAt
	return nil
}

func (e *enforcer) options(random float64) Options {
	return Options{
		Random:    func() float64 { return random },
		OnRenewed: func(time.Time) { e.count(&e.renewed, nil) },
		OnFailed:  func(err error, _ int) { e.count(&e.failed, err) },
		OnGone:    func() { e.count(&e.gone, nil) },
	}
}

func (e *enforcer) count(n *int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*n++
	if err != nil {
		e.lastErr = err
	}
}

// tries are the moments of the tries so far, since the start.
func (e *enforcer) tries() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

func (e *enforcer) counts() (renewed, failed, gone int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.renewed, e.failed, e.gone
}

func start(t *testing.T, ttl time.Duration, renew Renew, o Options) *Renewal {
	t.Helper()
	r, err := New(ttl, renew, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Start(time.Time{})
	return r
}

func fine(context.Context, int) error { return nil }
