// This file tests the rules that hold under any sequence of outcomes.

package lease

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestL03_NeverSpinsNeverOversleeps runs random outcomes against the rules that hold for any of them.
func TestL03_NeverSpinsNeverOversleeps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(2*time.Second), int64(3*time.Hour)).Draw(rt, "ttl"))
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]string{"fine", "fails", "hangs", "ignores", "busy", "slow", "gone"}), 1, 60).Draw(rt, "outcomes")
		randoms := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 8).Draw(rt, "randoms")
		synctest.Test(t, func(t *testing.T) { checkRules(t, rt, ttl, outcomes, randoms) })
	})
}

func checkRules(t *testing.T, rt *rapid.T, ttl time.Duration, outcomes []string, randoms []float64) {
	timing := TimingOf(ttl)
	type try struct{ at, expiry time.Time } // with the expiry as it stood when the try began
	var mu sync.Mutex
	var tries []try
	expiry := time.Now().Add(ttl)
	gone := false
	done := make(chan struct{})
	renew := func(ctx context.Context, expiresAt time.Time) error {
		mu.Lock()
		n := len(tries)
		tries = append(tries, try{time.Now(), expiry})
		mu.Unlock()
		if n == len(outcomes) {
			close(done)
		}
		if n >= len(outcomes) {
			return errors.New("the script is over")
		}
		switch outcomes[n] {
		case "fine", "slow":
			if outcomes[n] == "slow" {
				time.Sleep(timing.Timeout - 1)
			}
			mu.Lock()
			expiry = expiresAt
			mu.Unlock()
			return nil
		case "hangs":
			<-ctx.Done()
			return ctx.Err()
		case "ignores":
			time.Sleep(2 * ttl)
			return nil
		case "busy":
			return busy{ttl}
		case "gone":
			mu.Lock()
			gone = true
			mu.Unlock()
			close(done)
			return ErrGone
		}
		return errors.New("500")
	}
	i := 0
	r, err := New(ttl, renew, Options{Random: func() float64 { i++; return randoms[i%len(randoms)] }})
	if err != nil {
		rt.Fatal(err)
	}
	r.Start(time.Time{})
	<-done
	synctest.Wait()
	if r.Alive() == gone {
		rt.Errorf("alive %v, gone %v", r.Alive(), gone)
	}
	r.Stop()
	mu.Lock()
	defer mu.Unlock()
	closest := time.Duration(0.9 * float64(min(time.Second, ttl/20)))
	for n := 1; n < len(tries); n++ {
		if gap := tries[n].at.Sub(tries[n-1].at); gap < closest-time.Microsecond {
			rt.Errorf("tries %d and %d are %v apart, want at least %v", n, n+1, gap, closest)
		}
		// Before an expiry passes there is a try in the last part of it.
		was, now := tries[n-1], tries[n]
		if was.at.Before(now.expiry.Add(-timing.Timeout-closest)) && now.at.After(now.expiry) {
			rt.Errorf("try %d came %v after the start of the one before and %v after the expiry", n+1, now.at.Sub(was.at), now.at.Sub(now.expiry))
		}
	}
	time.Sleep(3 * ttl) // lets those that ignored their context end
}
