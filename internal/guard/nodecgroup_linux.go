// This file holds the cgroups of one node: made before it is forked, asked for its usage, removed after its end.

package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// nodeCgroup is a node's place in each hierarchy. The zero value is a node without any.
type nodeCgroup struct {
	// dir is the cgroup2 directory; empty with session tracking.
	dir string
	// v1 holds the cgroup's path in each version 1 controller, relative to the controller's mount.
	v1 map[string]string
	// group is the library's handle on v1; nil if there is none.
	group cgroup1.Cgroup
	// files are where peak memory and out-of-memory kills are told; empty if nowhere.
	peakFile, oomFile string
}

// plan says where the cgroups of a spawn will be, without making them: that goes on record first.
func (c *cgroups) plan(spawn string, l Limits) *nodeCgroup {
	n := &nodeCgroup{v1: make(map[string]string)}
	if c.parent != "" {
		n.dir = filepath.Join(c.parent, spawn)
	}
	for name, asked := range map[cgroup1.Name]bool{cgroup1.Memory: l.Memory > 0, cgroup1.Cpu: l.CPU > 0, cgroup1.Pids: l.Pids > 0} {
		if v, ok := c.v1[name]; ok && asked {
			n.v1[string(name)] = filepath.Join(v.base, c.name, spawn)
		}
	}
	c.locate(n)
	return n
}

// create makes the planned cgroups with the spawn's limits.
func (c *cgroups) create(n *nodeCgroup, l Limits) error {
	if n.dir != "" {
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			return fmt.Errorf("making the node's cgroup: %w", err)
		}
	}
	err := c.limitV2(n, l)
	if err == nil && len(n.v1) > 0 {
		err = c.limitV1(n, l)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("setting a limit of the node: %w", err), n.remove())
	}
	return nil
}

// limitV2 writes the limits of the controllers that the cgroup2 hierarchy has.
func (c *cgroups) limitV2(n *nodeCgroup, l Limits) error {
	values := map[string]string{}
	if l.Memory > 0 && slices.Contains(c.v2, "memory") {
		values["memory.max"] = strconv.FormatInt(l.Memory, 10)
	}
	if l.CPU > 0 && slices.Contains(c.v2, "cpu") {
		values["cpu.max"] = fmt.Sprintf("%d %d", cpuQuota(l.CPU), cpuPeriod)
	}
	if l.Pids > 0 && slices.Contains(c.v2, "pids") {
		values["pids.max"] = strconv.FormatInt(l.Pids, 10)
	}
	for file, value := range values {
		if err := writeFile(filepath.Join(n.dir, file), value); err != nil {
			return err
		}
	}
	return nil
}

// limitV1 makes cgroups in the version 1 controllers that a limit needs.
func (c *cgroups) limitV1(n *nodeCgroup, l Limits) error {
	res := &specs.LinuxResources{}
	if _, ok := n.v1["memory"]; ok {
		res.Memory = &specs.LinuxMemory{Limit: &l.Memory, Swap: &l.Memory}
		if _, err := os.Stat(filepath.Join(c.v1[cgroup1.Memory].root, "memory", "memory.memsw.usage_in_bytes")); err != nil {
			res.Memory.Swap = nil // a kernel without swap accounting
		}
	}
	if _, ok := n.v1["cpu"]; ok {
		quota, period := cpuQuota(l.CPU), uint64(cpuPeriod)
		res.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	if _, ok := n.v1["pids"]; ok {
		res.Pids = &specs.LinuxPids{Limit: &l.Pids}
	}
	group, err := cgroup1.New(n.path, res, cgroup1.WithHierarchy(c.hierarchy(n)))
	if err != nil {
		c.removeV1(n)
		return err
	}
	n.group = group
	return nil
}

// reopen finds the cgroups of an adopted spawn again.
func (c *cgroups) reopen(dir string, v1 map[string]string) *nodeCgroup {
	n := &nodeCgroup{dir: dir, v1: v1}
	if len(v1) > 0 {
		// Gone is fine: then nothing is left to ask or remove.
		n.group, _ = cgroup1.Load(n.path, cgroup1.WithHierarchy(c.hierarchy(n)))
	}
	c.locate(n)
	return n
}

// hierarchy gives the library the controllers that this node uses and no others.
func (c *cgroups) hierarchy(n *nodeCgroup) cgroup1.Hierarchy {
	return func() ([]cgroup1.Subsystem, error) {
		var subs []cgroup1.Subsystem
		for name := range n.v1 {
			if v, ok := c.v1[cgroup1.Name(name)]; ok {
				subs = append(subs, v.subsystem)
			}
		}
		return subs, nil
	}
}

// path is the library's way to ask for the cgroup's place.
func (n *nodeCgroup) path(name cgroup1.Name) (string, error) {
	if p, ok := n.v1[string(name)]; ok {
		return p, nil
	}
	return "", cgroup1.ErrControllerNotActive
}

// removeV1 undoes a limitV1 that failed halfway.
func (c *cgroups) removeV1(n *nodeCgroup) {
	for name, path := range n.v1 {
		_ = unix.Rmdir(filepath.Join(c.v1[cgroup1.Name(name)].root, name, path))
	}
}

// locate notes where the kernel tells of memory.
func (c *cgroups) locate(n *nodeCgroup) {
	if p, ok := n.v1["memory"]; ok {
		dir := filepath.Join(c.v1[cgroup1.Memory].root, "memory", p)
		n.peakFile, n.oomFile = filepath.Join(dir, "memory.max_usage_in_bytes"), filepath.Join(dir, "memory.oom_control")
	} else if slices.Contains(c.v2, "memory") {
		n.peakFile, n.oomFile = filepath.Join(n.dir, "memory.peak"), filepath.Join(n.dir, "memory.events")
	}
}

// addPID puts a process that has not run yet into the version 1 cgroups.
func (n *nodeCgroup) addPID(pid int) error {
	if n.group == nil {
		return nil
	}
	if err := n.group.Add(cgroup1.Process{Pid: pid}); err != nil {
		return fmt.Errorf("putting the node into its cgroup: %w", err)
	}
	return nil
}

// usage is what the whole tree used; zero where the kernel doesn't tell.
type usage struct {
	cpu  time.Duration
	peak int64
	oom  bool
}

func (n *nodeCgroup) usage() usage {
	var u usage
	if n.dir != "" {
		u.cpu = time.Duration(field(filepath.Join(n.dir, "cpu.stat"), "usage_usec")) * time.Microsecond
	}
	if n.oomFile != "" {
		u.oom = field(n.oomFile, "oom_kill") > 0
		if w := words(n.peakFile); len(w) == 1 {
			u.peak, _ = strconv.ParseInt(w[0], 10, 64) // an unreadable number is an unknown one
		}
	}
	return u
}

// remove removes the cgroups; those that are gone are no error.
func (n *nodeCgroup) remove() error {
	var errs []error
	if n.dir != "" {
		if err := removeCgroup(n.dir); err != nil {
			errs = append(errs, err)
		}
	}
	if n.group != nil {
		if err := n.group.Delete(); err != nil && !errors.Is(err, cgroup1.ErrCgroupDeleted) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes a cgroup2 directory with those that a node made below it.
func removeCgroup(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	entries, errRead := os.ReadDir(dir)
	if errRead != nil {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// field returns the number after name in a file of "name number" lines.
func field(path, name string) int64 {
	w := words(path)
	for i := 0; i+1 < len(w); i += 2 {
		if w[i] == name {
			v, _ := strconv.ParseInt(w[i+1], 10, 64) // an unreadable number is an unknown one
			return v
		}
	}
	return 0
}

// cpuPeriod is the kernel's default accounting period in microseconds.
const cpuPeriod = 100_000

func cpuQuota(cores float64) int64 { return max(int64(cores*cpuPeriod), 1000) }
