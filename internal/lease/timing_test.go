// This file tests the numbers.

package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestL02_JitterOfAnInterval(t *testing.T) {
	for _, c := range []struct {
		base   time.Duration
		random float64
		want   time.Duration
	}{
		{time.Second, 0, 900 * time.Millisecond},
		{time.Second, 0.5, time.Second},
		{time.Second, 1, 1100 * time.Millisecond},
		{0, 0, time.Millisecond},
		{0, 1, time.Millisecond},
	} {
		if got := jittered(c.base, c.random); got.Round(time.Microsecond) != c.want {
			t.Errorf("jittered(%v, %v) = %v, want %v", c.base, c.random, got, c.want)
		}
	}
}

func TestL03_NumbersFollowFromTheTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]Timing{
		time.Hour: {
			TTL: time.Hour, Interval: 30 * time.Minute, Timeout: 30 * time.Second,
			FirstRetry: time.Second, MaxRetry: 30 * time.Second, LastTry: 30 * time.Second,
		},
		time.Minute: {
			TTL: time.Minute, Interval: 30 * time.Second, Timeout: 7500 * time.Millisecond,
			FirstRetry: time.Second, MaxRetry: 3 * time.Second, LastTry: 7500 * time.Millisecond,
		},
		5 * time.Second: {
			TTL: 5 * time.Second, Interval: 2500 * time.Millisecond, Timeout: 625 * time.Millisecond,
			FirstRetry: 250 * time.Millisecond, MaxRetry: 250 * time.Millisecond, LastTry: 625 * time.Millisecond,
		},
	} {
		got := TimingOf(ttl)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("TTL %v:\n%s", ttl, diff)
		}
		if err := got.Check(); err != nil {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
}

func TestL10_ImpossibleTimingsAreRefusedWithTheRule(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Timing)
		rule   string
	}{
		"a TTL of nothing":               {func(x *Timing) { x.TTL = 0 }, "too short"},
		"a negative TTL":                 {func(x *Timing) { x.TTL = -time.Second }, "too short"},
		"an interval as long as the TTL": {func(x *Timing) { x.Interval = x.TTL }, "don't fit into a TTL"},
		"a time-out of nothing":          {func(x *Timing) { x.Timeout = 0 }, "time-out"},
		"a cap below the first retry":    {func(x *Timing) { x.MaxRetry = x.FirstRetry - 1 }, "longest retry"},
		"a last try with no time":        {func(x *Timing) { x.LastTry = x.Timeout - 1 }, "last try"},
	} {
		timing := TimingOf(time.Minute)
		c.change(&timing)
		if err := timing.Check(); err == nil || !strings.Contains(err.Error(), c.rule) {
			t.Errorf("%s: %v, want the rule that says %q", name, err, c.rule)
		}
	}
}
