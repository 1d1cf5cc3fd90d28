// This file tests that a node's whole tree dies, with a cgroup and without one, and that nobody else does.

package guard

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// withTracking runs a test with each way of following a tree.
func withTracking(t *testing.T, test func(t *testing.T, r *rig)) {
	for _, tracking := range []string{TrackingCgroup, TrackingSession} {
		t.Run(tracking, func(t *testing.T) {
			if tracking == TrackingCgroup && !cgroupsWork(t) {
				t.Skip("no cgroup2 directory is writable here")
			}
			test(t, newRig(t, func(r *rig) { r.cfg.Tracking = tracking }))
		})
	}
}

func cgroupsWork(t *testing.T) bool {
	cfg, err := Config{RuntimeDir: t.TempDir(), NodesDir: t.TempDir()}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := findCgroups(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer groups.removeParents()
	return groups.parent != ""
}

// gone checks that no process works in the donation's workdir any more.
func (r *rig) gone(req StartRequest) {
	r.t.Helper()
	if pids := nodesOf(r.t, Workdir(r.cfg.NodesDir, req.Donation)); len(pids) > 0 {
		r.t.Errorf("still there: %v", pids)
	}
}

func TestP04_GrandchildrenDie(t *testing.T) {
	withTracking(t, func(t *testing.T, r *rig) {
		const family = `sh -c 'sleep 1000 & sleep 1000' & sleep 1000 & echo up; wait`
		for name, end := range map[string]func(StartRequest, Process){
			"on stop":  func(req StartRequest, _ Process) { r.halt(req.Spawn, "terminate", false) },
			"on crash": func(_ StartRequest, p Process) { _ = unix.Kill(p.PID, unix.SIGKILL) },
		} {
			t.Run(name, func(t *testing.T) {
				req := r.sh(family)
				p := r.start(req)
				r.output(req, "up")
				end(req, p)
				if e := r.exit(req.Spawn); !e.Known || e.Signal == 0 {
					t.Errorf("exit %+v", e)
				}
				r.gone(req)
			})
		}
	})
}

func TestF26_DoubleForkedDaemonDies(t *testing.T) {
	withTracking(t, func(t *testing.T, r *rig) {
		req := r.script("double-fork leave")
		for range 3 {
			req = again(req)
			r.start(req)
			if e := r.exit(req.Spawn); e.Code != 0 || !e.Known {
				t.Errorf("exit %+v", e)
			}
			pid, err := strconv.Atoi(readString(r.work(req, "daemon.pid")))
			if err != nil {
				t.Fatal(err)
			}
			if alive(pid) {
				t.Errorf("the daemon %d lives on", pid)
			}
			r.gone(req)
		}
	})
}

func TestP04_DaemonWithoutEnvironmentDies(t *testing.T) {
	withTracking(t, func(t *testing.T, r *rig) {
		// Its parent is alive when the stop comes: ancestry finds it though session and environment don't.
		req := r.script("double-fork stay clean")
		r.start(req)
		eventually(t, "the daemon is up", func() bool { return readString(r.work(req, "daemon.pid")) != "" })
		r.halt(req.Spawn, "terminate", true)
		r.exit(req.Spawn)
		r.gone(req)
	})
}

func TestF25_NothingIsLeftBeforeARespawn(t *testing.T) {
	withTracking(t, func(t *testing.T, r *rig) {
		req := r.sh("trap '' TERM; (trap '' TERM; sleep 1000) & exit 1")
		for range 5 {
			req = again(req)
			r.start(req) // busy would be fatal: the exit is told once the tree is gone
			r.exit(req.Spawn)
			r.gone(req)
			r.ack(req.Spawn)
		}
	})
}

func TestSessionTrackingFindsEveryExit(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.Tracking = TrackingSession })
	var reqs []StartRequest
	for range 30 {
		req := r.sh("sleep 1000 & sleep 0.2; exit 4")
		reqs = append(reqs, req)
		r.start(req)
	}
	for _, req := range reqs {
		if e := r.exit(req.Spawn); e.Code != 4 || !e.Known {
			t.Errorf("exit %+v", e)
		}
		r.gone(req)
	}
	eventually(t, "there is no zombie", func() bool { return zombies(t, r.cmd.Process.Pid) == 0 })
}

// stranger starts a process that has nothing to do with any guard.
func stranger(t *testing.T, session bool) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func TestP06_StrangerWithAReusedPIDIsLeftAlone(t *testing.T) {
	other := stranger(t, true)
	st, err := readStat(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openProcess(st.pid, st.start+1); !errors.Is(err, errGone) {
		t.Errorf("another start time: %v", err)
	}
	if err := killExactly(procStat{pid: st.pid, start: st.start - 1}); err != nil {
		t.Error(err)
	}
	// A leader that has the stranger's pid but another start time is a leader that is gone, and the session of
	// that number is the stranger's.
	tree := &sessionTree{scan: &scanner{}, spawn: spawnID(), leader: procStat{pid: st.pid, start: st.start - 1}, reaped: true}
	if left, err := tree.sweep(); left || err != nil {
		t.Errorf("sweep: %v, %v", left, err)
	}
	if !alive(st.pid) {
		t.Error("the stranger was killed")
	}
}

func TestP06_AdoptionChecksTheIdentity(t *testing.T) {
	other := stranger(t, true)
	st, err := readStat(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	req := r.sh("exit 0")
	r.start(req)
	r.exit(req.Spawn)
	rec, err := readRecord(spoolDir(r.cfg.RuntimeDir) + "/" + req.Spawn + ".json")
	if err != nil {
		t.Fatal(err)
	}
	r.kill()
	rec.Exit, rec.PID, rec.StartTime, rec.Cgroup = nil, st.pid, st.start-1, ""
	sp := &spool{dir: spoolDir(r.cfg.RuntimeDir)}
	if err := sp.write(rec); err != nil {
		t.Fatal(err)
	}
	r.boot()
	if e := r.exit(req.Spawn); e.Known || e.Message != lostWhileRunning {
		t.Errorf("exit %+v", e)
	}
	if !alive(st.pid) {
		t.Error("the stranger was killed")
	}
}

// TestF30 reuses the pid of a leader that has been reaped, in a pid namespace where pids can be chosen.
func TestF30_ReusedSessionNumberIsAStrangers(t *testing.T) {
	if os.Getenv("CADRE_TEST_PIDNS") == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestF30_ReusedSessionNumberIsAStrangers$", "-test.v")
		cmd.Env = append(os.Environ(), "CADRE_TEST_PIDNS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		if os.Getuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		}
		out, err := cmd.CombinedOutput()
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			t.Skipf("no pid namespace here: %v", pe)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	leader := exec.Command("/bin/sleep", "1000")
	leader.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	st, err := readStat(leader.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	leader.Process.Kill()
	leader.Wait()
	// Start times are in hundredths of a second: the stranger's must be another one.
	eventually(t, "the clock has moved on", func() bool { return bootTicks() > st.start+1 })
	tree := &sessionTree{scan: &scanner{}, spawn: spawnID(), leader: st}
	tree.leaderReaped(bootTicks())
	var other *exec.Cmd
	eventually(t, "the pid is used again", func() bool {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(st.pid-1)), 0o644); err != nil {
			t.Skipf("pids can't be chosen here: %v", err)
		}
		other = stranger(t, true)
		return other.Process.Pid == st.pid
	})
	for range 3 {
		if left, err := tree.sweep(); left || err != nil {
			t.Errorf("sweep: %v, %v", left, err)
		}
	}
	if !alive(other.Process.Pid) {
		t.Error("the stranger was killed")
	}
}
