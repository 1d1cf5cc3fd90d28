// This file tests the benchmark's own parts: the arithmetic, the table, and the bare parent with real children.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets the test binary be the bare parent, as the benchmark's own does.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == floorCommand {
		exit(runFloor(os.Args[2], os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	for _, tt := range []struct {
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 50, 0},
		{[]time.Duration{7}, 99, 7},
		{[]time.Duration{3, 1, 2}, 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
	} {
		if got := percentile(tt.values, tt.p); got != tt.want {
			t.Errorf("percentile %v of %v is %d, want %d", tt.p, tt.values, got, tt.want)
		}
	}
}

func TestTableShowsRatios(t *testing.T) {
	tab := &table{}
	tab.duration("respawn", 3*time.Millisecond, 2*time.Millisecond)
	tab.duration("no floor", time.Millisecond, 0)
	tab.memory("memory", 3<<20, 2<<20)
	var b strings.Builder
	if err := tab.write(&b); err != nil {
		t.Fatal(err)
	}
	want := `| what     | cadre-hostd | bare parent | ratio |
| ---      | ---         | ---         | ---   |
| respawn  | 3.00 ms     | 2.00 ms     | 1.5   |
| no floor | 1.00 ms     | -           | -     |
| memory   | 3.0 MiB     | 2.0 MiB     | 1.5   |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestFloorForksAgainAndLeavesNothing(t *testing.T) {
	f, err := startFloor(filepath.Join(t.TempDir(), "floor"))
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []struct {
		verb string
		n    int
		want int
	}{{growFloor, 3, 3}, {growFloor, 5, 2}, {killFloor, 7, 7}} {
		times, err := f.ask(order.verb, order.n)
		if err != nil {
			t.Fatalf("%s %d: %v", order.verb, order.n, err)
		}
		if len(times) != order.want {
			t.Errorf("%s %d took %d steps, want %d", order.verb, order.n, len(times), order.want)
		}
	}
	s, err := sizeOf(f.pid())
	if err != nil {
		t.Fatal(err)
	}
	if s.rss < s.pss || s.pss <= 0 || s.threads < 1 {
		t.Errorf("size %+v makes no sense", s)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", f.pid()))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(children))); n != 5 {
		t.Errorf("%d children after the kills, want 5", n)
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(children)) {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("child %s is left", pid)
		}
	}
}

func TestBadNumbersAreRefused(t *testing.T) {
	if err := bench(t.Context(), options{dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "-nodes") {
		t.Errorf("no nodes and no kills: %v", err)
	}
	if err := bench(t.Context(), options{dir: t.TempDir(), nodes: 1, kills: 1, binary: "/nonexistent"}); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("no binary: %v", err)
	}
}

func TestHistogramCountsInBuckets(t *testing.T) {
	var values []time.Duration
	for _, ms := range []int{27_100, 28_000, 28_400, 28_499, 33_000} {
		values = append(values, time.Duration(ms)*time.Millisecond)
	}
	got := histogram(values, 500*time.Millisecond)
	want := []bucket{{27 * time.Second, 1, 13}, {28 * time.Second, 3, 40}, {33 * time.Second, 1, 13}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(bucket{})); diff != "" {
		t.Error(diff)
	}
}
