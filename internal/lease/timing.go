// Package lease keeps leases alive. A lease is an absolute expiry that somebody else enforces; whoever is alive
// pushes it forward. A Renewal does that for one lease: it renews at half of the TTL, retries within what is left,
// and stops for good when it is told that the lease is gone. It knows neither what is leased nor who enforces it.
//
// What a lease does not guarantee: that its holder is alone. Between the expiry and the enforcer's act, and while
// the two count time differently, what was leased may still run. It bounds how long something outlives its holder;
// it is no lock. Nor does it say that the holder does its work, only that its renewals arrive.
//
// This file holds the numbers: pure functions of the TTL and a random value.
package lease

import (
	"fmt"
	"time"
)

// The rules that the numbers of a Timing come from.
const (
	// renewals is how many renewals fit into a TTL: at half of it, one may fail altogether and the next is in time.
	renewals = 2
	// Jitter is the part by which each pause is lengthened or shortened at random, anew each time, so that leases
	// that began together don't stay together.
	Jitter = 0.1
	// maxTimeout bounds one renewal: an answer that takes longer is none, whatever the TTL.
	maxTimeout = 30 * time.Second
	// timeoutPart: a renewal may take a quarter of the interval, so that hanging ones leave room for retries.
	timeoutPart = 4
	// firstRetry is the pause after the first failure; it doubles with each further one.
	firstRetry = time.Second
	// maxRetry and retryPart cap the pause between retries: 30 s, and a twentieth of the TTL, so that ten tries at
	// least fall between the first failure and the expiry.
	maxRetry  = 30 * time.Second
	retryPart = 20
	// minPause is the shortest pause: never zero, never a busy loop.
	minPause = time.Millisecond
	// minTTL keeps every derived number above what timers can hold: a twentieth of it is 1 ms.
	minTTL = retryPart * minPause
)

// Timing are the numbers of one lease. TimingOf derives them from the TTL; a caller may change them.
type Timing struct {
	// TTL is how long a renewal lasts: the new expiry is the moment of asking plus TTL.
	TTL time.Duration
	// Interval is the pause between renewals that succeed, before jitter: TTL/2.
	Interval time.Duration
	// Timeout is how long one renewal may take: a quarter of the interval, 30 s at most.
	Timeout time.Duration
	// FirstRetry is the pause after a first failure and MaxRetry the longest, before jitter: 1 s, doubling, up to
	// TTL/20 and 30 s.
	FirstRetry, MaxRetry time.Duration
	// LastTry is how long before the expiry a last try is placed at the latest: Timeout. An enforcer that is far
	// away wants more (a cluster 2 s at least).
	LastTry time.Duration
}

// TimingOf derives a lease's numbers from its TTL.
func TimingOf(ttl time.Duration) Timing {
	t := Timing{TTL: ttl, Interval: ttl / renewals}
	t.Timeout = min(maxTimeout, t.Interval/timeoutPart)
	t.MaxRetry = min(maxRetry, ttl/retryPart)
	t.FirstRetry = min(firstRetry, t.MaxRetry)
	t.LastTry = t.Timeout
	return t
}

// Check returns an error that names the rule which the numbers break, nil if a lease can be kept with them.
func (t Timing) Check() error {
	switch {
	case t.TTL < minTTL:
		return fmt.Errorf("a TTL of %s is too short: it must be %s at least", t.TTL, minTTL)
	case t.Timeout < minPause || t.FirstRetry < minPause || t.MaxRetry < t.FirstRetry:
		return fmt.Errorf("time-out %s, first retry %s and longest retry %s: each must be %s at least, and the longest no shorter than the first",
			t.Timeout, t.FirstRetry, t.MaxRetry, minPause)
	case longest(t.Interval)+t.Timeout+t.LastTry >= t.TTL:
		return fmt.Errorf("an interval of %s with jitter, a time-out of %s and a last try %s before the expiry don't fit into a TTL of %s",
			t.Interval, t.Timeout, t.LastTry, t.TTL)
	case t.LastTry < t.Timeout:
		return fmt.Errorf("a last try %s before the expiry can't have an answer in time: the time-out is %s", t.LastTry, t.Timeout)
	}
	return nil
}

// longest is the longest pause that jitter makes of base.
func longest(base time.Duration) time.Duration { return jittered(base, 1) }

// jittered lengthens or shortens base by up to Jitter, as random (0 to 1) says; it is 1 ms at least.
func jittered(base time.Duration, random float64) time.Duration {
	factor := 1 - Jitter + 2*Jitter*random
	return max(time.Duration(float64(base)*factor), minPause)
}

// backoff is the pause before the retry after n failures in a row, before jitter.
func (t Timing) backoff(failures int) time.Duration {
	d := t.FirstRetry
	for range failures - 1 {
		if d >= t.MaxRetry {
			break
		}
		d *= 2
	}
	return min(d, t.MaxRetry)
}

// closest is how soon after a try another may follow.
func (t Timing) closest() time.Duration { return jittered(t.FirstRetry, 0) }

// next returns the pause after a failure: the backoff, or what the answer asked for if that is longer. While the
// expiry lies ahead it never sleeps past it: a last try comes LastTry before it, and if even that one fails early,
// further ones halve what is left. Once it has passed, nobody knows whether the enforcer has acted, so the tries go
// on, and what the answer asked for counts up to one TTL.
func (t Timing) next(failures int, asked, left time.Duration, random float64) time.Duration {
	d := max(jittered(t.backoff(failures), random), asked)
	switch {
	case left > t.LastTry:
		d = min(d, left-t.LastTry)
	case left > 0:
		d = min(d, left/2)
	default:
		d = min(d, t.TTL)
	}
	return max(d, t.closest())
}

// first returns the pause before the first renewal of a lease that has left to go: the rest of an ordinary interval,
// or soon if that has passed.
func (t Timing) first(left time.Duration, random float64) time.Duration {
	if rest := left - (t.TTL - t.Interval); rest > 0 {
		return jittered(rest, random)
	}
	return t.soon(left, random)
}

// soon is a moment within the time that jitter would have spread a renewal over, but well before the expiry.
func (t Timing) soon(left time.Duration, random float64) time.Duration {
	spread := min(time.Duration(2*Jitter*float64(t.Interval)), left/4)
	return max(time.Duration(float64(spread)*random), minPause)
}

// Range returns the shortest and the longest pause between two renewals that succeed.
func (t Timing) Range() (shortest, longest time.Duration) {
	return jittered(t.Interval, 0).Round(time.Millisecond), jittered(t.Interval, 1).Round(time.Millisecond)
}
