// This file tests starts and stops against a real guard.

package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestP08_StartFailuresNameTheErrno(t *testing.T) {
	r := newRig(t)
	dir := openDir(t)
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct{ command, want string }{
		"missing":        {filepath.Join(dir, "missing"), "no such file or directory"},
		"not executable": {file("plain", "#!/bin/sh\n", 0o644), "permission denied"},
		"wrong format":   {file("noise", "\x00\x01\x02\x03", 0o755), "exec format error"},
		"no interpreter": {file("script", "#!/no/such/interpreter\n", 0o755), "interpreter"},
		"a directory":    {dir, "permission denied"},
		"not in PATH":    {"no-such-program-here", "no such program"},
		"below a file":   {filepath.Join(file("f", "", 0o755), "x"), "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			req := r.request(c.command)
			e := r.refused(req)
			if e.Code != CodeFailed || !strings.Contains(e.Message, c.want) {
				t.Errorf("%s: %s", e.Code, e.Message)
			}
			if again := r.refused(req); again.Message != e.Message {
				t.Errorf("sent again: %s", again.Message)
			}
			leavesNothing(t, r, req)
		})
	}
}

// leavesNothing checks that a failed start has undone what it did.
func leavesNothing(t *testing.T, r *rig, req StartRequest) {
	t.Helper()
	for _, path := range []string{filepath.Join(r.cfg.NodesDir, req.Donation), filepath.Join(spoolDir(r.cfg.RuntimeDir), req.Spawn+".json")} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, parent := range leftCgroups(t, r.cfg.RuntimeDir) {
		if _, err := os.Stat(filepath.Join(parent, req.Spawn)); err == nil {
			t.Errorf("cgroup %s/%s is left", parent, req.Spawn)
		}
	}
}

func TestP08_FailedRespawnKeepsTheWorkdir(t *testing.T) {
	r := newRig(t)
	req := r.sh("echo data > kept")
	r.start(req)
	r.exit(req.Spawn)
	req = again(req)
	req.Command = "/no/such"
	r.refused(req)
	if readString(r.work(req, "kept")) != "data\n" {
		t.Error("the workdir of an earlier spawn is gone")
	}
}

func TestP13_StartIsIdempotent(t *testing.T) {
	r := newRig(t)
	req := r.sh("echo run >> runs; sleep 1000")
	var wg sync.WaitGroup
	pids := make([]int, 8)
	for i := range pids {
		wg.Go(func() {
			p, err := r.client.Start(context.Background(), req)
			if err != nil {
				t.Error(err)
			}
			pids[i] = p.PID
		})
	}
	wg.Wait()
	for _, pid := range pids {
		if pid == 0 || pid != pids[0] {
			t.Errorf("pids %v", pids)
		}
	}
	if e := r.refused(again(req)); e.Code != CodeBusy {
		t.Errorf("a second spawn of a live donation: %+v", e)
	}
	if err := r.client.Reclaim(context.Background(), req.Donation); !hasCode(err, CodeBusy) {
		t.Errorf("reclaim of a live donation: %v", err)
	}
	if err := r.client.Ack(context.Background(), req.Spawn); !hasCode(err, CodeNotExited) {
		t.Errorf("ack of a live spawn: %v", err)
	}
	r.halt(req.Spawn, "terminate", true)
	r.exit(req.Spawn)
	r.ack(req.Spawn)
	if e := r.refused(req); e.Code != CodeFailed || !strings.Contains(e.Message, "has run already") {
		t.Errorf("a request that arrives after its spawn's end: %+v", e)
	}
	if got := readString(r.work(req, "runs")); got != "run\n" {
		t.Errorf("runs: %q", got)
	}
}

func TestP13_StopWhileStarting(t *testing.T) {
	r := newRig(t)
	for range 20 {
		req := r.sh("sleep 1000")
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = r.client.Start(context.Background(), req) })
		eventually(t, "the stop finds the spawn", func() bool {
			resp, err := r.client.Stop(context.Background(), StopRequest{Spawn: req.Spawn, Reason: "abandoned"})
			return err == nil && resp.Found
		})
		wg.Wait()
		if e := r.exit(req.Spawn); e.Signal != int(unix.SIGTERM) && e.Signal != int(unix.SIGKILL) {
			t.Errorf("exit %+v", e)
		}
	}
}

func hasCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

func TestF32_EveryStatusIsItsOwn(t *testing.T) {
	r := newRig(t)
	want := map[string]int{}
	var wg sync.WaitGroup
	for code := range 51 {
		// Ten orphans each are re-parented to the guard and must not be taken for nodes.
		req := r.sh(fmt.Sprintf("i=0; while [ $i -lt 10 ]; do (true &) ; i=$((i+1)); done; exit %d", code))
		want[req.Spawn] = code
		wg.Go(func() {
			if _, err := r.client.Start(context.Background(), req); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := map[string]int{}
	for spawn := range want {
		e := r.exit(spawn)
		if !e.Known || e.Signal != 0 {
			t.Errorf("%+v", e)
		}
		got[spawn] = e.Code
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	eventually(t, "there is no zombie", func() bool { return zombies(t, r.cmd.Process.Pid) == 0 })
}

func zombies(t *testing.T, parent int) int {
	procs, err := readProcesses()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range procs {
		if p.ppid == parent && p.dead() {
			n++
		}
	}
	return n
}

func TestP05_KillAfterTheGrace(t *testing.T) {
	r := newRig(t)
	req := r.sh("trap '' TERM; echo up; while :; do sleep 1000; done")
	req.Grace = 200 * time.Millisecond
	r.start(req)
	r.output(req, "up")
	begun := time.Now()
	r.halt(req.Spawn, "terminate", false)
	p := r.await(req.Spawn, "stopping", func(p Process) bool { return p.State == StateStopping })
	if p.StopReason != "terminate" || p.StopSince.IsZero() {
		t.Errorf("%+v", p)
	}
	e := r.exit(req.Spawn)
	if e.Signal != int(unix.SIGKILL) || time.Since(begun) < req.Grace {
		t.Errorf("exit %+v after %s", e, time.Since(begun))
	}
}

func TestF27_ForceEscalatesInTheGrace(t *testing.T) {
	r := newRig(t)
	req := r.sh("trap '' TERM; echo up; while :; do sleep 1000; done")
	req.Grace = time.Hour
	r.start(req)
	r.output(req, "up")
	r.halt(req.Spawn, "terminate", false)
	r.halt(req.Spawn, "impatient", true)
	if e := r.exit(req.Spawn); e.Signal != int(unix.SIGKILL) {
		t.Errorf("exit %+v", e)
	}
	if p := r.await(req.Spawn, "exited", func(p Process) bool { return p.Exit != nil }); p.StopReason != "terminate" || p.KillSince.IsZero() {
		t.Errorf("%+v", p)
	}
}

func TestF27_StoppedNodeHearsTheStop(t *testing.T) {
	r := newRig(t)
	req := r.sh("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done")
	p := r.start(req)
	r.output(req, "up")
	if err := unix.Kill(p.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.halt(req.Spawn, "terminate", false)
	if e := r.exit(req.Spawn); e.Code != 7 {
		t.Errorf("exit %+v", e)
	}
}

func TestF29_EndAtTheVeryEndOfTheGrace(t *testing.T) {
	r := newRig(t)
	for i := range 40 {
		req := r.sh(fmt.Sprintf("trap 'sleep 0.0%02d; exit 0' TERM; echo up; while :; do sleep 0.001; done", 10+i%10))
		req.Grace = 15 * time.Millisecond
		r.start(req)
		r.output(req, "up")
		r.halt(req.Spawn, "terminate", false)
		if e := r.exit(req.Spawn); !e.Known || e.Signal != 0 && e.Signal != int(unix.SIGKILL) {
			t.Errorf("exit %+v", e)
		}
		r.ack(req.Spawn)
	}
	resp, err := r.client.Stop(context.Background(), StopRequest{Spawn: spawnID(), Reason: "x"})
	if err != nil || resp.Found {
		t.Errorf("stop of an unknown spawn: %v, %v", resp, err)
	}
}

func TestF34_GrandchildThatHoldsTheLogDelaysNothing(t *testing.T) {
	r := newRig(t)
	req := r.sh("sleep 600 & exit 3")
	r.start(req)
	if e := r.exit(req.Spawn); e.Code != 3 || !e.Known {
		t.Errorf("exit %+v", e)
	}
}

func TestF23_TextFileBusyIsRetried(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(openDir(t), "fresh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	busy, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	req := r.request(path)
	e := r.refused(req)
	if e.Code != CodeTransient || !strings.Contains(e.Message, "text file busy") {
		t.Errorf("%+v", e)
	}
	leavesNothing(t, r, req)
	release := time.AfterFunc(10*time.Millisecond, func() { busy.Close() })
	defer release.Stop()
	r.start(req) // the same spawn: a passing failure isn't remembered
	r.exit(req.Spawn)
}

func TestF78_DescriptorsStayFlatOverCrashLoops(t *testing.T) {
	r := newRig(t)
	loop := func(rounds int) {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				req := r.sh("exit 1")
				for range rounds {
					req = again(req)
					if _, err := r.client.Start(context.Background(), req); err != nil {
						t.Error(err)
						return
					}
					r.exit(req.Spawn)
					r.ack(req.Spawn)
				}
			})
		}
		wg.Wait()
	}
	loop(2)
	r.client.Close()
	pid := r.cmd.Process.Pid
	before := fds(t, pid)
	loop(30)
	r.client.Close()
	eventually(t, "the descriptors are as before", func() bool { return fds(t, pid) <= before+2 })
}

func TestManyNodesFewThreads(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	reqs := make([]StartRequest, 300)
	for i := range reqs {
		reqs[i] = r.sh("sleep 1000")
		wg.Go(func() {
			if _, err := r.client.Start(context.Background(), reqs[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, req := range reqs {
		p := r.await(req.Spawn, "running", func(p Process) bool { return p.State == StateRunning })
		if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	for _, req := range reqs {
		if e := r.exit(req.Spawn); e.Signal != int(unix.SIGKILL) {
			t.Errorf("exit %+v", e)
		}
	}
	if n := threads(t, r.cmd.Process.Pid); n >= 20 {
		t.Errorf("the guard has %d threads", n)
	}
}

func TestF33_IdleNodesDieOfNoLoad(t *testing.T) {
	r := newRig(t)
	var idle []Process
	for range 50 {
		idle = append(idle, r.start(r.sh("sleep 1000")))
	}
	// A death signal tied to the thread that forked would strike when the runtime ends threads.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				req := r.sh("exit 0")
				if _, err := r.client.Start(context.Background(), req); err != nil {
					t.Error(err)
				}
				r.exit(req.Spawn)
				if _, err := r.client.Hello(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, p := range idle {
		if !sameProcess(p.PID, p.StartTime) {
			t.Errorf("pid %d is gone", p.PID)
		}
	}
}
