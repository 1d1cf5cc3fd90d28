// This file keeps one fault that concerns many donations from filling the log.

package supervisor

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// throttle logs the first error of an interval and counts the others into the next.
type throttle struct {
	interval time.Duration
	log      *zap.Logger

	mu         sync.Mutex
	last       time.Time // guarded by mu
	suppressed int       // guarded by mu
}

func newThrottle(interval time.Duration, log *zap.Logger) *throttle {
	return &throttle{interval: interval, log: log}
}

func (t *throttle) error(id donation.ID, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.last.IsZero() && now.Sub(t.last) < t.interval {
		t.suppressed++
		return
	}
	t.log.Error("reconcile failed", zap.String("donation", string(id)), zap.Error(err), zap.Int("others", t.suppressed))
	t.last, t.suppressed = now, 0
}
