// This file tests that ports are unique, sticky, and handed out again only after a terminate.

package store

import (
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func narrowPorts(t *testing.T, first, last int) *Store {
	t.Helper()
	s, err := Open(t.Context(), t.TempDir(), Options{PortFirst: first, PortLast: last})
	noError(t, err)
	t.Cleanup(func() { noError(t, s.Close()) })
	return s
}

func TestP10_PortsAreUniqueStickyAndFreedByTerminateOnly(t *testing.T) {
	s := narrowPorts(t, 12000, 12003)
	first, second := provision(t, s), provision(t, s)
	all := []int{first.Ports["http"], first.Ports["p2p"], second.Ports["http"], second.Ports["p2p"]}
	slices.Sort(all)
	wantSame(t, "the ports of both", all, []int{12000, 12001, 12002, 12003})

	_, err := s.Create(t.Context(), newDonation("http"))
	wantCode(t, err, donation.CodePortsExhausted)
	wantWords(t, err, "12000-12003", "4 of 4", "ports.range")

	// Respawns, a give-up and a retry keep them; so does a terminate until the workdir is gone.
	ports := first.Ports
	noError(t, s.SpawnStarted(t.Context(), first.Spawn.ID, ident, crash.At, donation.Seeded))
	first = respawn(t, s, die(t, s, get(t, s, first.ID)))
	wantSame(t, "the ports after a respawn", first.Ports, ports)
	first = die(t, s, first)
	noError(t, s.Fail(t.Context(), first.ID, donation.Supervised, first.Generation, "gave up", true))
	wantConflict(t, s.Reclaimed(t.Context(), first.ID))
	first, err = s.Retry(t.Context(), first.ID)
	noError(t, err)
	wantSame(t, "the ports after a retry", first.Ports, ports)
	_, err = s.Terminate(t.Context(), first.ID)
	noError(t, err)
	_, err = s.Create(t.Context(), newDonation("http"))
	wantCode(t, err, donation.CodePortsExhausted)

	noError(t, s.Reclaimed(t.Context(), first.ID))
	third := provision(t, s)
	got := []int{third.Ports["http"], third.Ports["p2p"]}
	want := []int{ports["http"], ports["p2p"]}
	slices.Sort(got)
	slices.Sort(want)
	wantSame(t, "the ports of the next one", got, want)
}

func TestP10_PortsThatSomebodyElseHoldsAreSkipped(t *testing.T) {
	s := narrowPorts(t, 12000, 12009)
	asked := map[int]int{}
	d := newDonation("a", "b")
	d.PortFree = func(port int) bool {
		asked[port]++
		return port == 12004 || port == 12007
	}
	rec, err := s.Create(t.Context(), d)
	noError(t, err)
	if rec.Ports["a"]+rec.Ports["b"] != 12004+12007 {
		t.Errorf("ports = %v, want 12004 and 12007", rec.Ports)
	}
	d = newDonation("a", "b")
	clear(asked)
	d.PortFree = func(port int) bool {
		asked[port]++
		return port == 12005
	}
	_, err = s.Create(t.Context(), d)
	wantCode(t, err, donation.CodePortsExhausted)
	wantWords(t, err, "no 2 free ports in 12000-12009", "2 of 10")
	for port := 12000; port <= 12009; port++ {
		want := 1
		if port == 12004 || port == 12007 {
			want = 0
		}
		if asked[port] != want {
			t.Errorf("port %d was asked for %d times, want %d", port, asked[port], want)
		}
	}
	// Nothing of the failed one is left.
	_, err = s.Get(t.Context(), d.ID)
	wantCode(t, err, donation.CodeNotFound)
	d.PortFree = nil
	_, err = s.Create(t.Context(), d)
	noError(t, err)
}

func TestFreedPortsComeBackLate(t *testing.T) {
	s := narrowPorts(t, 12000, 12009)
	seen := map[int]bool{}
	for range 5 { // 5 times 2 ports go once round the range of 10
		rec := provision(t, s)
		for _, p := range rec.Ports {
			if seen[p] {
				t.Errorf("port %d was handed out again at once", p)
			}
			seen[p] = true
		}
		_, err := s.Terminate(t.Context(), rec.ID)
		noError(t, err)
		noError(t, s.Reclaimed(t.Context(), rec.ID))
	}
}

func TestCreateRacesForTheLastPorts(t *testing.T) {
	s := narrowPorts(t, 12000, 12019)
	results := make(chan error, 40)
	var g errgroup.Group
	for range cap(results) {
		g.Go(func() error {
			_, err := s.Create(t.Context(), newDonation("only"))
			results <- err
			return nil
		})
	}
	noError(t, g.Wait())
	close(results)
	won := 0
	for err := range results {
		if err == nil {
			won++
		} else {
			wantCode(t, err, donation.CodePortsExhausted)
		}
	}
	wantSame(t, "how many got a port", won, 20)
}
