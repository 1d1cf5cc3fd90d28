// This file tests the loop in virtual time: hours pass in milliseconds, and every moment is exact.

package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestL01_RenewedAtHalfOfTheTTL(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 27 * time.Minute, 0.5: 30 * time.Minute, 1: 33 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnforcer(fine)
			r := start(t, time.Hour, e.renew, e.options(random))
			time.Sleep(10*want + time.Second)
			r.Stop()
			for i, at := range e.tries() {
				if at.Round(time.Second) != time.Duration(i+1)*want {
					t.Errorf("random %v: renewal %d after %v, want %v", random, i+1, at, time.Duration(i+1)*want)
				}
			}
			if renewed, failed, _ := e.counts(); renewed != 10 || failed != 0 {
				t.Errorf("random %v: %d renewed, %d failed, want 10 and 0", random, renewed, failed)
			}
		})
	}
}

func TestL01_LeaseThatWasFoundRunning(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		time.Hour:        30 * time.Minute,
		45 * time.Minute: 15 * time.Minute,
		30 * time.Minute: 3 * time.Minute, // overdue: spread over what jitter would have
		time.Minute:      7500 * time.Millisecond,
		-time.Minute:     time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnforcer(fine)
			r, err := New(time.Hour, e.renew, e.options(0.5))
			if err != nil {
				t.Fatal(err)
			}
			r.Start(time.Now().Add(left))
			time.Sleep(want)
			synctest.Wait()
			r.Stop()
			if got := e.tries(); !cmp.Equal(got, []time.Duration{want}) {
				t.Errorf("with %v left: tries after %v, want %v", left, got, want)
			}
		})
	}
}

func TestL03_ScheduleOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("503")
		e := newEnforcer(func(_ context.Context, n int) error {
			if n == 70 {
				return nil
			}
			return fails
		})
		r := start(t, time.Hour, e.renew, e.options(0.5))
		time.Sleep(time.Hour + 10*time.Minute)
		r.Stop()
		got := e.tries()
		// 30 min, then 1, 2, 4, 8, 16 s later, then every 30 s.
		want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}
		for i, s := range want {
			if at := got[i]; at != 30*time.Minute+s*time.Second {
				t.Errorf("try %d after %v, want 30m%ds", i+1, at, s)
			}
		}
		lastTry := time.Hour - 30*time.Second
		if !slices.Contains(got, lastTry) {
			t.Errorf("no last try %v after the start; tries: %v", lastTry, got[len(want):])
		}
	})
}

func TestL03_SuccessResetsTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnforcer(func(_ context.Context, n int) error {
			if n%3 != 0 {
				return errors.New("503")
			}
			return nil
		})
		r := start(t, time.Minute, e.renew, e.options(0.5))
		time.Sleep(70 * time.Second)
		r.Stop()
		s := func(list ...int) (out []time.Duration) {
			for _, n := range list {
				out = append(out, time.Duration(n)*time.Second)
			}
			return out
		}
		if diff := cmp.Diff(s(30, 31, 33, 63, 64, 66), e.tries()); diff != "" {
			t.Error(diff)
		}
	})
}

// busy asks to be left alone.
type busy struct{ d time.Duration }

func (b busy) Error() string             { return "429" }
func (b busy) RetryAfter() time.Duration { return b.d }

func TestL03_RetryAfterIsHonouredWithinWhatIsLeft(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		10 * time.Second: 40 * time.Second,
		time.Hour:        52500 * time.Millisecond, // the last try, a time-out before the expiry
		-time.Hour:       31 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnforcer(func(context.Context, int) error { return fmt.Errorf("renew: %w", busy{asked}) })
			r := start(t, time.Minute, e.renew, e.options(0.5))
			time.Sleep(59 * time.Second)
			r.Stop()
			if got := e.tries(); len(got) < 2 || got[1] != want {
				t.Errorf("asked to wait %v: tries after %v, want the second after %v", asked, got, want)
			}
		})
	}
}

func TestL04_HangingRenewalIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnforcer(func(ctx context.Context, n int) error {
			if n == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		r := start(t, time.Minute, e.renew, e.options(0.5))
		// A quarter of the interval of 30 s, then a retry 1 s later.
		time.Sleep(37500*time.Millisecond - 1)
		if _, failed, _ := e.counts(); failed != 0 || !r.Alive() {
			t.Error("it was cut off early")
		}
		time.Sleep(1100 * time.Millisecond)
		r.Stop()
		if renewed, failed, _ := e.counts(); renewed != 1 || failed != 1 || !errors.Is(e.lastErr, errTimeout) {
			t.Errorf("%d renewed, %d failed (%v), want one each", renewed, failed, e.lastErr)
		}
	})
}

func TestL05_RenewalThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		e := newEnforcer(func(_ context.Context, n int) error {
			if n == 1 {
				<-late
				return ErrGone // an answer that would end it, were it not too late
			}
			return nil
		})
		r := start(t, time.Minute, e.renew, e.options(0.5))
		time.Sleep(50 * time.Second)
		close(late)
		synctest.Wait()
		if renewed, failed, gone := e.counts(); renewed != 1 || failed != 1 || gone != 0 || !r.Alive() {
			t.Errorf("%d renewed, %d failed, %d gone, alive %v; the late answer must change nothing", renewed, failed, gone, r.Alive())
		}
		r.Stop()
	})
}

func TestL06_GoneIsToldOnceAndIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnforcer(func(_ context.Context, n int) error {
			if n == 2 {
				return fmt.Errorf("404: %w", ErrGone)
			}
			return nil
		})
		r := start(t, time.Minute, e.renew, e.options(0.5))
		time.Sleep(time.Hour)
		if _, _, gone := e.counts(); gone != 1 || len(e.tries()) != 2 || r.Alive() {
			t.Errorf("gone told %d times after %d tries, alive %v", gone, len(e.tries()), r.Alive())
		}
		r.Stop()
		r.Start(time.Time{})
		time.Sleep(time.Hour)
		if len(e.tries()) != 2 {
			t.Error("it was asked again")
		}
	})
}

func TestL07_EveryOtherErrorIsTransientAndOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := map[int]func(context.Context, int) error{
			3: func(context.Context, int) error { return ErrGone },
			7: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() },
			9: func(context.Context, int) error { return errors.New("<html>nonsense</html>") },
		}
		const ttl = 5 * time.Second
		var all []*enforcer
		var renewals []*Renewal
		for i := range 20 {
			answer := answers[i]
			if answer == nil {
				answer = fine
			}
			e := newEnforcer(answer)
			o := e.options(0)
			o.Random = rand.New(rand.NewPCG(uint64(i), 1)).Float64
			all, renewals = append(all, e), append(renewals, start(t, ttl, e.renew, o))
		}
		time.Sleep(5 * ttl)
		for i, r := range renewals {
			if want := i != 3; r.Alive() != want {
				t.Errorf("lease %d: alive %v, want %v", i, r.Alive(), want)
			}
			r.Stop()
		}
		synctest.Wait()
		for i, e := range all {
			_, failed, _ := e.counts()
			if answers[i] != nil {
				continue
			}
			if failed != 0 {
				t.Errorf("lease %d failed %d times beside the others' trouble", i, failed)
			}
			before := time.Duration(0)
			for _, at := range e.tries() {
				if at-before > ttl*55/100+time.Millisecond {
					t.Errorf("lease %d was renewed %v after the time before", i, at-before)
				}
				before = at
			}
		}
	})
}

func TestL08_StopIsFinalAndIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnforcer(fine)
		r, err := New(time.Minute, e.renew, e.options(0.5))
		if err != nil {
			t.Fatal(err)
		}
		r.Stop()
		r.Stop()
		r.Start(time.Time{})
		time.Sleep(time.Hour)
		if len(e.tries()) != 0 || r.Alive() {
			t.Errorf("stopped before its start: %d tries, alive %v", len(e.tries()), r.Alive())
		}

		// Stopped in the middle of a try: that one is cancelled and means nothing.
		cancelled := make(chan struct{})
		e = newEnforcer(func(ctx context.Context, _ int) error {
			<-ctx.Done()
			close(cancelled)
			return nil
		})
		r = start(t, time.Minute, e.renew, e.options(0.5))
		r.Start(time.Time{}) // a second start does nothing
		time.Sleep(31 * time.Second)
		if !r.Alive() { // L09: also while a renewal is in flight
			t.Error("not alive while it asks")
		}
		r.Stop()
		<-cancelled
		time.Sleep(time.Hour)
		if renewed, failed, _ := e.counts(); renewed+failed != 0 || len(e.tries()) != 1 || r.Alive() {
			t.Errorf("after the stop: %d renewed, %d failed, %d tries", renewed, failed, len(e.tries()))
		}
	})
}

func TestL09_AliveFromStartToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnforcer(fine)
		r, err := New(time.Minute, e.renew, e.options(0.5))
		if err != nil {
			t.Fatal(err)
		}
		if r.Alive() {
			t.Error("alive before its start")
		}
		r.Start(time.Time{})
		time.Sleep(5 * time.Minute)
		if !r.Alive() {
			t.Error("not alive after five minutes")
		}
		r.Stop()
		if r.Alive() {
			t.Error("alive after its stop")
		}
	})
}

func TestL10_NoTTLAndNoRenewalIsNoLease(t *testing.T) {
	r, err := New(0, nil, Options{})
	if err != nil || r != nil {
		t.Fatalf("New without anything: %v, %v", r, err)
	}
	r.Start(time.Time{})
	r.Hurry()
	r.Stop()
	if r.Alive() {
		t.Error("what isn't there is alive")
	}
	renew := func(context.Context, time.Time) error { return nil }
	for _, ttl := range []time.Duration{0, -time.Second} {
		if _, err := New(ttl, renew, Options{}); err == nil {
			t.Errorf("a TTL of %v together with a renewal was accepted", ttl)
		}
	}
	if _, err := New(time.Hour, nil, Options{}); err == nil {
		t.Error("a TTL without a renewal was accepted")
	}
}

func TestL12_WaitingLeaseHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The number is that of the whole process, which has some of its own that come and go.
		const leases, others = 1000, 10
		most := runtime.NumGoroutine() + others
		var all []*Renewal
		for range leases {
			all = append(all, start(t, time.Hour, func(context.Context, time.Time) error { return nil }, Options{}))
		}
		// Timers alone end with the process; a goroutine each would be something to wait for.
		if now := runtime.NumGoroutine(); now > most {
			t.Errorf("%d goroutines for %d leases that wait", now, leases)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > most {
			t.Errorf("%d goroutines after the renewals of %d leases", now, leases)
		}
		for _, r := range all {
			r.Stop()
		}
	})
}

func TestL15_HurryAfterAWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnforcer(fine)
		r := start(t, time.Hour, e.renew, e.options(0.5))
		time.Sleep(20 * time.Minute)
		r.Hurry()
		time.Sleep(6 * time.Minute)
		r.Hurry() // the second one right after a renewal doesn't make it spin
		r.Hurry()
		synctest.Wait()
		if got := e.tries(); len(got) != 1 || got[0] > 26*time.Minute {
			t.Errorf("tries after %v, want one within the jitter of 20 min", got)
		}
		r.Stop()
		r.Hurry()
	})
}
