// This file tests the renewal of leases against a guard that obeys.

package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

func TestL16_RenewalsThatComeTogetherTravelTogether(t *testing.T) {
	f := newFakeGuard(t)
	var mu sync.Mutex
	var sizes []int
	first, release := make(chan struct{}), make(chan struct{})
	f.edit(func(s *script) {
		s.renew = func(req guard.RenewRequest) (guard.RenewResponse, error) {
			mu.Lock()
			sizes = append(sizes, len(req.Leases))
			n := len(sizes)
			mu.Unlock()
			if n == 1 {
				close(first)
				<-release
			}
			return guard.RenewResponse{}, nil
		}
	})
	f.serve(t)
	r := newRig(t, f.socket, nil)
	const others = 5000
	results := make(chan error, others+1)
	renew := func(i int) { results <- r.Renew(t.Context(), donation.SpawnID(fmt.Sprint("spn_", i)), time.Minute) }
	go renew(0)
	<-first
	for i := range others {
		go renew(i + 1)
	}
	waiting := func() int {
		r.renewals.mu.Lock()
		defer r.renewals.mu.Unlock()
		return len(r.renewals.waiting)
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for begun := time.Now(); waiting() < others && time.Since(begun) < patience; {
		<-ticker.C
	}
	close(release)
	for range others + 1 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	if want := fmt.Sprint([]int{1, maxRenewals, others - maxRenewals}); fmt.Sprint(sizes) != want {
		t.Errorf("requests of %v leases, want %s", sizes, want)
	}
}

func TestL06_OnlyWhatTheGuardCallsGoneIsGone(t *testing.T) {
	f := newFakeGuard(t)
	f.serve(t)
	r := newRig(t, f.socket, nil)
	for name, c := range map[string]struct {
		answer func() (guard.RenewResponse, error)
		gone   bool
	}{
		"gone": {func() (guard.RenewResponse, error) { return guard.RenewResponse{Gone: []string{"spn_1"}}, nil }, true},
		"refused": {func() (guard.RenewResponse, error) {
			return guard.RenewResponse{}, &guard.Error{Code: guard.CodeRefused, Message: "no"}
		}, false},
		"hung up":      {func() (guard.RenewResponse, error) { return guard.RenewResponse{}, errHangUp }, false},
		"another gone": {func() (guard.RenewResponse, error) { return guard.RenewResponse{Gone: []string{"spn_2"}}, nil }, false},
	} {
		f.edit(func(s *script) {
			s.renew = func(guard.RenewRequest) (guard.RenewResponse, error) { return c.answer() }
		})
		err := r.Renew(t.Context(), "spn_1", time.Minute)
		if errors.Is(err, donation.ErrGone) != c.gone || err == nil && name != "another gone" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestL05_RenewalWhoseCallerGivesUp(t *testing.T) {
	f := newFakeGuard(t)
	release := make(chan struct{})
	f.edit(func(s *script) {
		s.renew = func(guard.RenewRequest) (guard.RenewResponse, error) { <-release; return guard.RenewResponse{}, nil }
	})
	f.serve(t)
	r := newRig(t, f.socket, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Renew(ctx, "spn_1", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("renew with a dead context: %v", err)
	}
	close(release)
}

func TestLeaseThatTheGuardForbids(t *testing.T) {
	for _, c := range []struct {
		ttl, longest time.Duration
		ok           bool
	}{
		{0, 0, true},
		{time.Hour, 0, true},
		{time.Minute, time.Minute, true},
		{time.Hour, time.Minute, false},
		{0, time.Minute, false},
	} {
		if err := CheckTTL(c.ttl, c.longest); (err == nil) != c.ok {
			t.Errorf("ttl %v under max_ttl %v: %v", c.ttl, c.longest, err)
		}
	}
}
