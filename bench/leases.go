// This file measures what leases cost: many loops of internal/lease in this process, in the daemon's place, against the
// guard over its socket.

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/lease"
	"github.com/serfab/cadre-hostd/internal/orchestrator/process"
)

const (
	// leasePeriods is for how many renewal intervals leases are watched, and leaseSlack how much longer, for the jitter.
	leasePeriods = 2
	leaseSlack   = 1.15
	// burst is the width of the window that the most renewals are counted in.
	burst = 100 * time.Millisecond
	// ticksASecond is the unit of the times in /proc/pid/stat, the same on every Linux that Go runs on.
	ticksASecond = 100
)

// leaseRun is what came of it.
type leaseRun struct {
	leases, nodes int
	ttl           time.Duration
	window        time.Duration
	renewals      int
	failures      int
	// pauses are the times between two renewals of one lease, bursts the renewals in each window of that width.
	pauses []time.Duration
	bursts map[int]int
	// renewer and guard are the processor time that each side used.
	renewer, guard time.Duration
	threads, all   int64
}

// takeLeases keeps n leases of the host's nodes for a few periods. Where there are fewer nodes than leases, each has
// several: every one is a loop, a timer and renewals of its own.
func takeLeases(ctx context.Context, n int, ttl time.Duration, h *host) (*leaseRun, error) {
	cfg := config.Defaults()
	orch := process.New(process.Options{Socket: h.guardSocket, Config: func() *config.Config { return &cfg }})
	run := &leaseRun{leases: n, nodes: min(n, len(h.nodes)), ttl: ttl, bursts: map[int]int{}}
	run.window = time.Duration(leasePeriods * leaseSlack * float64(ttl) / 2)

	var mu sync.Mutex // guards run and last
	last := make([]time.Time, n)
	begun := time.Now()
	var all []*lease.Renewal
	defer func() {
		for _, r := range all {
			r.Stop()
		}
	}()
	for i := range n {
		spawn := donation.SpawnID(h.nodes[i%len(h.nodes)].spawn)
		renew := func(ctx context.Context, _ time.Time) error { return orch.Renew(ctx, spawn, ttl) }
		r, err := lease.New(ttl, renew, lease.Options{
			OnRenewed: func(time.Time) {
				now := time.Now()
				mu.Lock()
				defer mu.Unlock()
				run.renewals++
				run.bursts[int(now.Sub(begun)/burst)]++
				if !last[i].IsZero() {
					run.pauses = append(run.pauses, now.Sub(last[i]))
				}
				last[i] = now
			},
			OnFailed: func(error, int) {
				mu.Lock()
				defer mu.Unlock()
				run.failures++
			},
		})
		if err != nil {
			return nil, err
		}
		r.Start(time.Time{})
		all = append(all, r)
	}

	before, err := bothTimes(h.guard)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(run.window):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := bothTimes(h.guard)
	if err != nil {
		return nil, err
	}
	run.renewer, run.guard = after[0]-before[0], after[1]-before[1]
	self, err := sizeOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	guard, err := sizeOf(h.guard)
	if err != nil {
		return nil, err
	}
	run.threads, run.all = self.threads, guard.threads
	for _, r := range all {
		r.Stop()
	}
	mu.Lock()
	defer mu.Unlock()
	return run, nil
}

// bothTimes is the processor time of this process and of another.
func bothTimes(pid int) (times [2]time.Duration, err error) {
	var self unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &self); err != nil {
		return times, err
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return times, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	words := strings.Fields(rest)
	const utime, stime = 11, 12 // fields 14 and 15; the first two are cut off, and counting starts at 0
	if len(words) <= stime {
		return times, fmt.Errorf("stat of process %d makes no sense", pid)
	}
	var ticks int64
	for _, w := range words[utime : stime+1] {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return times, fmt.Errorf("stat of process %d: %w", pid, err)
		}
		ticks += n
	}
	times[0] = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	times[1] = time.Duration(ticks) * time.Second / ticksASecond
	return times, nil
}

// String tells of the run, with the spread of the pauses as a small histogram.
func (r *leaseRun) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d leases of %s on %d nodes, for %s: %d renewals, %d failures\n",
		r.leases, r.ttl, r.nodes, r.window.Round(time.Second), r.renewals, r.failures)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / r.window.Seconds() }
	fmt.Fprintf(&b, "processor time: renewing side %.2f %% of a core, guard %.2f %%; threads %d and %d\n", share(r.renewer), share(r.guard), r.threads, r.all)
	most := 0
	for _, n := range r.bursts {
		most = max(most, n)
	}
	fmt.Fprintf(&b, "most renewals in %s: %d\n", burst, most)
	if len(r.pauses) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "pause between two renewals of a lease (%s is half of the TTL):\n", r.ttl/2)
	for _, row := range histogram(r.pauses, r.ttl/60) {
		fmt.Fprintf(&b, "  %8s  %5d  %s\n", row.from.Round(10*time.Millisecond), row.count, strings.Repeat("#", row.bar))
	}
	return b.String()
}

// bucket is one row of a histogram; bar is up to barWidth.
type bucket struct {
	from       time.Duration
	count, bar int
}

const barWidth = 40

// histogram counts the values in buckets of the width.
func histogram(values []time.Duration, width time.Duration) []bucket {
	counts := map[time.Duration]int{}
	most := 0
	for _, v := range values {
		from := v / width * width
		counts[from]++
		most = max(most, counts[from])
	}
	var rows []bucket
	for from, n := range counts {
		rows = append(rows, bucket{from: from, count: n, bar: max(n*barWidth/most, 1)})
	}
	slices.SortFunc(rows, func(a, b bucket) int { return int(a.from - b.from) })
	return rows
}
