// This file holds the numbers: what the kernel says of a process, percentiles, and the table.

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// size is what a process takes: bytes resident, bytes of its proportional share, threads.
type size struct{ rss, pss, threads int64 }

// sizeOf asks the kernel.
func sizeOf(pid int) (size, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := fields(dir + "/status")
	if err != nil {
		return size{}, err
	}
	rollup, err := fields(dir + "/smaps_rollup")
	if err != nil {
		return size{}, err
	}
	const kib = 1024
	return size{rss: rollup["Rss"] * kib, pss: rollup["Pss"] * kib, threads: status["Threads"]}, nil
}

// fields reads the numbers of a file of "Name: number" lines.
func fields(path string) (map[string]int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("size of a process: %w", err)
	}
	found := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if words := strings.Fields(rest); len(words) > 0 {
			if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
				found[name] = n
			}
		}
	}
	return found, nil
}

// percentile returns the smallest of the values that p percent of them don't exceed; 0 for none.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func sum(values []time.Duration) (total time.Duration) {
	for _, v := range values {
		total += v
	}
	return total
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// table collects what was measured, each beside the floor.
type table struct{ rows [][4]string }

func (t *table) add(what string, format func(float64) string, ours, floor float64) {
	row := [4]string{what, format(ours), "-", "-"}
	if floor > 0 {
		row[2], row[3] = format(floor), fmt.Sprintf("%.1f", ours/floor)
	}
	t.rows = append(t.rows, row)
}

func (t *table) duration(what string, ours, floor time.Duration) {
	t.add(what, func(v float64) string { return fmt.Sprintf("%.2f ms", v/float64(time.Millisecond)) }, float64(ours), float64(floor))
}

func (t *table) rate(what string, ours, floor float64) {
	t.add(what, func(v float64) string { return fmt.Sprintf("%.0f", v) }, ours, floor)
}

func (t *table) memory(what string, ours, floor int64) {
	t.add(what, func(v float64) string { return fmt.Sprintf("%.1f MiB", v/(1<<20)) }, float64(ours), float64(floor))
}

func (t *table) count(what string, ours, floor int64) {
	t.add(what, func(v float64) string { return fmt.Sprintf("%.0f", v) }, float64(ours), float64(floor))
}

// write prints the table in a form that both a terminal and Markdown show as one.
func (t *table) write(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(tab, "| what\t| cadre-hostd\t| bare parent\t| ratio\t|")
	fmt.Fprintln(tab, "| ---\t| ---\t| ---\t| ---\t|")
	for _, r := range t.rows {
		fmt.Fprintf(tab, "| %s\t| %s\t| %s\t| %s\t|\n", r[0], r[1], r[2], r[3])
	}
	return tab.Flush()
}

// machine says where the numbers come from.
func machine(dir, version string) string {
	var u unix.Utsname
	kernel := "an unknown kernel"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	user := "without root"
	if os.Geteuid() == 0 {
		user = "as root"
	}
	return fmt.Sprintf("cadre-hostd %s, %d cores, %s, %s, state on %s, %s", version, runtime.NumCPU(), kernel, runtime.Version(), fileSystem(dir), user)
}

// fileSystem names the kind of the file system that holds dir, on which a commit's cost depends.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "an unknown file system"
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", 0x2fc12fc1: "zfs",
	}
	if name, ok := names[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", st.Type)
}
