// This file identifies processes: boot id, pid and start time together; a pid alone never does.

package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// errGone says that a process doesn't exist any more, or that its pid names another one now.
var errGone = errors.New("the process is gone")

// bootID returns the kernel's random id of this boot.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
})

// procStat is the part of /proc/<pid>/stat that tells who is who.
type procStat struct {
	pid, ppid, session int
	state              byte
	// start is in clock ticks since boot.
	start uint64
}

// dead reports whether nothing of the process runs any more (it may still have to be reaped).
func (s procStat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

// readStat reads /proc/<pid>/stat; errGone if there is no such process.
func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return procStat{}, errGone
		}
		return procStat{}, err
	}
	return parseStat(pid, b)
}

func parseStat(pid int, b []byte) (procStat, error) {
	// The second field is the command in brackets and may hold anything, brackets and spaces included.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return procStat{}, fmt.Errorf("/proc/%d/stat: malformed", pid)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return procStat{}, fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	ppid, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	start, err3 := strconv.ParseUint(f[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return procStat{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return procStat{pid: pid, ppid: ppid, session: session, state: f[0][0], start: start}, nil
}

// sameProcess reports whether pid is still the process that started at start, as a zombie too.
func sameProcess(pid int, start uint64) bool {
	st, err := readStat(pid)
	return err == nil && st.start == start
}

// openProcess returns a pidfd of exactly the process that has this pid and start time; errGone if it has ended. The
// identity is checked after the descriptor is had, so that no reuse of the pid can slip in between.
func openProcess(pid int, start uint64) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return -1, errGone
		}
		return -1, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	st, err := readStat(pid)
	if err == nil && st.start != start {
		err = errGone
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// signalProcess signals through a pidfd. A process that is gone is a success: it needs no signal.
func signalProcess(pidfd int, sig unix.Signal) error {
	if err := unix.PidfdSendSignal(pidfd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %s: %w", unix.SignalName(sig), err)
	}
	return nil
}

// processes lists the pids in /proc.
func processes() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Alive reports whether exactly this process lives: booted as bootID, with this pid and start time (field 22 of
// /proc/pid/stat). A zombie does not.
func Alive(boot string, pid int, start uint64) bool {
	if pid <= 0 || boot != bootID() {
		return false
	}
	st, err := readStat(pid)
	return err == nil && st.start == start && !st.dead()
}
