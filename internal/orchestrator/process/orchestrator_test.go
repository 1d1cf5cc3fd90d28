// This file tests the calls to the guard and what becomes of its answers.

package process

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

func TestStartIsRenderedAndSeenAtOnce(t *testing.T) {
	f := newFakeGuard(t)
	f.hello.Root, f.hello.UIDMin, f.hello.UIDMax = true, 70000, 70009
	got := make(chan guard.StartRequest, 1)
	f.start = func(_ context.Context, req guard.StartRequest) (guard.Process, error) {
		got <- req
		return running("spn_1", 42), nil
	}
	r := connectedRig(t, f)
	l := launch()
	l.UID = 70003
	p, err := r.Start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	want := guard.StartRequest{
		Spawn: "spn_1", Donation: "don_1", UID: 70003, Command: "prog", Args: []string{"1"},
		Env: []string{
			"CADRE_DONATION=don_1", "CADRE_SPAWN=spn_1", "HOME=/nodes/don_1/work", "LANG=C.UTF-8",
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		},
		StopSignal: 15, Grace: time.Second, LogMax: 10 << 20, TTL: time.Hour,
	}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	wantP := donation.Process{
		Spawn: "spn_1", Donation: "don_1", State: donation.ProcessRunning,
		Identity: donation.Identity{BootID: "boot", PID: 42, StartTime: 5},
	}
	if diff := cmp.Diff(wantP, p); diff != "" {
		t.Errorf("process (-want +got):\n%s", diff)
	}
	// The stream has said nothing yet.
	wantSeen := donation.Observation{Connected: true, Instance: "g1", BootID: "boot", Processes: []donation.Process{wantP}}
	if diff := cmp.Diff(wantSeen, r.Observe("don_1")); diff != "" {
		t.Errorf("observation (-want +got):\n%s", diff)
	}
	if got := r.UIDs(); got != (donation.UIDRange{Min: 70000, Max: 70009}) {
		t.Errorf("UIDs: %+v", got)
	}
	if got := r.LogPath("don_1"); got != guard.NodeLog("/nodes", "don_1") {
		t.Errorf("LogPath: %s", got)
	}
}

func TestStartErrors(t *testing.T) {
	f := newFakeGuard(t)
	reply := func(err error) {
		f.edit(func(s *script) {
			s.start = func(context.Context, guard.StartRequest) (guard.Process, error) { return guard.Process{}, err }
		})
	}
	r := connectedRig(t, f)
	for _, tt := range []struct {
		reply error
		is    error
	}{
		{&guard.Error{Code: guard.CodeBusy, Message: "busy"}, donation.ErrBusy},
		{&guard.Error{Code: guard.CodeTransient, Message: "text file busy"}, donation.ErrTransient},
		{&guard.Error{Code: guard.CodeStopping, Message: "leaving"}, donation.ErrTransient},
		{errHangUp, donation.ErrDisconnected},
		{&guard.Error{Code: guard.CodeFailed, Message: "no such file"}, nil},
		{&guard.Error{Code: guard.CodeRefused, Message: "uid 0"}, nil},
		{&guard.Error{Code: guard.CodeInvalid, Message: "malformed"}, nil},
	} {
		reply(tt.reply)
		_, err := r.Start(t.Context(), launch())
		var definite *donation.StartError
		if tt.is == nil {
			if !errors.As(err, &definite) || definite.Message != tt.reply.Error() {
				t.Errorf("%v: got %v, want a StartError with the guard's words", tt.reply, err)
			}
		} else if !errors.Is(err, tt.is) || errors.As(err, &definite) {
			t.Errorf("%v: got %v, want %v", tt.reply, err, tt.is)
		}
	}
	reply(&guard.Error{Code: "of_tomorrow", Message: "?"})
	var definite *donation.StartError
	if _, err := r.Start(t.Context(), launch()); err == nil || errors.As(err, &definite) {
		t.Errorf("a code of a newer guard must be indefinite: %v", err)
	}
}

// TestP13_StartWithoutAnswerIsIndefinite: whatever the reason, the answer may still come to pass.
func TestP13_StartWithoutAnswerIsIndefinite(t *testing.T) {
	f := newFakeGuard(t)
	f.start = func(ctx context.Context, _ guard.StartRequest) (guard.Process, error) {
		<-ctx.Done()
		return guard.Process{}, nil
	}
	r := connectedRig(t, f)
	var definite *donation.StartError
	t.Run("the guard hangs", func(t *testing.T) {
		r.callTimeout(30 * time.Millisecond)
		defer r.callTimeout(patience)
		_, err := r.Start(t.Context(), launch())
		if !errors.Is(err, donation.ErrDisconnected) || errors.As(err, &definite) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the caller leaves", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.Start(ctx, launch())
		if !errors.Is(err, context.Canceled) || errors.As(err, &definite) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the stream breaks meanwhile", func(t *testing.T) {
		f.edit(func(s *script) {
			s.start = func(context.Context, guard.StartRequest) (guard.Process, error) {
				f.cut <- struct{}{}
				<-r.disconnects
				return running("spn_1", 42), nil
			}
		})
		_, err := r.Start(t.Context(), launch())
		if !errors.Is(err, donation.ErrDisconnected) || errors.As(err, &definite) {
			t.Errorf("got %v", err)
		}
	})
}

func TestStartOfSpoiltTemplate(t *testing.T) {
	f := newFakeGuard(t)
	f.list = []guard.Process{running("spn_1", 42)}
	r := connectedRig(t, f)
	r.edit(func(cfg *config.Config, _ *config.Template) { delete(cfg.Templates, "x") })
	if p, err := r.Start(t.Context(), launch()); err != nil || p.Identity.PID != 42 {
		t.Errorf("a spawn that runs already: %+v, %v", p, err)
	}
	l := launch()
	l.Spawn.ID = "spn_2"
	_, err := r.Start(t.Context(), l)
	blocked(t, err, donation.BlockTemplate, `template "x" isn't configured`)
}

func TestOtherCalls(t *testing.T) {
	f := newFakeGuard(t)
	reply := func(err error) {
		f.edit(func(s *script) { s.reclaim = func(guard.ReclaimRequest) error { return err } })
	}
	reply(nil)
	r := connectedRig(t, f)
	ctx := t.Context()
	if err := r.Stop(ctx, "spn_1", donation.ReasonDrain, true); err != nil {
		t.Error(err)
	}
	if err := errors.Join(r.Ack(ctx), r.Ack(ctx, "spn_1", "spn_2"), r.Reclaim(ctx, "don_1"), r.Ping(ctx)); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	if diff := cmp.Diff([]guard.StopRequest{{Spawn: "spn_1", Reason: "drain", Force: true}}, f.stops); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"spn_1", "spn_2"}, f.acks); diff != "" {
		t.Error(diff)
	}
	f.mu.Unlock()
	reply(&guard.Error{Code: guard.CodeBusy, Message: "alive"})
	if err := r.Reclaim(ctx, "don_1"); !errors.Is(err, donation.ErrBusy) {
		t.Errorf("reclaim of a living one: %v", err)
	}
	reply(&guard.Error{Code: guard.CodeFailed, Message: "disk"})
	if err := r.Reclaim(ctx, "don_1"); err == nil || errors.Is(err, donation.ErrBusy) || errors.Is(err, donation.ErrDisconnected) {
		t.Errorf("reclaim that failed: %v", err)
	}
	reply(errHangUp)
	if err := r.Reclaim(ctx, "don_1"); !errors.Is(err, donation.ErrDisconnected) {
		t.Errorf("reclaim without an answer: %v", err)
	}
}

// TestExitsInTheDomainsTerms: who ended it and what is known decides the reason, and that what is charged.
func TestExitsInTheDomainsTerms(t *testing.T) {
	at := time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		stop string
		exit guard.Exit
		want donation.Exit
	}{
		{"", guard.Exit{Known: true, Code: 3, At: at, CPU: 1, MaxRSS: 2}, donation.Exit{Reason: donation.ReasonCrash, Known: true, Code: 3, At: at, CPU: 1, MaxRSS: 2}},
		{"", guard.Exit{Known: true, Signal: 9, OOM: true, At: at}, donation.Exit{Reason: donation.ReasonCrash, Known: true, Signal: 9, OOM: true, At: at}},
		{"", guard.Exit{At: at, Message: "guard was lost"}, donation.Exit{Reason: donation.ReasonGuardLost, At: at, Message: "guard was lost"}},
		{"terminate", guard.Exit{Known: true, Signal: 15, At: at}, donation.Exit{Reason: donation.ReasonTerminate, Known: true, Signal: 15, At: at}},
		{"guard-stop", guard.Exit{At: at}, donation.Exit{Reason: donation.ReasonGuardStop, At: at}},
	} {
		got := toProcess(process{Process: guard.Process{State: guard.StateExited, StopReason: tt.stop, Exit: &tt.exit}})
		if diff := cmp.Diff(&tt.want, got.Exit); diff != "" || got.State != donation.ProcessExited {
			t.Errorf("%q %+v (-want +got):\n%s", tt.stop, tt.exit, diff)
		}
	}
}

func TestDisconnectedKnowsNothing(t *testing.T) {
	r := newRig(t, newFakeGuard(t).socket, nil)
	if got := r.Observe("don_1"); got.Connected || len(r.Processes()) != 0 || r.UIDs() != (donation.UIDRange{}) || r.LogPath("don_1") != "" {
		t.Errorf("before the first connection: %+v", got)
	}
	_, startErr := r.Start(t.Context(), launch())
	_, readyErr := r.Ready(t.Context(), launch())
	for what, err := range map[string]error{
		"start": startErr, "ready": readyErr, "check": r.Check(t.Context(), launch()), "ping": r.Ping(t.Context()),
		"stop": r.Stop(t.Context(), "spn_1", donation.ReasonDrain, false), "ack": r.Ack(t.Context(), "spn_1"), "err": fmt.Errorf("%w: %w", donation.ErrDisconnected, r.Err()),
	} {
		if !errors.Is(err, donation.ErrDisconnected) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
