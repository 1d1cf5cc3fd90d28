// This file sees processes end: own children by one SIGCHLD loop, adopted ones through pidfds in the runtime's
// poller. Nothing here costs a thread a process, and nothing else in the guard waits for children.

package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// reapLoop reaps at every SIGCHLD (children, capacity 1: the drain sees all there are) until ctx ends.
func (g *Guard) reapLoop(ctx context.Context, children <-chan os.Signal) {
	for {
		g.drain()
		select {
		case <-children:
		case <-g.reapAgain:
		case <-ctx.Done():
			return
		}
	}
}

// drain takes all children that have ended. The lock is let go between two of them, so that forks get their turn.
func (g *Guard) drain() {
	for g.reapOne() {
	}
}

// reapOne takes one child that has ended, and reports whether there may be more.
func (g *Guard) reapOne() bool {
	g.reap.Lock()
	defer g.reap.Unlock()
	pid, err := peekChild()
	if err != nil || pid == 0 {
		return false
	}
	now := time.Now()
	t := g.table
	t.mu.Lock()
	p := t.byPID[pid]
	park := p != nil && p.group.dir == ""
	t.mu.Unlock()
	if park {
		// A tree without a cgroup is found by its leader's session, whose number is only safe while the leader
		// isn't reaped. The zombie hides others from peekChild: those that are nodes are asked one by one.
		g.mainEnded(p, nil, now)
		g.askNodes(now)
		return false
	}
	var o outcome
	if _, err := unix.Wait4(pid, &o.status, unix.WNOHANG, &o.usage); err != nil {
		return false
	}
	if p != nil && (o.status.Exited() || o.status.Signaled()) {
		o.known = true
		g.mainEnded(p, &o, now)
	}
	return true
}

// askNodes finds the nodes with session tracking that have ended behind a parked one.
func (g *Guard) askNodes(now time.Time) {
	t := g.table
	t.mu.Lock()
	var ended []*process
	for _, p := range t.byPID {
		if p.mainEnded || p.view.Adopted || p.pidfd < 0 {
			continue
		}
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PIDFD, p.pidfd, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == nil && siginfoPID(&info) != 0 {
			ended = append(ended, p)
		}
	}
	t.mu.Unlock()
	for _, p := range ended {
		g.mainEnded(p, nil, now)
	}
}

// reapParked takes a parked zombie at last, and with it how it ended.
func (g *Guard) reapParked(p *process) {
	t := g.table
	t.mu.Lock()
	parked, pid := p.parked, p.view.PID
	p.parked = false
	t.mu.Unlock()
	if !parked {
		return
	}
	if s, ok := p.tree.(*sessionTree); ok {
		s.leaderReaped(bootTicks())
	}
	var o outcome
	_, err := unix.Wait4(pid, &o.status, 0, &o.usage)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Wait4(pid, &o.status, 0, &o.usage)
	}
	o.known = err == nil
	t.mu.Lock()
	p.outcome = o
	t.dropPID(p)
	t.mu.Unlock()
	close(p.outcomeKnown)
	select {
	case g.reapAgain <- struct{}{}:
	default:
	}
}

// peekChild returns the pid of a child that has ended, without reaping it; 0 if there is none.
func peekChild() (int, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return siginfoPID(&info), err
		}
	}
}

// siginfoPID reads si_pid, which the unix package doesn't name: it follows three ints, aligned to a pointer.
func siginfoPID(info *unix.Siginfo) int {
	const ints = 3 * unsafe.Sizeof(int32(0))
	const align = unsafe.Sizeof(uintptr(0))
	const offset = (ints + align - 1) / align * align
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}

// How long the kernel is given to tell how an adopted process ended: until its parent has reaped it.
const adoptedStatusWait = 5 * time.Second

// watchable returns a copy of a pidfd for the runtime's poller: the process's own is closed by whoever ends it.
func watchable(pidfd int) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("watching the node: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watching the node: %w", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// followAdopted waits for the end of a process that isn't our child, then for its status; f is its pidfd, which it
// closes. It ends early with ctx.
func (g *Guard) followAdopted(ctx context.Context, p *process, f *os.File) {
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer func() {
		stop()
		f.Close()
	}()
	conn, err := f.SyscallConn()
	if err == nil {
		err = conn.Read(hasEnded)
	}
	if err != nil {
		if ctx.Err() == nil {
			g.log.Error("an adopted node can't be watched", p.fields(zap.Error(err))...)
		}
		return
	}
	g.mainEnded(p, nil, time.Now())

	var o outcome
	if err := f.SetReadDeadline(time.Now().Add(adoptedStatusWait)); err != nil {
		g.log.Warn("waiting for a status without a bound isn't done", p.fields(zap.Error(err))...)
	} else {
		// Its error is the deadline: then the status is unknown.
		_ = conn.Read(func(fd uintptr) bool { return exitInfo(fd, &o) })
	}
	g.table.mu.Lock()
	p.outcome = o
	g.table.mu.Unlock()
	close(p.outcomeKnown)
}

// hasEnded reports whether a pidfd's process has ended.
func hasEnded(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// exitInfo asks a pidfd for its process's status, which Linux 6.15 and later tell once it has been reaped. It reports
// whether there is nothing more to wait for.
func exitInfo(fd uintptr, o *outcome) bool {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(int(fd), &info); err != nil {
		// Older kernels: they don't know the call at all, or answer ESRCH once it is reaped.
		return !errors.Is(err, unix.EINTR)
	}
	if info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return false
	}
	o.known, o.status = true, unix.WaitStatus(info.Exit_code)
	return true
}
