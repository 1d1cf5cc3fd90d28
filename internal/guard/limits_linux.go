// This file sets the limits of a node: fixed values, the same at every spawn whatever the guard itself was given.

package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The documented defaults of a node's limits.
const (
	// DefaultNoFile is how many descriptors a node may have open.
	DefaultNoFile = 65536
	// DefaultPids bounds the processes of a node that has a user of its own.
	DefaultPids = 4096
	// DefaultOOMScoreAdj makes the kernel prefer a node to the guard and to the rest of the system.
	DefaultOOMScoreAdj = 300

	stackSoft   = 8 << 20
	memlock     = 64 << 10
	sigPending  = 4096
	msgQueue    = 819200
	oomScoreMax = 1000
)

const unlimited = unix.RLIM_INFINITY

// rlimits returns the limit of every resource for a node. ownUser says that nobody else runs as its
// user, memoryGroup and pidsGroup that a cgroup enforces that limit already.
func rlimits(l Limits, ownUser, memoryGroup, pidsGroup bool) map[int]unix.Rlimit {
	noFile := uint64(DefaultNoFile)
	if l.NoFile > 0 {
		noFile = l.NoFile
	}
	both := func(v uint64) unix.Rlimit { return unix.Rlimit{Cur: v, Max: v} }
	r := map[int]unix.Rlimit{
		unix.RLIMIT_NOFILE:     both(noFile),
		unix.RLIMIT_CORE:       both(0),
		unix.RLIMIT_STACK:      {Cur: stackSoft, Max: unlimited},
		unix.RLIMIT_MEMLOCK:    both(memlock),
		unix.RLIMIT_MSGQUEUE:   both(msgQueue),
		unix.RLIMIT_SIGPENDING: both(sigPending),
		unix.RLIMIT_NICE:       both(0),
		unix.RLIMIT_RTPRIO:     both(0),
		unix.RLIMIT_RTTIME:     both(unlimited),
		unix.RLIMIT_CPU:        both(unlimited),
		unix.RLIMIT_FSIZE:      both(unlimited),
		unix.RLIMIT_AS:         both(unlimited),
		unix.RLIMIT_RSS:        both(unlimited),
		unix.RLIMIT_LOCKS:      both(unlimited),
		unix.RLIMIT_DATA:       both(unlimited),
		unix.RLIMIT_NPROC:      both(unlimited),
	}
	if l.Memory > 0 && !memoryGroup {
		r[unix.RLIMIT_DATA] = both(uint64(l.Memory))
	}
	// The kernel counts processes by user: for a shared one the limit would hit strangers.
	if ownUser {
		switch {
		case l.Pids > 0 && !pidsGroup:
			r[unix.RLIMIT_NPROC] = both(uint64(l.Pids))
		case l.Pids == 0:
			r[unix.RLIMIT_NPROC] = both(DefaultPids)
		}
	}
	return r
}

// setRlimits gives the stopped process its limits. It runs on the thread that forks. With CAP_SYS_RESOURCE they are
// what they should be; without (in most containers) a process of another user may be limited only by its own user, and
// no further than the guard itself is.
func setRlimits(pid int, uid uint32, limits map[int]unix.Rlimit) error {
	set := func() error { return prlimits(pid, limits) }
	err := set()
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	for resource, want := range limits {
		var own unix.Rlimit
		if err := unix.Getrlimit(resource, &own); err != nil {
			return fmt.Errorf("reading limit %d: %w", resource, err)
		}
		want.Max = min(want.Max, own.Max)
		want.Cur = min(want.Cur, want.Max)
		limits[resource] = want
	}
	if uid == 0 {
		return set()
	}
	return withRealUser(uid, set)
}

func prlimits(pid int, limits map[int]unix.Rlimit) error {
	for resource, limit := range limits {
		if err := unix.Prlimit(pid, resource, &limit, nil); err != nil {
			return fmt.Errorf("setting limit %d of the node to %d: %w", resource, limit.Max, err)
		}
	}
	return nil
}

// withRealUser runs f while the real user of this one thread, and nothing else of it, is uid. That is what the kernel
// compares for prlimit. Nobody else runs as that user: its node is stopped and its former ones are gone.
func withRealUser(uid uint32, f func() error) error {
	const keep = ^uintptr(0)
	set := func(id uintptr) error {
		// The raw calls change the calling thread only, unlike the syscall package's.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, id, keep, keep); errno != 0 {
			return errno
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, keep, keep); errno != 0 {
			return errno
		}
		return nil
	}
	err := set(uintptr(uid))
	if err == nil {
		err = f()
	}
	if errBack := set(0); errBack != nil {
		return errors.Join(err, fmt.Errorf("taking the guard's own user back: %w", errBack))
	}
	return err
}

// setOOMScore makes the kernel kill the process before the guard. Lowering what it has inherited may be forbidden;
// then it stays, which is higher.
func setOOMScore(pid, adj int) error {
	want := max(min(DefaultOOMScoreAdj+adj, oomScoreMax), -oomScoreMax)
	err := writeOOMScore(strconv.Itoa(pid), want)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		b, errRead := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")
		have, errParse := strconv.Atoi(strings.TrimSpace(string(b)))
		if errRead == nil && errParse == nil && have >= want {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("setting the node's oom score: %w", err)
	}
	return nil
}

func writeOOMScore(pid string, value int) error {
	return writeFile("/proc/"+pid+"/oom_score_adj", strconv.Itoa(value))
}
