// This file tests a node's limits, its usage, and its notify socket.

package guard

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// withController skips the test if the guard can't enforce limits through the controller.
func (r *rig) withController(name string) {
	r.t.Helper()
	h, err := r.client.Hello(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if !slices.Contains(h.Controllers, name) {
		r.t.Skipf("no writable %s controller here", name)
	}
}

func TestF08_NodeOverItsMemoryDiesAlone(t *testing.T) {
	r := newRig(t)
	r.withController("memory")
	req := r.script("alloc 400")
	req.Limits.Memory = 128 << 20
	r.start(req)
	if e := r.exit(req.Spawn); e.Signal != int(unix.SIGKILL) || !e.OOM || !e.Known {
		t.Errorf("exit %+v", e)
	}
	if _, err := r.client.Hello(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestF66_PidsLimit(t *testing.T) {
	r := newRig(t)
	r.withController("pids")
	req := r.sh("i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done")
	req.Limits.Pids = 40
	r.start(req)
	e := r.exit(req.Spawn)
	if e.Code == 0 || e.Signal != 0 {
		t.Errorf("exit %+v", e)
	}
	r.output(req, "ork") // "Cannot fork"
	r.gone(req)
	// Another node isn't touched by it.
	other := r.sh("true & wait; exit 0")
	r.start(other)
	if e := r.exit(other.Spawn); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
}

func TestCPULimitAndUsage(t *testing.T) {
	r := newRig(t)
	req := r.sh("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	req.Limits.CPU = 0.5
	r.start(req)
	e := r.exit(req.Spawn)
	if e.Code != 0 || e.CPU <= 0 {
		t.Errorf("exit %+v", e)
	}
}

func TestRlimitsByWhatEnforcesThem(t *testing.T) {
	l := Limits{Memory: 1 << 20, Pids: 7}
	for name, c := range map[string]struct {
		own, memory, pids bool
		data, nproc       uint64
	}{
		"cgroups":                  {true, true, true, unlimited, unlimited},
		"no cgroups":               {true, false, false, 1 << 20, 7},
		"no cgroups, shared user":  {false, false, false, 1 << 20, unlimited},
		"only the memory's cgroup": {true, true, false, unlimited, 7},
	} {
		r := rlimits(l, c.own, c.memory, c.pids)
		if r[unix.RLIMIT_DATA].Max != c.data || r[unix.RLIMIT_NPROC].Max != c.nproc {
			t.Errorf("%s: data %d, nproc %d", name, r[unix.RLIMIT_DATA].Max, r[unix.RLIMIT_NPROC].Max)
		}
	}
}

func TestNotify(t *testing.T) {
	r := newRig(t)
	for message, want := range map[string]bool{"STATUS=x_READY=1": true, "READY=0": false, "MAINPID=1": false} {
		req := r.script("notify " + message)
		req.Notify = true
		p := r.start(req)
		if want {
			r.await(req.Spawn, "notified", func(p Process) bool { return p.Notified })
			r.kill()
			r.boot()
			got := r.await(req.Spawn, "adopted", func(p Process) bool { return p.Adopted })
			if !got.Notified {
				t.Error("the next guard has forgotten that it was notified")
			}
			reapAdopted(t, p.PID)
		}
		r.halt(req.Spawn, "terminate", false)
		r.exit(req.Spawn)
		if got := r.await(req.Spawn, "exited", func(p Process) bool { return p.Exit != nil }); got.Notified != want {
			t.Errorf("%s: %+v", message, got)
		}
	}
}

func TestNotifySurvivesTheGuard(t *testing.T) {
	r := newRig(t)
	// It notifies only once it is told to, which is under the next guard.
	req := r.sh("mkfifo fifo; echo up; read x < fifo; exec " + binary + " script 'notify READY=1'")
	req.Notify = true
	p := r.start(req)
	r.output(req, "up")
	r.kill()
	r.boot()
	reapAdopted(t, p.PID)
	writeFifo(t, r.work(req, "fifo"))
	r.await(req.Spawn, "notified", func(p Process) bool { return p.Notified })
}

func TestNotifyOfAStrangerIsIgnored(t *testing.T) {
	accept := fromNode(70001, "")
	if accept(unix.Ucred{Uid: 70002, Pid: 1}) || !accept(unix.Ucred{Uid: 70001, Pid: 1}) {
		t.Error("the sender's user isn't what decides")
	}
	// This very process is in no cgroup of that name.
	if fromNode(70001, "/x/"+spawnID())(unix.Ucred{Uid: 70001, Pid: int32(unix.Getpid())}) {
		t.Error("a sender outside of the node's cgroup is believed")
	}
}

func writeFifo(t *testing.T, path string) {
	t.Helper()
	if err := writeFile(path, "\n"); err != nil {
		t.Fatal(err)
	}
}
