// This file holds the end-to-end tests' rig: a host of its own directories, with a daemon, its guard and nodes as real
// processes (this test binary is cadre-hostd when it is called like it), and an init that reaps what is left over.

package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/cli"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// patience bounds every wait for an event; only a failure waits that long.
const patience = time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"run", "guard", "node"}, os.Args[1]) {
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stop := theInit.run()
	code := m.Run()
	stop()
	os.Exit(code)
}

// theInit reaps the children that this process inherits, as process 1 of a machine does; the kernel tells an
// adopted process's status only after that.
var theInit = initd{ours: map[int]bool{}}

type initd struct {
	mu   sync.Mutex
	ours map[int]bool // the commands that the tests started and wait for; guarded by mu
}

// start starts a command that the caller waits for.
func (i *initd) start(cmd *exec.Cmd) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	i.ours[cmd.Process.Pid] = true
	return nil
}

func (i *initd) run() (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, unix.SIGCHLD)
	go func() {
		defer close(done)
		for range signals {
			i.reap()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

func (i *initd) reap() {
	i.mu.Lock()
	defer i.mu.Unlock()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended since
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && !i.ours[pid] {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
	}
}

// host is one machine's worth of directories and at most one daemon.
type host struct {
	t      *testing.T
	dir    string
	config string
	// args are added to 'run'; attr is how it is started.
	args   []string
	attr   *syscall.SysProcAttr
	stdin  *os.File
	exe    string
	client *api.Client

	cmd    *exec.Cmd
	exited chan error
	said   *bytes.Buffer
}

// newHost returns a host whose configuration is text. At the test's end everything is stopped, and it is an error
// if a process is left that stood in its directory.
func newHost(t *testing.T, text string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "cadre") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: dir, config: filepath.Join(dir, "config.toml"), exe: "/proc/self/exe"}
	h.client = api.NewClient(h.path("s", "run", "admin.sock"))
	t.Cleanup(h.end)
	if err := os.Chmod(dir, 0o755); err != nil { // nodes have users of their own
		t.Fatal(err)
	}
	h.configure(text)
	return h
}

func (h *host) path(parts ...string) string {
	return filepath.Join(append([]string{h.dir}, parts...)...)
}

func (h *host) configure(text string) {
	h.t.Helper()
	if err := os.WriteFile(h.config, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// launch starts a daemon without waiting for anything.
func (h *host) launch() {
	h.t.Helper()
	args := append([]string{"run", "--state-dir", h.path("s"), "--config", h.config, "--log-format", "json", "--log-level", "debug"}, h.args...)
	h.cmd = exec.Command(h.exe, args...)
	h.cmd.SysProcAttr = h.attr
	if h.stdin != nil {
		h.cmd.Stdin = h.stdin
	}
	h.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "GORACE=atexit_sleep_ms=0"}
	h.said = &bytes.Buffer{}
	h.cmd.Stderr = h.said
	if err := theInit.start(h.cmd); err != nil {
		h.t.Fatal(err)
	}
	cmd, exited := h.cmd, make(chan error, 1)
	h.exited = exited
	go func() { exited <- cmd.Wait() }()
}

// run starts a daemon and waits until it is in the mode.
func (h *host) run(mode string) api.Overview {
	h.t.Helper()
	h.launch()
	var o api.Overview
	h.eventually("a daemon that is "+mode, func() bool {
		select {
		case err := <-h.exited:
			h.t.Fatalf("the daemon ended: %v\n%s", err, h.said)
		default:
		}
		var err error
		o, err = h.client.Overview(h.t.Context())
		return err == nil && o.Mode == mode
	})
	return o
}

// kill ends the daemon as an out-of-memory killer would.
func (h *host) kill() {
	h.t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		h.t.Fatal(err)
	}
	<-h.exited
	h.cmd = nil
}

// stop ends the daemon in order.
func (h *host) stop() {
	h.t.Helper()
	if err := h.cmd.Process.Signal(unix.SIGTERM); err != nil {
		h.t.Fatal(err)
	}
	if err := <-h.exited; err != nil {
		h.t.Errorf("the daemon ended badly: %v\n%s", err, h.said)
	}
	h.cmd = nil
}

// end stops the daemon, then the guard with its nodes, and looks for what is left.
func (h *host) end() {
	if h.t.Failed() && h.said != nil {
		defer func() {
			h.t.Logf("the daemon said:\n%s", h.said)
			guardLog, _ := os.ReadFile(guard.LogPath(h.path("s", "run")))
			h.t.Logf("the guard said:\n%s", guardLog)
		}()
	}
	defer os.RemoveAll(h.dir)
	defer h.client.Close()
	if h.cmd != nil {
		h.stop()
	}
	if pid, held, _ := guard.Holder(h.path("s", "run")); held {
		_ = unix.Kill(pid, unix.SIGCONT)
		_ = unix.Kill(pid, unix.SIGTERM)
	}
	h.eventually("no process is left behind", func() bool {
		left := h.processes()
		return len(left) == 0
	})
}

// processes are those that stand in the host's directory or were started from it.
func (h *host) processes() []string {
	var found []string
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		cwd, _ := os.Readlink(filepath.Join(e, "cwd"))
		cmdline, _ := os.ReadFile(filepath.Join(e, "cmdline"))
		if e != fmt.Sprintf("/proc/%d", os.Getpid()) && (strings.HasPrefix(cwd, h.dir) || bytes.Contains(cmdline, []byte(h.dir))) {
			found = append(found, filepath.Base(e)+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}

// eventually waits until the condition holds. Conditions of other processes have no event that this one could
// wait for, so it looks again and again.
func (h *host) eventually(what string, cond func() bool) {
	h.t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for begun := time.Now(); !cond(); <-ticker.C {
		if time.Since(begun) > patience {
			h.t.Errorf("waited for %s in vain", what)
			h.t.FailNow()
		}
	}
}

// donate lends a node and waits until it is ready.
func (h *host) donate(template, name string) api.View {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	v, err := h.client.Donate(ctx, donation.Request{Template: template, Name: name})
	if err != nil {
		h.t.Fatalf("donate %s: %v", template, err)
	}
	return h.await(string(v.ID), "ready", func(v api.View) bool { return v.Ready })
}

// await waits until the donation is as it should be.
func (h *host) await(ref, what string, cond func(api.View) bool) api.View {
	h.t.Helper()
	var v api.View
	h.eventually(ref+" is "+what, func() bool {
		ctx, cancel := context.WithTimeout(h.t.Context(), patience)
		defer cancel()
		var err error
		if v, err = h.client.Donation(ctx, ref); err != nil {
			h.t.Fatalf("look at %s: %v", ref, err)
		}
		return cond(v)
	})
	return v
}

func (h *host) view(ref string) api.View {
	h.t.Helper()
	return h.await(ref, "there", func(api.View) bool { return true })
}

// terminate ends a donation and waits for it.
func (h *host) terminate(ref string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	if v, err := h.client.Terminate(ctx, ref, false); err != nil || v.Status != donation.Terminated {
		h.t.Fatalf("terminate %s: %v, %v", ref, v.Status, err)
	}
}

// guardPID is the pid of whoever holds the guard's lock.
func (h *host) guardPID() int {
	h.t.Helper()
	pid, held, err := guard.Holder(h.path("s", "run"))
	if err != nil || !held {
		h.t.Fatalf("no guard holds the lock: %v", err)
	}
	return pid
}

// running reports whether a process with this pid lives; a zombie doesn't.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z")) && !bytes.HasPrefix(rest, []byte("X"))
}

// signalTo sends a signal to a process that must exist; SIGSTOP has taken effect when it returns.
func signalTo(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatalf("signal %d to %d: %v", sig, pid, err)
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for begun := time.Now(); sig == unix.SIGSTOP && !stopped(pid); <-ticker.C {
		if time.Since(begun) > patience {
			t.Fatalf("%d isn't stopped", pid)
		}
	}
}

// stopped reports whether every thread of the process is.
func stopped(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return !slices.ContainsFunc(tasks, func(path string) bool {
		stat, err := os.ReadFile(path)
		return err == nil && !bytes.Contains(stat, []byte(") T "))
	})
}

// read returns a file's content, "" if there is none.
func read(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
