// This file tests what happens to nodes when guards come and go.

package guard

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reapAdopted reaps pid, which became a child of this process when its guard was killed; an init does this
// elsewhere.
func reapAdopted(t *testing.T, pid int) {
	t.Helper()
	go func() { _, _ = unix.Wait4(pid, nil, 0, nil) }()
}

func TestP03_GuardIsKilledAndTheNextAdopts(t *testing.T) {
	withTracking(t, func(t *testing.T, r *rig) {
		stay, ends, family := r.sh("sleep 1000"), r.sh("mkfifo fifo; echo up; read x < fifo; exit 9"), r.sh("trap '' TERM; sleep 1000 & sleep 1000 & echo up; wait; wait")
		family.Grace = 100 * time.Millisecond
		before := map[string]Process{}
		for _, req := range []StartRequest{stay, ends, family} {
			before[req.Spawn] = r.start(req)
		}
		r.output(ends, "up")
		r.output(family, "up")
		r.kill()
		r.boot()
		for spawn, p := range before {
			got := r.await(spawn, "adopted", func(p Process) bool { return p.Adopted })
			if got.State != StateRunning || got.PID != p.PID || got.StartTime != p.StartTime || !got.StartedAt.Equal(p.StartedAt) || !alive(p.PID) {
				t.Errorf("before %+v, after %+v", p, got)
			}
			reapAdopted(t, p.PID)
		}
		if e := r.refused(again(stay)); e.Code != CodeBusy {
			t.Errorf("a second copy: %+v", e)
		}
		if p := r.start(stay); p.PID != before[stay.Spawn].PID {
			t.Errorf("the same request again: %+v", p)
		}
		// The status of a process that was never ours.
		writeFifo(t, r.work(ends, "fifo"))
		if e := r.exit(ends.Spawn); e.Known && e.Code != 9 || !e.Known && kernelTellsStatus(t) {
			t.Errorf("exit %+v", e)
		}
		r.halt(family.Spawn, "terminate", false)
		r.exit(family.Spawn)
		r.gone(family)
		// And it starts new ones.
		next := again(ends)
		next.Args = []string{"-c", "exit 0"}
		r.start(next)
		if e := r.exit(next.Spawn); !e.Known || e.Code != 0 {
			t.Errorf("exit %+v", e)
		}
	})
}

// kernelTellsStatus reports whether a pidfd tells the status of a reaped process (Linux 6.15).
func kernelTellsStatus(t *testing.T) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	return unix.IoctlPidfdInfo(fd, &info) == nil && info.Supported_mask&unix.PIDFD_INFO_EXIT != 0
}

func TestP03_HandOverTouchesNoNode(t *testing.T) {
	r := newRig(t)
	req := r.sh("trap 'echo touched' TERM HUP INT USR1 CHLD; sleep 1000; sleep 1000")
	req.Grace = 50 * time.Millisecond
	p := r.start(req)
	if err := r.cmd.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := r.waitGuard(); err != nil {
		t.Errorf("the guard ended badly: %v", err)
	}
	if _, err := os.Lstat(SocketPath(r.cfg.RuntimeDir)); !os.IsNotExist(err) {
		t.Errorf("socket: %v", err)
	}
	r.boot()
	got := r.await(req.Spawn, "adopted", func(p Process) bool { return p.Adopted })
	if got.PID != p.PID || !alive(p.PID) {
		t.Errorf("before %+v, after %+v", p, got)
	}
	if out := readString(NodeLog(r.cfg.NodesDir, req.Donation)); out != "" {
		t.Errorf("the node was touched: %s", out)
	}
	reapAdopted(t, p.PID)
}

func TestF07_GuardAndNodeAreKilled(t *testing.T) {
	withTracking(t, func(t *testing.T, r *rig) {
		req := r.sh("sleep 1000 & echo up; wait")
		p := r.start(req)
		r.output(req, "up")
		r.kill()
		if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		reapAdopted(t, p.PID)
		eventually(t, "the node is gone", func() bool { return !sameProcess(p.PID, p.StartTime) })
		r.boot()
		if e := r.exit(req.Spawn); e.Known || e.Message != lostWhileRunning {
			t.Errorf("exit %+v", e)
		}
		r.gone(req)
	})
}

func TestP02_ExitOutlivesTheGuardUntilItIsAcknowledged(t *testing.T) {
	r := newRig(t)
	req := r.sh("exit 5")
	r.start(req)
	before := r.exit(req.Spawn)
	r.kill()
	r.boot()
	if after := r.exit(req.Spawn); after.Code != 5 || !after.At.Equal(before.At) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	r.ack(req.Spawn)
	r.await(req.Spawn, "forgotten", func(p Process) bool { return p.State == StateForgotten })
	r.kill()
	r.boot()
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.procs[req.Spawn]; ok {
		t.Errorf("acknowledged, and back: %+v", p)
	}
}

func TestP02_NodesDontNoticeTheirClient(t *testing.T) {
	r := newRig(t)
	req := r.sh("sleep 1000")
	p := r.start(req)
	r.unwatch()
	r.client.Close()
	r.watch()
	if got := r.await(req.Spawn, "running", func(p Process) bool { return p.State == StateRunning }); got.PID != p.PID || got.Adopted {
		t.Errorf("before %+v, after %+v", p, got)
	}
}

func TestStopGoesOnUnderTheNextGuard(t *testing.T) {
	r := newRig(t)
	req := r.sh("trap '' TERM; echo up; while :; do sleep 1000; done")
	req.Grace = 300 * time.Millisecond
	p := r.start(req)
	r.output(req, "up")
	r.halt(req.Spawn, "drain", false)
	r.kill()
	r.boot()
	reapAdopted(t, p.PID)
	r.exit(req.Spawn)
	if got := r.await(req.Spawn, "exited", func(p Process) bool { return p.Exit != nil }); got.StopReason != "drain" {
		t.Errorf("%+v", got)
	}
}

func TestLostWhileStarting(t *testing.T) {
	r := newRig(t)
	r.kill()
	req := r.sh("")
	sp := &spool{dir: spoolDir(r.cfg.RuntimeDir)}
	if err := sp.write(record{Spawn: req.Spawn, Donation: req.Donation, BootID: bootID()}); err != nil {
		t.Fatal(err)
	}
	r.boot()
	if e := r.exit(req.Spawn); e.Known || e.Message != lostWhileStarting {
		t.Errorf("exit %+v", e)
	}
}

func TestBadSpoolFilesDontSinkTheRest(t *testing.T) {
	r := newRig(t)
	req := r.sh("sleep 1000")
	p := r.start(req)
	r.kill()
	dir := spoolDir(r.cfg.RuntimeDir)
	other := r.sh("")
	sp := &spool{dir: dir}
	if err := sp.write(record{Spawn: other.Spawn, Donation: other.Donation, BootID: "another boot", PID: 1}); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		spawnID() + ".json": "{", "nonsense.json": "{}", spawnID() + ".tmp": "half", spawnID() + ".json.x": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.boot()
	r.await(req.Spawn, "adopted", func(p Process) bool { return p.Adopted })
	reapAdopted(t, p.PID)
	bad, err := filepath.Glob(filepath.Join(dir, "*.bad"))
	if err != nil || len(bad) != 2 {
		t.Errorf("moved aside: %v, %v", bad, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.procs[other.Spawn]; ok {
		t.Error("a spawn of another boot is listed")
	}
}

func TestGuardStopEndsAllNodesInOrder(t *testing.T) {
	r := newRig(t)
	req := r.sh("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")
	p := r.start(req)
	r.output(req, "up")
	if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.exit(req.Spawn)
	r.ack(req.Spawn)
	if err := r.waitGuard(); err != nil {
		t.Error(err)
	}
	if alive(p.PID) || !strings.Contains(readString(NodeLog(r.cfg.NodesDir, req.Donation)), "bye") {
		t.Error("the node was not stopped in order")
	}
}

func TestGuardLeavesWhenIdle(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.ExitWhenIdle = true })
	req := r.sh("sleep 1000")
	r.start(req)
	r.halt(req.Spawn, "terminate", true)
	r.exit(req.Spawn)
	r.ack(req.Spawn)
	r.unwatch()
	if err := r.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, held, err := Holder(r.cfg.RuntimeDir); held || err != nil {
		t.Errorf("held %v, %v", held, err)
	}
	r.cfg.ExitWhenIdle = false
	r.boot()
}

func TestF31_DetachedGuardHasASessionOfItsOwn(t *testing.T) {
	r := newRig(t)
	if err := r.cmd.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := r.waitGuard(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(guardVariable, "{}")
	_, err := SpawnDetached(t.Context(), r.cfg.RuntimeDir, binary, nil)
	if err == nil || !strings.Contains(err.Error(), "must be named") {
		t.Errorf("a guard that ends: %v", err)
	}
	t.Setenv(guardVariable, strings.TrimPrefix(r.command().Env[0], guardVariable+"="))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	hello, err := SpawnDetached(ctx, r.cfg.RuntimeDir, binary, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := readStat(hello.PID)
	if err != nil {
		t.Fatal(err)
	}
	if st.session != hello.PID { // a Ctrl-C of the daemon's terminal doesn't reach it
		t.Errorf("session %d of the guard %d", st.session, hello.PID)
	}
	if err := unix.Kill(hello.PID, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guard is reaped", func() bool { return !sameProcess(hello.PID, st.start) })
	t.Setenv(guardVariable, "")
}

func TestF06_NodesOfEarlierGuardsAreStopped(t *testing.T) {
	r := newRig(t)
	req := r.sh("sleep 1000 & sleep 1000")
	p := r.start(req)
	for range 3 {
		r.kill()
		r.boot()
	}
	reapAdopted(t, p.PID)
	r.halt(req.Spawn, "terminate", false)
	r.exit(req.Spawn)
	r.gone(req)
}

func TestF14_StubbornNodeBlocksItsOwnRespawn(t *testing.T) {
	withTracking(t, func(t *testing.T, r *rig) {
		req := r.sh("trap '' TERM; echo up; while :; do sleep 1000; done")
		p := r.start(req)
		r.output(req, "up")
		if err := unix.Kill(p.PID, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		r.kill()
		r.boot()
		reapAdopted(t, p.PID)
		next := again(req)
		next.Args = []string{"-c", "exit 0"}
		if e := r.refused(next); e.Code != CodeBusy {
			t.Errorf("%+v", e)
		}
		r.halt(req.Spawn, "terminate", true)
		r.exit(req.Spawn)
		r.start(next)
		r.exit(next.Spawn)
	})
}

func TestF14_NodeWithoutASpoolFileIsKilled(t *testing.T) {
	if !cgroupsWork(t) {
		t.Skip("no cgroup2 directory is writable here")
	}
	r := newRig(t)
	req := r.sh("trap '' TERM; sleep 1000 & echo up; wait")
	p := r.start(req)
	r.output(req, "up")
	r.kill()
	if err := os.RemoveAll(spoolDir(r.cfg.RuntimeDir)); err != nil {
		t.Fatal(err)
	}
	reapAdopted(t, p.PID)
	r.boot()
	r.gone(req)
	next := again(req)
	next.Args = []string{"-c", "exit 0"}
	r.start(next)
	r.exit(next.Spawn)
}
