// This file tests that leases which began together do not stay together.

package lease

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestL16_TenThousandLeasesSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases, ttl, periods = 10_000, time.Minute, 4
		begun := time.Now()
		var mu sync.Mutex
		second := map[int]int{} // renewals in each second
		renew := func(context.Context, time.Time) error {
			mu.Lock()
			defer mu.Unlock()
			second[int(time.Since(begun).Seconds())]++
			return nil
		}
		random := rand.New(rand.NewPCG(1, 2))
		var chance sync.Mutex
		o := Options{Random: func() float64 {
			chance.Lock()
			defer chance.Unlock()
			return random.Float64()
		}}
		var all []*Renewal
		for range leases {
			r, err := New(ttl, renew, o)
			if err != nil {
				t.Fatal(err)
			}
			r.Start(time.Time{})
			all = append(all, r)
		}
		time.Sleep(periods * ttl / 2)
		synctest.Wait()
		for _, r := range all {
			r.Stop()
		}
		mu.Lock()
		defer mu.Unlock()
		total := 0
		for s, n := range second {
			total += n
			// The first period is spread over 6 s, evenly: 1,667 a second; later ones over more.
			if n > 2_000 {
				t.Errorf("%d renewals in second %d", n, s)
			}
		}
		if total < leases*(periods-1) {
			t.Errorf("%d renewals in %d periods", total, periods)
		}
	})
}
