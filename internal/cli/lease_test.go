// This file tests what the commands show of leases and drains, and the two that speak to a node.

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestStatusShowsLeasesAndWarnsOfLowOnes(t *testing.T) {
	now := time.Now()
	renewed := now.Add(-50 * time.Minute)
	fine, low := seededView("don_a", "cache"), seededView("don_b", "")
	fine.Lease = &api.LeaseView{TTLSeconds: 3600, ExpiresAt: now.Add(40*time.Minute + 500*time.Millisecond)}
	low.Lease = &api.LeaseView{
		TTLSeconds: 3600, ExpiresAt: now.Add(10*time.Minute + 500*time.Millisecond), RenewedAt: &renewed,
		Failures: 7, LastError: "no answer\nin time", Low: true,
		History: []donation.Event{{At: now, Kind: donation.EventLeaseFailing, Detail: "30m left: no answer"}},
	}
	run := serve(t, &fakeDaemon{views: map[string][]api.View{"a": {fine}, "b": {low}}})
	code, out, errOut := run("status")
	if code != 0 || !strings.Contains(out, "40m ") || !strings.Contains(out, "10m! ") {
		t.Errorf("status: %d\n%s", code, out)
	}
	words := "10m left of 1h, renewed 50m ago; renewals that failed since: 7, the last: no answer in time"
	if want := "! the lease of don_b has only " + words + "\n"; errOut != want {
		t.Errorf("warnings: %q, want %q", errOut, want)
	}
	if _, out, _ = run("status", "b"); !strings.Contains(out, "Lease:") || !strings.Contains(out, words) || !strings.Contains(out, "lease.failing  30m left") {
		t.Errorf("status b:\n%s", out)
	}
}

func TestDrainShowsWhatIsLeftUntilTheDaemonIsGone(t *testing.T) {
	f := &fakeDaemon{err: donation.Errorf(donation.CodeUnavailable, "the daemon is a caretaker")}
	if code, out, errOut := serve(t, f)("drain"); code != exitUnavailable || out != "" || !strings.Contains(errOut, "caretaker") {
		t.Errorf("drain of a caretaker: %d %q %q", code, out, errOut)
	}
}

func TestSeedAndPeer(t *testing.T) {
	f := &fakeDaemon{}
	run := serve(t, f)
	file := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(file, []byte("signed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := run("seed", "a", "--file", file); code != 0 || out != "seeded a, 2 peers added\n" || errOut != "" {
		t.Errorf("seed: %d %q %q", code, out, errOut)
	}
	if !slices.Contains(f.asked, "seed a signed") {
		t.Errorf("asked %v", f.asked)
	}
	if code, out, _ := run("seed", "a", "--file", file, "-o", "json"); code != 0 || !strings.Contains(out, `"peers_added": 2`) {
		t.Errorf("seed as JSON: %d %q", code, out)
	}
	if code, out, _ := run("peer", "a"); code != 0 || out != "peer-a\n/ip4/192.0.2.1/tcp/1\n/dns/example.org/tcp/1\n" {
		t.Errorf("peer: %d %q", code, out)
	}
	if code, out, _ := run("peer", "a", "-o", "json"); code != 0 || !strings.Contains(out, `"peer_id": "peer-a"`) {
		t.Errorf("peer as JSON: %d %q", code, out)
	}
	for _, args := range [][]string{{"seed", "a"}, {"seed"}, {"peer"}, {"seed", "a", "--file", file + ".nosuch"}} {
		if code, out, errOut := run(args...); code == 0 || out != "" || errOut == "" {
			t.Errorf("%v: %d %q %q", args, code, out, errOut)
		}
	}
	f.err = donation.Errorf(donation.CodeSeedRejected, "the node rejected the seed: not an owner's")
	if code, out, errOut := run("seed", "a", "--file", file); code != exitRefused || out != "" || !strings.Contains(errOut, "not an owner's") {
		t.Errorf("rejected: %d %q %q", code, out, errOut)
	}
}
