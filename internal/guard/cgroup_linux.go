// This file finds the cgroup hierarchies this guard may use and makes one cgroup2 directory a node, for tracking its
// tree, and cgroups in version 1 or 2 controllers for the limits its template sets.

package guard

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cgroupsv3 "github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// limitControllers are the controllers that enforce limits.
var limitControllers = []string{"memory", "cpu", "pids"}

// cgroups is what this host offers.
type cgroups struct {
	// parent is the cgroup2 directory that holds the nodes' ones; empty means session tracking.
	parent string
	// v2 are the controllers that parent's children have.
	v2 []string
	// v1 holds, for each controller mounted as version 1 and writable here, where its nodes' cgroups go.
	v1 map[cgroup1.Name]v1Controller
	// name is the last element of parent, used in version 1 hierarchies as well.
	name string
}

// v1Controller is one version 1 hierarchy.
type v1Controller struct {
	subsystem cgroup1.Subsystem
	// root is the directory that holds the mount, base the guard's own cgroup in it.
	root, base string
}

// mount is one line of mountinfo that concerns us.
type mount struct {
	root, point, fstype string
	options             []string
}

// findCgroups looks the hierarchies up in mountinfo; they are not at the same place everywhere.
func findCgroups(cfg Config) (*cgroups, error) {
	mounts, err := cgroupMounts()
	if err != nil {
		return nil, fmt.Errorf("finding the cgroup mounts: %w", err)
	}
	own, unified, err := ownCgroups()
	if err != nil {
		return nil, fmt.Errorf("finding the guard's own cgroup: %w", err)
	}
	c := &cgroups{name: cgroupName(cfg.RuntimeDir), v1: make(map[cgroup1.Name]v1Controller)}
	for _, m := range mounts {
		switch m.fstype {
		case "cgroup2":
			if c.parent == "" && cfg.Tracking != TrackingSession {
				c.useCgroup2(cfg, m, unified)
			}
		case "cgroup":
			c.useV1(m, own)
		}
	}
	if c.parent == "" && cfg.Tracking == TrackingCgroup {
		return nil, errors.New("tracking is set to cgroup2, but no cgroup2 directory is writable here; delegate one, or set it to session")
	}
	return c, nil
}

// useCgroup2 takes the mount if nodes can be put there.
func (c *cgroups) useCgroup2(cfg Config, m mount, own string) {
	ownDir, ok := beneathMount(m, own)
	if !ok {
		return
	}
	parent := filepath.Join(ownDir, c.name)
	if cfg.CgroupParent != "" {
		parent = filepath.Join(m.point, filepath.Clean("/"+cfg.CgroupParent))
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		cfg.Logger.Warn("cgroup2 directory can't be used", zap.String("path", parent), zap.Error(err))
		return
	}
	// Cloning a child into a cgroup needs write access to the common ancestor's procs file too, and killing a
	// whole tree at once needs Linux 5.14.
	ancestor := commonDir(ownDir, parent)
	for _, f := range []string{filepath.Join(ancestor, "cgroup.procs"), filepath.Join(parent, "cgroup.kill")} {
		if err := unix.Access(f, unix.W_OK); err != nil {
			cfg.Logger.Warn("cgroup2 directory can't be used", zap.String("path", f), zap.Error(err))
			_ = os.Remove(parent)
			return
		}
	}
	c.parent = parent
	for _, name := range limitControllers {
		if !slices.Contains(words(filepath.Join(parent, "cgroup.controllers")), name) {
			continue
		}
		if writeFile(filepath.Join(parent, "cgroup.subtree_control"), "+"+name) == nil {
			c.v2 = append(c.v2, name)
		}
	}
}

// useV1 takes the version 1 controllers of the mount that limits need.
func (c *cgroups) useV1(m mount, own map[string]string) {
	for _, option := range m.options {
		if !slices.Contains(limitControllers, option) {
			continue
		}
		name, root := cgroup1.Name(option), filepath.Dir(m.point)
		dir, ok := beneathMount(m, own[option])
		base, err := filepath.Rel(m.point, dir)
		// The library wants <root>/<controller>; a joint mount has links of these names beside it.
		if _, errLink := os.Stat(filepath.Join(root, option)); !ok || err != nil || errLink != nil || unix.Access(dir, unix.W_OK) != nil {
			continue
		}
		v := v1Controller{root: root, base: "/" + base}
		switch name {
		case cgroup1.Memory:
			v.subsystem = cgroup1.NewMemory(root, cgroup1.OptionalSwap())
		case cgroup1.Cpu:
			v.subsystem = cgroup1.NewCpu(root)
		default:
			v.subsystem = cgroup1.NewPids(root)
		}
		c.v1[name] = v
	}
}

// tracking and controllers are what Hello tells.
func (c *cgroups) tracking() string {
	if c.parent == "" {
		return TrackingSession
	}
	return TrackingCgroup
}

func (c *cgroups) controllers() []string {
	names := slices.Clone(c.v2)
	for n := range c.v1 {
		if !slices.Contains(names, string(n)) {
			names = append(names, string(n))
		}
	}
	slices.Sort(names)
	return names
}

// removeParents removes the directories that held the nodes' cgroups, if they are empty.
func (c *cgroups) removeParents() {
	if c.parent != "" {
		_ = unix.Rmdir(c.parent)
	}
	for name, v := range c.v1 {
		_ = unix.Rmdir(filepath.Join(v.root, string(name), v.base, c.name))
	}
}

// cgroupName is stable for a runtime directory, so that a new guard finds its predecessor's directory.
func cgroupName(runtimeDir string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(runtimeDir)) // a hash never fails
	return fmt.Sprintf("cadre-%016x", h.Sum64())
}

// cgroupMounts returns the cgroup lines of mountinfo.
func cgroupMounts() ([]mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var mounts []mount
	for line := range strings.Lines(string(b)) {
		// 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup rw
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 || (g[0] != "cgroup" && g[0] != "cgroup2") {
			continue
		}
		mounts = append(mounts, mount{
			root: unescape(f[3]), point: unescape(f[4]), fstype: g[0], options: strings.Split(g[2], ","),
		})
	}
	return mounts, nil
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ownCgroups returns this process's cgroup by controller (version 1), and in the unified hierarchy.
func ownCgroups() (v1 map[string]string, unified string, err error) {
	return cgroupsv3.ParseCgroupFileUnified("/proc/self/cgroup")
}

// beneathMount returns where the cgroup path is in the file system, if the mount shows it.
func beneathMount(m mount, cgroup string) (string, bool) {
	rel, err := filepath.Rel(m.root, cgroup)
	if err != nil || cgroup == "" || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.Join(m.point, rel), true
}

// commonDir is the deepest directory that holds both.
func commonDir(a, b string) string {
	for ; a != "/" && a != b && !strings.HasPrefix(b, a+"/"); a = filepath.Dir(a) {
	}
	return a
}

func words(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// writeFile writes to a control file, which exists.
func writeFile(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
