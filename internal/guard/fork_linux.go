// This file forks the nodes: one goroutine on one locked thread, which holds what a child must inherit and
// what only the thread that forked may do to it (ptrace).

package guard

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// forkRequest is all that one child is made of.
type forkRequest struct {
	path string
	argv []string
	env  []string
	dir  string
	// stdin and log are descriptors 0, and 1 and 2, of the child. cgroup is its cgroup2 directory or -1.
	stdin, log, cgroup int
	// uid is the child's user and group; 0 keeps the guard's.
	uid uint32
	// configure is called while the child is stopped at its first instruction (or runs, where ptrace is
	// refused). An error kills the child.
	configure func(pid, pidfd int) error
	// adopt puts the child into the table. No exit of the child can be seen before.
	adopt func(pid, pidfd int)
}

// forker owns the thread that forks.
type forker struct {
	log      *zap.Logger
	requests chan func()
	done     sync.WaitGroup
	// reap is held from fork to detach: the reaper's wait4(-1) would take the child's stop for itself. Lock
	// order: reap before Guard.mu.
	reap *sync.Mutex
	// untraced is set once ptrace turned out to be refused; only the thread uses it.
	untraced bool
}

func newForker(log *zap.Logger, reap *sync.Mutex) (*forker, error) {
	f := &forker{log: log, requests: make(chan func()), reap: reap}
	ready := make(chan error, 1)
	f.done.Go(func() {
		// Never unlocked: the thread is changed for good and ends with the goroutine.
		runtime.LockOSThread()
		err := prepareThread()
		ready <- err
		if err != nil {
			return
		}
		for do := range f.requests {
			do()
		}
	})
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("preparing the thread that forks: %w", err)
	}
	return f, nil
}

// close ends the thread. No fork may be asked for any more.
func (f *forker) close() {
	close(f.requests)
	f.done.Wait()
}

// fork starts the child and returns once it is configured and running, or the errno that kept it from being.
func (f *forker) fork(r forkRequest) error {
	result := make(chan error, 1)
	f.requests <- func() { result <- f.onThread(r) }
	return <-result
}

// prepareThread makes this thread what a node may inherit from: no privilege to be gained, an empty signal
// mask, and no capability left to acquire.
func prepareThread() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	var empty unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &empty, nil); err != nil {
		return fmt.Errorf("signal mask: %w", err)
	}
	if unix.Getuid() != 0 {
		return nil
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
			break // past the last one this kernel knows, or not ours to drop (and so not the node's to have)
		}
		if err != nil {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	return nil
}

func (f *forker) onThread(r forkRequest) error {
	f.reap.Lock()
	defer f.reap.Unlock()
	pid, pidfd, err := f.exec(r)
	if err != nil {
		return err
	}
	if err := f.configure(r, pid, pidfd); err != nil {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		var ws unix.WaitStatus
		for {
			if _, errWait := unix.Wait4(pid, &ws, 0, nil); errWait != unix.EINTR && (errWait != nil || !ws.Stopped()) {
				break
			}
		}
		unix.Close(pidfd)
		return err
	}
	return nil
}

// exec forks and execs. Where ptrace is refused it does without, from then on.
func (f *forker) exec(r forkRequest) (pid, pidfd int, err error) {
	pidfd = -1
	sys := &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd, Ptrace: !f.untraced}
	if r.cgroup >= 0 {
		sys.UseCgroupFD, sys.CgroupFD = true, r.cgroup
	}
	if r.uid != 0 {
		sys.Credential = &syscall.Credential{Uid: r.uid, Gid: r.uid}
	}
	attr := &syscall.ProcAttr{
		Dir: r.dir, Env: r.env, Sys: sys,
		Files: []uintptr{uintptr(r.stdin), uintptr(r.log), uintptr(r.log)},
	}
	pid, err = syscall.ForkExec(r.path, r.argv, attr)
	if errors.Is(err, syscall.EPERM) && !f.untraced {
		sys.Ptrace = false
		if pid, err = syscall.ForkExec(r.path, r.argv, attr); err == nil {
			f.untraced = true
			f.log.Warn("ptrace is refused; limits are set just after a node's start instead of before")
		}
	}
	if err == nil && pidfd < 0 {
		// A kernel that can't give it with the fork; the child is ours and unreaped, so its pid is its own.
		pidfd, err = unix.PidfdOpen(pid, 0)
	}
	return pid, pidfd, err
}

func (f *forker) configure(r forkRequest, pid, pidfd int) error {
	if f.untraced {
		if err := r.configure(pid, pidfd); err != nil {
			return err
		}
		r.adopt(pid, pidfd)
		return nil
	}
	if err := waitForExecStop(pid); err != nil {
		return err
	}
	// A guard that dies while the child is stopped takes it along: it has never run.
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	if err := r.configure(pid, pidfd); err != nil {
		return err
	}
	r.adopt(pid, pidfd)
	if err := unix.PtraceDetach(pid); err != nil && !errors.Is(err, unix.ESRCH) {
		// It is in the table already: the reaper will see its end.
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		f.log.Error("a node could not be let go and was killed", zap.Int("pid", pid), zap.Error(err))
	}
	return nil
}

// waitForExecStop waits for the trap that ends a traced child's exec. It comes at once: the exec has
// succeeded before.
func waitForExecStop(pid int) error {
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for the node's exec: %w", err)
		case ws.Stopped():
			return nil
		default:
			return errors.New("the node was killed while it was being started")
		}
	}
}
