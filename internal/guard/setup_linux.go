// This file makes the process fit to be the parent of nodes: what they would inherit is put right, once, before
// the first of them is forked.

package guard

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// nodeUmask is the guard's, and so every node's.
	nodeUmask = 0o077
	// guardOOMScore keeps the kernel from killing the guard for what a node has eaten.
	guardOOMScore = -900
	// guardNoFile is how many descriptors a root guard asks for: up to four a node, and some.
	guardNoFile = 1 << 20
)

// signalSet is what the guard listens to.
type signalSet struct {
	children, stopAll, handOver chan os.Signal
	ignored                     chan os.Signal
}

// stop ends the delivery.
func (s *signalSet) stop() {
	for _, c := range []chan os.Signal{s.children, s.stopAll, s.handOver, s.ignored} {
		signal.Stop(c)
	}
}

// prepareProcess changes this process for good.
func prepareProcess(log *zap.Logger) *signalSet {
	// Capacity 1 each: one pending signal of a kind says all.
	s := &signalSet{
		children: make(chan os.Signal, 1), stopAll: make(chan os.Signal, 1),
		handOver: make(chan os.Signal, 1), ignored: make(chan os.Signal, 1),
	}
	// A signal with a handler has its default disposition again after exec; an ignored one stays ignored in the
	// node. So even those that mean nothing here get a handler.
	for _, sig := range ignoredSignals() {
		if sig >= 32 && sig <= 34 {
			resetSignal(sig) // the runtime's own business: it lets nobody listen to these
			continue
		}
		signal.Notify(s.ignored, sig)
	}
	signal.Notify(s.ignored, unix.SIGHUP, unix.SIGPIPE)
	signal.Notify(s.children, unix.SIGCHLD)
	signal.Notify(s.stopAll, unix.SIGTERM, unix.SIGINT)
	signal.Notify(s.handOver, unix.SIGUSR1)

	unix.Umask(nodeUmask)
	for what, err := range map[string]error{
		// Descriptors that somebody else left open must not reach a node.
		"closing inherited descriptors at exec": unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC),
		"becoming a subreaper":                  unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		"raising the descriptor limit":          raiseNoFile(),
	} {
		if err != nil {
			log.Warn("the guard is less than it should be", zap.String("missing", what), zap.Error(err))
		}
	}
	// Only root may; for others the nodes' higher score has to do.
	if score := words("/proc/self/oom_score_adj"); len(score) == 1 {
		if have, err := strconv.Atoi(score[0]); err == nil && have > guardOOMScore {
			_ = writeOOMScore("self", guardOOMScore)
		}
	}
	return s
}

// raiseNoFile raises the guard's own limit; the nodes' are set one by one. The runtime has done it up to the
// hard limit already.
func raiseNoFile() error {
	if os.Getuid() != 0 {
		return nil
	}
	var have syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &have); err != nil || have.Max >= guardNoFile {
		return err
	}
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: guardNoFile, Max: guardNoFile})
	if errors.Is(err, syscall.EPERM) {
		return nil // a root without CAP_SYS_RESOURCE, as in a container
	}
	return err
}

// ignoredSignals returns the signals that this process was started with ignored.
func ignoredSignals() []unix.Signal {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil
	}
	var signals []unix.Signal
	for line := range strings.Lines(string(b)) {
		hex, ok := strings.CutPrefix(line, "SigIgn:")
		if !ok {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return nil
		}
		for n := range 64 {
			if mask&(1<<n) != 0 {
				signals = append(signals, unix.Signal(n+1))
			}
		}
	}
	return signals
}

// resetSignal gives a signal its default disposition behind the runtime's back.
func resetSignal(sig unix.Signal) {
	// struct sigaction of the kernel, all zero: SIG_DFL, no flags, empty mask. Larger than any architecture's.
	var action [64]byte
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
