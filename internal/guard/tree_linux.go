// This file finds and kills all of a node's processes: by its cgroup, or by session, ancestry and environment.

package guard

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// tree is a node's processes. sweep sends SIGKILL to whatever of them is alive and reports whether anything
// was; false means that the tree is verified gone.
type tree interface {
	sweep() (alive bool, err error)
}

// cgroupTree is everything in a cgroup2 directory and below it.
type cgroupTree struct{ dir string }

func (t cgroupTree) sweep() (bool, error) {
	b, err := os.ReadFile(filepath.Join(t.dir, "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	if !bytes.Contains(b, []byte("populated 1")) {
		return false, nil
	}
	return true, writeFile(filepath.Join(t.dir, "cgroup.kill"), "1")
}

// sessionTree is what can be found without a cgroup. A process belongs to the tree if it is the leader, in the leader's
// session, a descendant of a member, or carries the spawn's name in its environment.
type sessionTree struct {
	scan   *scanner
	spawn  string
	leader procStat
	// uid is the node's own user; 0 if it shares the guard's.
	uid uint32
	// adopted nodes' orphans go to init, so they are searched for everywhere.
	adopted bool

	mu sync.Mutex
	// reaped is set once the leader's pid may be somebody else's; guarded by mu.
	reaped bool
	// cutoff is the time, in ticks since boot, after which a session of the leader's number is no longer its own;
	// guarded by mu.
	cutoff uint64
	// members are those found before, by pid, with their start times; guarded by mu.
	members map[int]uint64
}

// leaderReaped tells the tree that the leader's pid may be reused from the time cutoff on. While a leader is
// a zombie the kernel keeps its number, so that its session can't be mistaken for another.
func (t *sessionTree) leaderReaped(cutoff uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reaped {
		t.reaped, t.cutoff = true, cutoff
	}
}

func (t *sessionTree) sweep() (bool, error) {
	procs, err := t.scan.take()
	if err != nil {
		return true, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	alive := false
	var errs []error
	for _, p := range t.find(procs) {
		if p.dead() {
			continue
		}
		alive = true
		errs = append(errs, killExactly(p))
	}
	return alive, errors.Join(errs...)
}

// find returns the members among procs and remembers them. mu is held.
func (t *sessionTree) find(procs []procStat) []procStat {
	self := os.Getpid()
	byPID := make(map[int]procStat, len(procs))
	for _, p := range procs {
		byPID[p.pid] = p
	}
	found := make(map[int]procStat)
	leader, present := byPID[t.leader.pid]
	stranger := present && leader.start != t.leader.start
	for _, p := range procs {
		known, wasMember := t.members[p.pid]
		// A leader that never had a pid has no session either: 0 is that of the kernel's threads, and often of pid 1.
		inSession := t.leader.pid != 0 && p.session == t.leader.pid && !stranger && (!t.reaped || p.start <= t.cutoff)
		switch {
		case p.pid == self:
		case p.pid == t.leader.pid && p.start == t.leader.start, wasMember && known == p.start, inSession:
			found[p.pid] = p
		case (t.adopted || p.ppid == self) && p.start >= t.leader.start && t.marked(p):
			found[p.pid] = p
		}
	}
	// Descendants of members, until there are no more.
	for grown := true; grown; {
		grown = false
		for _, p := range procs {
			parent, ok := found[p.ppid]
			if _, have := found[p.pid]; ok && !have && p.pid != self && p.start >= parent.start {
				found[p.pid], grown = p, true
			}
		}
	}
	t.members = make(map[int]uint64, len(found))
	members := make([]procStat, 0, len(found))
	for pid, p := range found {
		t.members[pid] = p.start
		members = append(members, p)
	}
	return members
}

// marked reports whether the process was started with the spawn's name in its environment, by the node's user.
func (t *sessionTree) marked(p procStat) bool {
	dir := "/proc/" + strconv.Itoa(p.pid)
	if t.uid != 0 {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != t.uid {
			return false
		}
	}
	env, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return false
	}
	marker := []byte(spawnVariable + "=" + t.spawn)
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(v, marker) {
			return true
		}
	}
	return false
}

// killExactly sends SIGKILL to the process that was seen, never to a successor of its pid.
func killExactly(p procStat) error {
	fd, err := openProcess(p.pid, p.start)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return signalProcess(fd, unix.SIGKILL)
}

// scanner reads all of /proc for whoever asks at the same time, once.
type scanner struct {
	mu sync.Mutex
	// next is the scan that has not begun; everyone who asks before it does gets its answer. Guarded by mu.
	next *scan
	// running serialises the scans.
	running sync.Mutex
}

type scan struct {
	once  sync.Once
	procs []procStat
	err   error
}

// take returns the processes as they are at some time after the call.
func (s *scanner) take() ([]procStat, error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = &scan{}
	}
	mine := s.next
	s.mu.Unlock()

	s.running.Lock()
	defer s.running.Unlock()
	mine.once.Do(func() {
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
		mine.procs, mine.err = readProcesses()
	})
	return mine.procs, mine.err
}

func readProcesses() ([]procStat, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	procs := make([]procStat, 0, len(pids))
	for _, pid := range pids {
		if st, err := readStat(pid); err == nil {
			procs = append(procs, st)
		}
	}
	return procs, nil
}

// bootTicks is now, in the unit of a process's start time: USER_HZ, which is 100 on every Linux that Go runs on.
func bootTicks() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano()) / 10_000_000
}
