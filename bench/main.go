// Command bench measures what cadre-hostd costs: how soon a dead node is back, how many donations start in a
// second, and the memory and threads of daemon and guard, each beside a floor measured in the same run: a bare parent that
// waits, commits one row, and forks again.
//
// This file holds the flags and the order of the measurements.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	binary string
	dir    string
	// nodes is the largest number of nodes, kills the deaths measured at each number.
	nodes, kills int
	// leases is how many are kept alive at the end, ttl how long each lasts; 0 leaves them out.
	leases int
	ttl    time.Duration
}

// limit bounds the whole run: a benchmark that hangs must end and clean up as well.
const limit = 5 * time.Minute

func main() {
	if len(os.Args) == 3 && os.Args[1] == floorCommand {
		exit(runFloor(os.Args[2], os.Stdin, os.Stdout))
	}
	o, quick := options{}, false
	flag.StringVar(&o.binary, "bin", "bin/cadre-hostd", "the `FILE` to measure; 'make build' makes it")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "a `DIR` on the file system to measure; state and nodes go below it for the time being")
	flag.IntVar(&o.nodes, "nodes", 1000, "the largest `NUMBER` of nodes")
	flag.IntVar(&o.kills, "kills", 500, "the `NUMBER` of deaths measured at each number of nodes")
	flag.IntVar(&o.leases, "leases", 10_000, "the `NUMBER` of leases kept alive at the end, 0 for none")
	flag.DurationVar(&o.ttl, "ttl", time.Minute, "the `DURATION` of each lease")
	flag.BoolVar(&quick, "quick", false, "100 nodes, 50 deaths and no leases: a look, no measurement")
	flag.Parse()
	if quick {
		o.nodes, o.kills, o.leases = 100, 50, 0
	}
	// Ctrl-C ends the measurements; what was started is cleaned up on the way out.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := bench(ctx, o)
	cancel()
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench measures and prints.
func bench(ctx context.Context, o options) (err error) {
	if o.nodes < 1 || o.kills < 1 || flag.NArg() > 0 {
		return errors.New("-nodes and -kills must be 1 or more, and there are no further arguments")
	}
	scratch, err := os.MkdirTemp(o.dir, "cadre-bench")
	if err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	// A root guard's nodes have users of their own, which must get through to their directories.
	if err := os.Chmod(scratch, 0o755); err != nil {
		return err
	}
	h, err := startHost(ctx, o.binary, filepath.Join(scratch, "host"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	f, err := startFloor(filepath.Join(scratch, "floor"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()

	t := &table{}
	if err := measure(ctx, o, h, f, t); err != nil {
		return err
	}
	var leases *leaseRun
	if o.leases > 0 {
		fmt.Fprintf(os.Stderr, "%d leases of %s\n", o.leases, o.ttl)
		if leases, err = takeLeases(ctx, o.leases, o.ttl, h); err != nil {
			return err
		}
	}
	fmt.Println(machine(scratch, h.version))
	fmt.Println()
	if err := t.write(os.Stdout); err != nil || leases == nil {
		return err
	}
	_, err = fmt.Printf("\n%s", leases)
	return err
}

// measure goes from no nodes to all of them and fills the table.
func measure(ctx context.Context, o options, h *host, f *floor, t *table) error {
	if err := takeSizes(t, 0, h, f); err != nil {
		return err
	}
	for _, n := range slices.Compact([]int{min(100, o.nodes), o.nodes}) {
		fmt.Fprintf(os.Stderr, "%d nodes: starting\n", n)
		if err := takeStarts(ctx, n, h, f, t); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d nodes: %d deaths\n", n, o.kills)
		if err := takeDeaths(ctx, o.kills, n, h, f, t); err != nil {
			return err
		}
		if err := takeSizes(t, n, h, f); err != nil {
			return err
		}
	}
	return nil
}

// rounds is how many turns the two sides take, so that a busy moment of the machine meets both.
const rounds = 10

// takeStarts measures the way to n nodes.
func takeStarts(ctx context.Context, n int, h *host, f *floor, t *table) error {
	had := len(h.nodes)
	added := n - had
	var ours, bare time.Duration
	for r := range rounds {
		target := had + added*(r+1)/rounds
		began := time.Now()
		if err := h.grow(ctx, target); err != nil {
			return err
		}
		ours += time.Since(began)
		times, err := f.ask(growFloor, target)
		if err != nil {
			return err
		}
		bare += sum(times)
	}
	t.rate(fmt.Sprintf("donations started a second, up to %d", n), perSecond(added, ours), perSecond(added, bare))
	return nil
}

// takeDeaths measures deaths among n nodes.
func takeDeaths(ctx context.Context, kills, n int, h *host, f *floor, t *table) error {
	var started, seen, bare []time.Duration
	for r := range rounds {
		share := kills*(r+1)/rounds - kills*r/rounds
		for range share {
			d, err := h.kill(ctx)
			if err != nil {
				return err
			}
			started, seen = append(started, d.started), append(seen, d.seen)
		}
		times, err := f.ask(killFloor, share)
		if err != nil {
			return err
		}
		bare = append(bare, times...)
	}
	what := fmt.Sprintf("SIGKILL → new process, %d nodes", n)
	t.duration(what+", median", percentile(started, 50), percentile(bare, 50))
	t.duration(what+", p99", percentile(started, 99), percentile(bare, 99))
	t.duration(fmt.Sprintf("SIGKILL → a client sees it on record, %d nodes, median", n), percentile(seen, 50), 0)
	return nil
}

// takeSizes measures memory and threads.
func takeSizes(t *table, n int, h *host, f *floor) error {
	bare, err := sizeOf(f.pid())
	if err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		pid  int
	}{{"daemon", h.daemon.Process.Pid}, {"guard", h.guard}} {
		s, err := sizeOf(p.pid)
		if err != nil {
			return err
		}
		t.memory(fmt.Sprintf("%s, %d nodes: RSS", p.name, n), s.rss, bare.rss)
		t.memory(fmt.Sprintf("%s, %d nodes: PSS", p.name, n), s.pss, bare.pss)
		t.count(fmt.Sprintf("%s, %d nodes: threads", p.name, n), s.threads, bare.threads)
	}
	return nil
}
