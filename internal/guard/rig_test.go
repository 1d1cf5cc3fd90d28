// This file holds the rig of the tests: a real guard in a process of its own, and what it tells.

package guard

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait of the tests.
const patience = 20 * time.Second

// uids hands every donation of the tests a user of its own.
var uids atomic.Uint32

// rig is a guard under test.
type rig struct {
	t      testing.TB
	cfg    Config
	client *Client
	cmd    *exec.Cmd
	// logFile takes what the guards write to their standard error.
	logFile string
	// before changes the guard's command before it is started.
	before func(*exec.Cmd)

	mu     sync.Mutex
	procs  map[string]Process
	seen   []Process
	change chan struct{}
	stop   context.CancelFunc
	done   chan struct{}
}

// newRig starts a guard in a scratch directory. It ends with the test, nodes and all.
func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	dir := openDir(t)
	r := &rig{
		t: t, logFile: filepath.Join(dir, "guard.err"), cfg: Config{RuntimeDir: filepath.Join(dir, "run"), NodesDir: filepath.Join(dir, "nodes"), PeerUID: os.Getuid(), Version: "test"},
		procs: make(map[string]Process), change: make(chan struct{}),
	}
	for _, f := range change {
		f(r)
	}
	r.client = NewClient(SocketPath(r.cfg.RuntimeDir))
	t.Cleanup(r.cleanup)
	r.boot()
	return r
}

// openDir is a scratch directory that every user can get to.
func openDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// boot starts the guard's process and watches it.
func (r *rig) boot() {
	r.t.Helper()
	r.cmd = r.command()
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the guard answers", func() bool {
		h, err := r.client.Hello(context.Background())
		return err == nil && h.PID == r.cmd.Process.Pid
	})
	r.watch()
}

func (r *rig) command() *exec.Cmd {
	cfg, err := json.Marshal(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = []string{guardVariable + "=" + string(cfg), "FOO=daemon", "SSH_AUTH_SOCK=x", "NOTIFY_SOCKET=/nowhere", "PATH=/bin:/usr/bin", quickExit}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(r.logFile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { log.Close() })
	cmd.Stderr = log
	if r.before != nil {
		r.before(cmd)
	}
	return cmd
}

// said is what the guards of this rig have written.
func (r *rig) said() string { return readString(r.logFile) }

func (r *rig) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.done = cancel, make(chan struct{})
	listed := make(chan struct{})
	go func() {
		defer close(r.done)
		_ = r.client.Watch(ctx, func(m Message) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, p := range m.List {
				r.procs[p.Spawn] = p
			}
			if m.Process != nil {
				r.procs[m.Process.Spawn] = *m.Process
				r.seen = append(r.seen, *m.Process)
			}
			close(r.change)
			r.change = make(chan struct{})
			if m.Hello != nil {
				close(listed)
			}
			return nil
		})
	}()
	select {
	case <-listed:
	case <-time.After(patience):
		r.t.Fatal("no list from the guard")
	}
}

func (r *rig) unwatch() {
	r.stop()
	<-r.done
}

// kill ends the guard as no guard expects to be ended.
func (r *rig) kill() {
	r.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	r.waitGuard()
}

// waitGuard waits for the guard's end.
func (r *rig) waitGuard() error {
	err := r.cmd.Wait()
	r.unwatch()
	r.mu.Lock()
	clear(r.procs)
	r.mu.Unlock()
	r.cmd = nil
	return err
}

func (r *rig) cleanup() {
	if r.cmd == nil {
		r.boot() // to adopt what is left
	}
	cmd := r.cmd
	r.unwatch() // so that the guard doesn't wait for acknowledgements
	_ = cmd.Process.Signal(unix.SIGCONT)
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Error(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	if err := r.waitGuard(); err != nil {
		r.t.Errorf("the guard ended badly: %v\n%s", err, r.said())
	}
	timer.Stop()
	r.client.Close()
	if r.t.Failed() {
		r.t.Logf("the guard said:\n%s", r.said())
	}
	if s := r.said(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "illegal change") {
		r.t.Errorf("the guard said:\n%s", s)
	}
	for _, m := range leftCgroups(r.t, r.cfg.RuntimeDir) {
		r.t.Errorf("cgroup left behind: %s", m)
	}
	for _, p := range nodesOf(r.t, r.cfg.NodesDir) {
		r.t.Errorf("process left behind: %d", p)
		_ = unix.Kill(p, unix.SIGKILL)
	}
}

// leftCgroups returns the cgroups that carry the guard's name.
func leftCgroups(t testing.TB, runtimeDir string) []string {
	mounts, err := cgroupMounts()
	if err != nil {
		t.Fatal(err)
	}
	own, unified, err := ownCgroups()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, m := range mounts {
		path := unified
		if m.fstype == "cgroup" {
			path = own[m.options[len(m.options)-1]]
		}
		if dir, ok := beneathMount(m, path); ok {
			dir = filepath.Join(dir, cgroupName(runtimeDir))
			if _, err := os.Stat(dir); err == nil {
				left = append(left, dir)
			}
		}
	}
	return left
}

// nodesOf returns the live processes that work in the nodes directory.
func nodesOf(t testing.TB, nodesDir string) []int {
	procs, err := readProcesses()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		cwd, err := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/cwd")
		if err == nil && strings.HasPrefix(cwd, nodesDir) && !p.dead() {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// request is a start request for a fresh donation that runs command.
func (r *rig) request(command string, args ...string) StartRequest {
	req := StartRequest{
		Spawn: spawnID(), Donation: "don_" + randomID(), Command: command, Args: args, Env: []string{"PATH=/usr/bin:/bin"},
		StopSignal: int(unix.SIGTERM), Grace: 5 * time.Second, LogMax: 1 << 20,
	}
	if os.Getuid() == 0 {
		req.UID = DefaultUIDMin + uids.Add(1)
	}
	return req
}

func (r *rig) sh(script string) StartRequest { return r.request("/bin/sh", "-c", script) }

// script is a start request for a node that obeys the words.
func (r *rig) script(words string) StartRequest {
	req := r.request(binary, "script", words)
	req.Env = append(req.Env, quickExit)
	return req
}

// quickExit keeps the race detector from making every exit take a second.
const quickExit = "GORACE=atexit_sleep_ms=0"

func spawnID() string { return "spn_" + randomID() }

func randomID() string { return (newID() + newID())[:26] }

// again is the same donation's next spawn.
func again(req StartRequest) StartRequest {
	req.Spawn = spawnID()
	return req
}

// start starts a node that must start.
func (r *rig) start(req StartRequest) Process {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p, err := r.client.Start(ctx, req)
	if err != nil {
		r.t.Fatalf("start: %v", err)
	}
	return p
}

// refused starts a node that must not start, and returns the answer.
func (r *rig) refused(req StartRequest) *Error {
	r.t.Helper()
	_, err := r.client.Start(context.Background(), req)
	var e *Error
	if !errors.As(err, &e) {
		r.t.Fatalf("start: %v, want a refusal", err)
	}
	return e
}

func (r *rig) halt(spawn, reason string, force bool) {
	r.t.Helper()
	resp, err := r.client.Stop(context.Background(), StopRequest{Spawn: spawn, Reason: reason, Force: force})
	if err != nil || !resp.Found {
		r.t.Fatalf("stop: found %v, %v", resp.Found, err)
	}
}

// await waits until what the guard tells of a spawn satisfies cond.
func (r *rig) await(spawn, what string, cond func(Process) bool) Process {
	r.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		p, ok := r.procs[spawn]
		change := r.change
		r.mu.Unlock()
		if ok && cond(p) {
			return p
		}
		select {
		case <-change:
		case <-timer.C:
			r.t.Fatalf("%s: never %s; it is %+v", spawn, what, p)
		}
	}
}

func (r *rig) exit(spawn string) Exit {
	r.t.Helper()
	return *r.await(spawn, "exited", func(p Process) bool { return p.State == StateExited }).Exit
}

func (r *rig) ack(spawns ...string) {
	r.t.Helper()
	if err := r.client.Ack(context.Background(), spawns...); err != nil {
		r.t.Fatal(err)
	}
}

// output waits for a line in the node's log that contains text.
func (r *rig) output(req StartRequest, text string) string {
	r.t.Helper()
	var found string
	eventually(r.t, "the node writes "+text, func() bool {
		for line := range strings.Lines(readString(NodeLog(r.cfg.NodesDir, req.Donation))) {
			if strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
				found = strings.TrimSpace(line)
				return true
			}
		}
		return false
	})
	return found
}

// work is a path in the donation's workdir.
func (r *rig) work(req StartRequest, name string) string {
	return filepath.Join(Workdir(r.cfg.NodesDir, req.Donation), name)
}

// eventually waits for something that has no event of its own.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("it never happens that %s", what)
		}
	}
}

// freeze stops a process and returns when that has taken effect on every thread of it.
func freeze(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stopped", func() bool {
		tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
		return err == nil && !slices.ContainsFunc(tasks, func(path string) bool { return !strings.Contains(readString(path), ") T ") })
	})
}

func alive(pid int) bool {
	st, err := readStat(pid)
	return err == nil && !st.dead()
}

// fds counts a process's open descriptors.
func fds(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func threads(t testing.TB, pid int) int {
	t.Helper()
	f := strings.Fields(readString("/proc/" + strconv.Itoa(pid) + "/status"))
	i := slices.Index(f, "Threads:")
	if i < 0 {
		t.Fatal("no status of the guard")
	}
	n, _ := strconv.Atoi(f[i+1])
	return n
}
