// This file tests the enforcement of leases: pure parts by tables, the rest with nodes that really end.

package guard

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestL13_LeaseMaths(t *testing.T) {
	now := time.Now()
	var l lease
	if l.expired(now.Add(time.Hour)) || l.left(now) != 0 {
		t.Error("what isn't a lease has an end")
	}
	l.extend(now)
	l.begin(now, time.Minute)
	for after, want := range map[time.Duration]bool{0: false, time.Minute - 1: false, time.Minute: true, time.Hour: true} {
		if got := l.expired(now.Add(after)); got != want {
			t.Errorf("after %v expired is %v", after, got)
		}
	}
	if got := l.left(now.Add(45 * time.Second)); got != 15*time.Second {
		t.Errorf("left after 45 s: %v", got)
	}
	if got := l.left(now.Add(time.Hour)); got != 1 {
		t.Errorf("left of an expired lease: %v; 0 would mean that there is none", got)
	}
	l.begin(now, 0)
	if l.expired(now.Add(time.Hour)) {
		t.Error("a lease of 0 is none")
	}
}

func TestL15_HeldUpGuardExtendsByOneInterval(t *testing.T) {
	for passed, want := range map[time.Duration]bool{time.Second: false, 2 * time.Second: false, 2*time.Second + 1: true, time.Hour: true} {
		if got := heldUp(passed, time.Second); got != want {
			t.Errorf("held up after %v: %v", passed, got)
		}
	}
	now := time.Now()
	for left, want := range map[time.Duration]time.Duration{
		-time.Hour: 30 * time.Second, time.Second: 30 * time.Second, 50 * time.Second: 50 * time.Second,
	} {
		l := lease{ttl: time.Minute, end: now.Add(left)}
		if l.extend(now); l.left(now) != want {
			t.Errorf("with %v left: %v after the gap, want %v", left, l.left(now), want)
		}
	}
}

func TestLeaseTickIsASmallPartOfTheShortestTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Millisecond: 20 * time.Millisecond, 5 * time.Second: 200 * time.Millisecond, time.Hour: time.Second,
	} {
		if got := leaseTick(ttl); got != want {
			t.Errorf("TTL %v: tick %v, want %v", ttl, got, want)
		}
	}
}

// leased is a node with a lease that ignores SIGTERM if stubborn.
func (r *rig) leased(ttl time.Duration, stubborn bool) StartRequest {
	trap := ""
	if stubborn {
		trap = "trap '' TERM; "
	}
	req := r.sh(trap + "sleep 1000 & echo $! > child; while :; do sleep 1000; done")
	req.TTL, req.Grace = ttl, 100*time.Millisecond
	return req
}

func TestL13_LeaseThatNobodyRenewsStopsTheTree(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		r := newRig(t)
		req := r.leased(500*time.Millisecond, stubborn)
		p := r.start(req)
		if p.TTL != req.TTL || p.LeaseLeft <= 0 || p.LeaseLeft > req.TTL {
			t.Errorf("the answer says TTL %v, left %v", p.TTL, p.LeaseLeft)
		}
		exit := r.exit(req.Spawn)
		last := r.await(req.Spawn, "exited", func(p Process) bool { return p.State == StateExited })
		if last.StopReason != ExpiredReason {
			t.Errorf("stop reason %q", last.StopReason)
		}
		want := int(unix.SIGTERM)
		if stubborn {
			want = int(unix.SIGKILL)
		}
		if exit.Signal != want {
			t.Errorf("stubborn %v: ended by signal %d, want %d", stubborn, exit.Signal, want)
		}
		if lived := exit.At.Sub(p.StartedAt); lived < req.TTL {
			t.Errorf("it lived %v, less than its lease of %v", lived, req.TTL)
		}
		if left := nodesOf(t, r.cfg.NodesDir); len(left) != 0 {
			t.Errorf("its tree is still there: %v", left)
		}
	}
}

func TestL11_RenewalMovesTheEndAndNothingElse(t *testing.T) {
	r := newRig(t)
	req := r.leased(time.Second, false)
	before := r.start(req)
	deadline := before.StartedAt.Add(3 * req.TTL)
	ticker := time.NewTicker(req.TTL / 4)
	defer ticker.Stop()
	for time.Now().Before(deadline) {
		<-ticker.C
		if gone, err := r.client.Renew(t.Context(), Lease{Spawn: req.Spawn, TTL: req.TTL}); err != nil || len(gone) != 0 {
			t.Fatalf("renew: gone %v, %v", gone, err)
		}
	}
	after := r.start(req) // the same spawn: the answer is what it is
	if after.PID != before.PID || after.State != StateRunning || after.TTL != before.TTL || !after.StartedAt.Equal(before.StartedAt) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	// And without renewals it ends.
	r.exit(req.Spawn)
}

func TestL06_RenewalOfWhatIsGone(t *testing.T) {
	r := newRig(t)
	alive, dead := r.leased(time.Hour, false), r.sh("exit 0")
	r.start(alive)
	r.start(dead)
	r.exit(dead.Spawn)
	gone, err := r.client.Renew(t.Context(), Lease{"spn_unknown", time.Hour}, Lease{alive.Spawn, time.Hour}, Lease{dead.Spawn, time.Hour})
	if err != nil || fmt.Sprint(gone) != fmt.Sprint([]string{"spn_unknown", dead.Spawn}) {
		t.Errorf("gone %v, %v", gone, err)
	}
}

func TestRenewalsAndStartsObeyTheLongestLease(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.MaxTTL = time.Minute })
	for _, ttl := range []time.Duration{0, time.Hour} {
		if e := r.refused(r.leased(ttl, false)); e.Code != CodeRefused {
			t.Errorf("start with a lease of %v: %v", ttl, e)
		}
	}
	if e := r.refused(r.leased(-time.Second, false)); e.Code != CodeInvalid {
		t.Errorf("start with a negative lease: %v", e)
	}
	req := r.leased(time.Minute, false)
	r.start(req)
	for _, ttl := range []time.Duration{0, -time.Second, time.Hour} {
		if _, err := r.client.Renew(t.Context(), Lease{req.Spawn, ttl}); err == nil {
			t.Errorf("renewed for %v", ttl)
		}
	}
}

func TestL15_StoppedGuardCostsNoNode(t *testing.T) {
	r := newRig(t)
	req := r.leased(time.Second, false)
	p := r.start(req)
	signalGuard := func(sig unix.Signal) {
		if err := r.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	signalGuard(unix.SIGSTOP)
	<-time.After(2 * req.TTL) // the lease runs out while the guard can't count: time is what is tested
	signalGuard(unix.SIGCONT)
	// Half a TTL from the wake-up: time enough for a renewal that comes at once.
	if gone, err := r.client.Renew(t.Context(), Lease{req.Spawn, time.Hour}); err != nil || len(gone) != 0 {
		t.Fatalf("renew after the wake-up: gone %v, %v", gone, err)
	}
	if now := r.start(req); now.PID != p.PID || now.State != StateRunning {
		t.Errorf("after the wake-up it is %+v", now)
	}
}

func TestL13_AdoptedLeaseStartsAnew(t *testing.T) {
	r := newRig(t)
	req := r.leased(time.Hour, false)
	p := r.start(req)
	// The TTL that counts is that of the last renewal.
	if _, err := r.client.Renew(t.Context(), Lease{req.Spawn, 1500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	adopted := time.Now()
	r.kill()
	r.boot()
	now := r.await(req.Spawn, "adopted", func(p Process) bool { return p.State == StateRunning })
	if now.PID != p.PID || now.TTL != 1500*time.Millisecond {
		t.Errorf("adopted as %+v", now)
	}
	reapAdopted(t, p.PID)
	exit := r.exit(req.Spawn)
	if lived := exit.At.Sub(adopted); lived < now.TTL {
		t.Errorf("after the adoption it lived %v, less than its lease", lived)
	}
	if rec, err := readRecord(filepath.Join(r.cfg.RuntimeDir, "spawns", req.Spawn+".json")); err != nil || rec.StopReason != ExpiredReason {
		t.Errorf("the spool says %+v, %v", rec, err)
	}
}

func BenchmarkRenewTenThousand(b *testing.B) {
	r := newRig(b)
	leases := make([]Lease, 10_000)
	for i := range leases {
		leases[i] = Lease{Spawn: spawnID(), TTL: time.Minute}
	}
	for b.Loop() {
		if _, err := r.client.Renew(context.Background(), leases...); err != nil {
			b.Fatal(err)
		}
	}
}
