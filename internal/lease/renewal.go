// This file holds the loop of one lease as a small state machine: a timer, an answer and a stop move it, and nothing
// else does. Between them it costs one timer and no goroutine.

package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrGone is what a Renew returns, wrapped or not, when what was leased doesn't exist any more. Every other error is
// taken for a passing one, garbage included.
var ErrGone = errors.New("the lease is gone")

// errTimeout is the error of a renewal that was cut off.
var errTimeout = errors.New("no answer in time")

// Renew asks the enforcer to let the lease expire at expiresAt and not before. It is one call at a time; its context
// ends when its time is up. An error that has a method RetryAfter() time.Duration, in its chain, asks to be left
// alone for that long; it is honoured within the time that is left.
type Renew func(ctx context.Context, expiresAt time.Time) error

// Options are what a Renewal tells and whom it asks for chance. Callbacks run on goroutines of the renewal's and must
// return soon; one that has begun may end after Stop has returned. Nil ones are left out.
type Options struct {
	// Timing overrides the numbers that follow from the TTL; its own TTL counts then.
	Timing *Timing
	// Random returns a value from 0 to 1; nil means math/rand's.
	Random func() float64
	// OnRenewed is told of each success with the new expiry.
	OnRenewed func(expiresAt time.Time)
	// OnFailed is told of each failure, and of how many there have been in a row.
	OnFailed func(err error, failures int)
	// OnGone is told once, when the answer was ErrGone. Nothing follows it.
	OnGone func()
}

// state is where a Renewal is; it moves down this list only.
type state int

const (
	fresh   state = iota
	waiting       // for the moment of the next try
	asking        // for an answer
	ended         // stopped or gone
)

// Renewal keeps one lease. The nil Renewal is no lease: its methods do nothing.
type Renewal struct {
	timing Timing
	renew  Renew
	opts   Options

	mu sync.Mutex // guards what follows; it is not held while renew or a callback runs
	st state
	// at is when timer fires: the next try while waiting, the end of the time-out while asking.
	at    time.Time
	timer *time.Timer
	// try counts the tries: the answer to any but the latest is late and means nothing.
	try      int
	cancel   context.CancelFunc
	asked    time.Time
	expiry   time.Time
	failures int
}

// New returns a renewal that does nothing before Start. A TTL of zero without a renew is no lease: the result is nil,
// which is a valid Renewal. Timings that can't work are refused, naming the rule that they break.
func New(ttl time.Duration, renew Renew, opts Options) (*Renewal, error) {
	if ttl == 0 && renew == nil && opts.Timing == nil {
		return nil, nil
	}
	if renew == nil {
		return nil, fmt.Errorf("a lease of %s without anybody to renew it with", ttl)
	}
	timing := TimingOf(ttl)
	if opts.Timing != nil {
		timing = *opts.Timing
	}
	if err := timing.Check(); err != nil {
		return nil, err
	}
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	return &Renewal{timing: timing, renew: renew, opts: opts}, nil
}

// Start begins to renew a lease that expires at expiresAt; the zero time means that it has just begun. Starting it
// again, or after a stop, does nothing.
func (r *Renewal) Start(expiresAt time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.st != fresh {
		return
	}
	now := time.Now()
	if expiresAt.IsZero() {
		expiresAt = now.Add(r.timing.TTL)
	}
	r.st, r.expiry = waiting, expiresAt
	pause := r.timing.first(expiresAt.Sub(now), r.opts.Random())
	r.at = now.Add(pause)
	r.timer = time.AfterFunc(pause, r.fire)
}

// Stop ends it for good, at any time and any number of times: no renewal begins once it has returned, and the answer
// to one that is under way means nothing.
func (r *Renewal) Stop() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

// end is the way to ended; mu is held.
func (r *Renewal) end() {
	r.st = ended
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.cancel != nil {
		r.cancel()
		r.cancel = nil
	}
}

// Alive reports whether it has been started and has neither been stopped nor found its lease gone.
func (r *Renewal) Alive() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.st == waiting || r.st == asking
}

// Hurry moves the next try to soon, within the time that jitter would have spread it over: for a moment at which time may have been
// lost, such as the end of a suspend.
func (r *Renewal) Hurry() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.st != waiting {
		return
	}
	now := time.Now()
	pause := max(r.timing.soon(r.expiry.Sub(now), r.opts.Random()), r.asked.Add(r.timing.closest()).Sub(now))
	if now.Add(pause).Before(r.at) {
		r.wait(now, pause)
	}
}

// wait sets the timer; mu is held.
func (r *Renewal) wait(now time.Time, pause time.Duration) {
	r.at = now.Add(pause)
	r.timer.Reset(pause)
}

// fire is the timer's: the moment of a try has come, or the end of one's time-out.
func (r *Renewal) fire() {
	r.mu.Lock()
	now := time.Now()
	if early := r.at.Sub(now); early > 0 && r.st != ended {
		r.timer.Reset(early) // it was set anew while this call was on its way
		r.mu.Unlock()
		return
	}
	switch r.st {
	case waiting:
		r.ask(now)
	case asking:
		r.cancel()
		r.cancel = nil
		tell := r.failed(now, errTimeout)
		r.mu.Unlock()
		tell()
		return
	}
	r.mu.Unlock()
}

// ask begins a try; mu is held.
func (r *Renewal) ask(now time.Time) {
	ctx, cancel := context.WithCancelCause(context.Background())
	r.st, r.asked, r.cancel = asking, now, func() { cancel(errTimeout) }
	r.try++
	try := r.try
	r.wait(now, r.timing.Timeout)
	go func() {
		defer cancel(nil)
		r.answer(try, r.renew(ctx, now.Add(r.timing.TTL)))
	}()
}

// answer takes what a try has come to.
func (r *Renewal) answer(try int, err error) {
	r.mu.Lock()
	if r.st != asking || r.try != try {
		r.mu.Unlock()
		return // late: it was cut off, or nobody wants to know any more
	}
	now := time.Now()
	var tell func()
	switch {
	case err == nil:
		tell = r.renewed(now)
	case errors.Is(err, ErrGone):
		r.end()
		tell = func() {
			if r.opts.OnGone != nil {
				r.opts.OnGone()
			}
		}
	default:
		tell = r.failed(now, err)
	}
	r.mu.Unlock()
	tell()
}

// renewed notes a success and returns who is to be told; mu is held.
func (r *Renewal) renewed(now time.Time) func() {
	r.st, r.failures = waiting, 0
	r.expiry = r.asked.Add(r.timing.TTL)
	expiry := r.expiry
	// Counted from the asking, so that slow answers don't eat into the TTL.
	r.wait(now, max(jittered(r.timing.Interval, r.opts.Random())-now.Sub(r.asked), r.timing.closest()))
	return func() {
		if r.opts.OnRenewed != nil {
			r.opts.OnRenewed(expiry)
		}
	}
}

// failed notes a failure and returns who is to be told; mu is held.
func (r *Renewal) failed(now time.Time, err error) func() {
	r.st = waiting
	r.failures++
	failures := r.failures
	r.wait(now, r.timing.next(failures, retryAfter(err), r.expiry.Sub(now), r.opts.Random()))
	return func() {
		if r.opts.OnFailed != nil {
			r.opts.OnFailed(err, failures)
		}
	}
}

// retryAfter is how long the answer asked to be left alone, 0 if it didn't.
func retryAfter(err error) time.Duration {
	var asks interface{ RetryAfter() time.Duration }
	if errors.As(err, &asks) {
		return max(asks.RetryAfter(), 0)
	}
	return 0
}
