// This file tests the connection: what the stream says, and what happens when it breaks.

package process

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// observed returns the states of the processes that are observed for don_1.
func observed(r *rig) map[donation.SpawnID]donation.ProcessState {
	got := map[donation.SpawnID]donation.ProcessState{}
	for _, p := range r.Observe("don_1").Processes {
		got[p.Spawn] = p.State
	}
	return got
}

func TestStreamIsTheView(t *testing.T) {
	f := newFakeGuard(t)
	exited := running("spn_0", 41)
	exited.State, exited.Exit = guard.StateExited, &guard.Exit{Known: true}
	f.list = []guard.Process{exited}
	r := connectedRig(t, f)
	if diff := cmp.Diff(map[donation.SpawnID]donation.ProcessState{"spn_0": donation.ProcessExited}, observed(r)); diff != "" {
		t.Error(diff)
	}
	p := running("spn_1", 42)
	for _, state := range []guard.State{guard.StateStarting, guard.StateRunning, guard.StateStopping, guard.StateExited} {
		p.State = state
		f.feed <- p
		if id := wait(t, r.changed); id != "don_1" {
			t.Errorf("changed: %s", id)
		}
		if got := observed(r)["spn_1"]; string(got) != string(state) {
			t.Errorf("%s is observed as %s", state, got)
		}
	}
	p.State = guard.StateForgotten
	f.feed <- p
	wait(t, r.changed)
	if diff := cmp.Diff(map[donation.SpawnID]donation.ProcessState{"spn_0": donation.ProcessExited}, observed(r)); diff != "" {
		t.Error(diff)
	}
	if got := r.Processes(); len(got) != 1 || got[0].Spawn != "spn_0" {
		t.Errorf("all processes: %+v", got)
	}
}

func TestReconnect(t *testing.T) {
	f := newFakeGuard(t)
	f.list = []guard.Process{running("spn_1", 42)}
	r := connectedRig(t, f)
	if err := r.Err(); err != nil {
		t.Errorf("connected, with error %v", err)
	}
	f.edit(func(s *script) { s.hello.Instance, s.list = "g2", []guard.Process{running("spn_2", 43)} })
	f.cut <- struct{}{}
	wait(t, r.disconnects)
	wait(t, r.connected)
	if diff := cmp.Diff(map[donation.SpawnID]donation.ProcessState{"spn_2": donation.ProcessRunning}, observed(r)); diff != "" {
		t.Error(diff)
	}
	if hello, ok := r.Hello(); !ok || hello.Instance != "g2" {
		t.Errorf("hello: %+v, %v", hello, ok)
	}
}

// TestEnsureBeforeEachAttempt: a guard that isn't there is started by the daemon before each look.
func TestEnsureBeforeEachAttempt(t *testing.T) {
	f := newFakeGuard(t)
	attempts := 0
	r := newRig(t, f.socket, func(context.Context) error {
		switch attempts++; attempts {
		case 1:
			return errors.New("no guard to be had")
		case 3:
			f.serve(t)
		}
		return nil
	})
	r.run(t)
	wait(t, r.connected)
	if attempts != 3 {
		t.Errorf("%d attempts", attempts)
	}
	select {
	case <-r.disconnects:
		t.Error("a disconnection without a connection")
	default:
	}
}

// TestP12_SilentGuardIsNoConnection: a stopped guard's socket still takes connections.
func TestP12_SilentGuardIsNoConnection(t *testing.T) {
	f := newFakeGuard(t)
	f.silent = true
	f.serve(t)
	ensured := make(chan struct{}, 100)
	r := newRig(t, f.socket, func(context.Context) error {
		ensured <- struct{}{}
		return nil
	})
	r.callTimeout(20 * time.Millisecond)
	r.run(t)
	wait(t, ensured)
	wait(t, ensured) // the first attempt has been given up
	if err := r.Err(); !errors.Is(err, errSilent) {
		t.Errorf("Err: %v", err)
	}
	if r.Observe("don_1").Connected {
		t.Error("connected to a guard that said nothing")
	}
}

func TestGuardOfAnotherProtocol(t *testing.T) {
	f := newFakeGuard(t)
	f.hello.Protocol = guard.Protocol + 1
	f.serve(t)
	attempts := make(chan struct{}, 100)
	r := newRig(t, f.socket, func(context.Context) error {
		attempts <- struct{}{}
		return nil
	})
	r.run(t)
	wait(t, attempts)
	wait(t, attempts)
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "protocol") {
		t.Errorf("Err: %v", err)
	}
}

// TestViewOrder: an answer and the stream may cross; what is further along stays.
func TestViewOrder(t *testing.T) {
	at := func(state guard.State, pid int) guard.Process {
		return guard.Process{Spawn: "spn_1", Donation: "don_1", State: state, PID: pid}
	}
	for _, tt := range []struct {
		name string
		do   func(v *view, epoch int)
		want guard.State
	}{
		{"the stream lags behind the answer", func(v *view, e int) {
			v.started(e, at(guard.StateRunning, 1))
			v.update(at(guard.StateStarting, 0))
		}, guard.StateRunning},
		{"the answer lags behind an exit", func(v *view, e int) {
			v.update(at(guard.StateExited, 1))
			v.started(e, at(guard.StateRunning, 1))
		}, guard.StateExited},
		{"the answer lags behind the end", func(v *view, e int) {
			v.update(at(guard.StateExited, 1))
			v.update(at(guard.StateForgotten, 1))
			v.started(e, at(guard.StateRunning, 1))
		}, ""},
		{"a second start's answer overtakes the failure of the first", func(v *view, e int) {
			v.update(at(guard.StateStarting, 0))
			v.started(e, at(guard.StateRunning, 1))
			v.update(at(guard.StateForgotten, 0))
		}, guard.StateRunning},
		{"a second start after the failure of the first", func(v *view, e int) {
			v.update(at(guard.StateStarting, 0))
			v.update(at(guard.StateForgotten, 0))
			v.started(e, at(guard.StateRunning, 1))
		}, guard.StateRunning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newView()
			v.connect(guard.Hello{}, nil)
			tt.do(v, v.beginStart())
			v.endStart()
			if p, _ := v.find("don_1", "spn_1"); p.State != tt.want {
				t.Errorf("got %q, want %q", p.State, tt.want)
			}
		})
	}
	t.Run("the stream knows more", func(t *testing.T) {
		v := newView()
		v.connect(guard.Hello{}, nil)
		epoch := v.beginStart()
		notified := at(guard.StateRunning, 1)
		notified.Notified = true
		v.update(notified)
		v.started(epoch, at(guard.StateRunning, 1))
		if p, _ := v.find("don_1", "spn_1"); !p.Notified {
			t.Error("the answer took the notification back")
		}
	})
}
