// This file tests what stands in the way of a launch before it is charged, and readiness.

package process

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func blocked(t *testing.T, err error, kind donation.BlockKind, parts ...string) {
	t.Helper()
	var b *donation.BlockedError
	if !errors.As(err, &b) || b.Kind != kind {
		t.Fatalf("got %v, want %s", err, kind)
	}
	for _, part := range parts {
		if !strings.Contains(b.Message, part) {
			t.Errorf("%q lacks %q", b.Message, part)
		}
	}
}

func TestS29_TemplateGone(t *testing.T) {
	r := connectedRig(t, newFakeGuard(t))
	l := launch()
	l.Ports["http"] = freePort(t)
	if err := r.Check(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	x := r.cfg.Load().Templates["x"]
	r.edit(func(cfg *config.Config, _ *config.Template) { delete(cfg.Templates, "x") })
	blocked(t, r.Check(t.Context(), l), donation.BlockTemplate, `template "x" isn't configured`)
	if _, err := r.Plan("x"); donation.CodeOf(err) != donation.CodeUnknownTemplate {
		t.Errorf("Plan: %v", err)
	}
	r.edit(func(cfg *config.Config, _ *config.Template) { cfg.Templates["x"] = x })
	if err := r.Check(t.Context(), l); err != nil {
		t.Errorf("the template is back: %v", err)
	}
	plan, err := r.Plan("x")
	if diff := cmp.Diff(donation.Plan{PortNames: []string{"http"}, Hash: x.Hash()}, plan); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestS07_InputsThatCannotBeRendered(t *testing.T) {
	r := connectedRig(t, newFakeGuard(t))
	l := launch()
	l.Ports = nil
	blocked(t, r.Check(t.Context(), l), donation.BlockTemplate, "template x, args[0]", ".Port.http")
}

func TestP10_StrangerOnStickyPort(t *testing.T) {
	f := newFakeGuard(t)
	r := connectedRig(t, f)
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	l := launch()
	l.Ports["http"] = stranger.Addr().(*net.TCPAddr).Port
	if r.PortFree(l.Ports["http"]) {
		t.Error("free")
	}
	blocked(t, r.Check(t.Context(), l), donation.BlockPort, fmt.Sprintf("port http (%d) is held by pid %d (", l.Ports["http"], os.Getpid()))
	// The node of this very donation is no stranger.
	f.feed <- running("spn_0", 42)
	wait(t, r.changed)
	if err := r.Check(t.Context(), l); err != nil {
		t.Errorf("its own node holds the port: %v", err)
	}
}

func TestUserOfTemplate(t *testing.T) {
	me := uint32(os.Getuid())
	for _, tt := range []struct {
		name, user string
		root       bool
		uid        uint32
		err        string
	}{
		{"number", "70005", true, 70005, ""},
		{"name", "root", true, 0, ""},
		{"unknown", "nobody-by-this-name", true, 0, `template x, user: there is no user "nobody-by-this-name" on this machine`},
		{"the guard's own", fmt.Sprint(me), false, 0, ""},
		{"another without root", fmt.Sprint(me + 1), false, 0, "template x, user: only a guard that runs as root can start nodes as"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			uid, err := userOf(&config.Template{Name: "x", User: tt.user}, guard.Hello{Root: tt.root})
			if uid != tt.uid || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("%d, %v", uid, err)
			}
		})
	}
}

func TestReadiness(t *testing.T) {
	f := newFakeGuard(t)
	asked := make(chan guard.ReadyRequest, 1)
	f.ready = func(req guard.ReadyRequest) bool {
		asked <- req
		return true
	}
	r := connectedRig(t, f)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/moved":
			http.Redirect(w, req, "/ok", http.StatusFound)
		case "/starting":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	open, shut := web.Listener.Addr().(*net.TCPAddr).Port, freePort(t)

	ready := func(want bool, cond config.Ready, port int) {
		t.Helper()
		r.edit(func(_ *config.Config, x *config.Template) { x.Ready = cond })
		l := launch()
		l.Ports["http"] = port
		if got, err := r.Ready(t.Context(), l); err != nil || got != want {
			t.Errorf("%+v on port %d: %v, %v", cond, port, got, err)
		}
	}
	ready(false, config.Ready{}, open) // it doesn't run yet
	ready(false, config.Ready{TCP: "http"}, open)
	f.feed <- running("spn_1", 42)
	wait(t, r.changed)

	ready(true, config.Ready{}, shut)
	ready(true, config.Ready{TCP: "http"}, open)
	ready(false, config.Ready{TCP: "http"}, shut)
	ready(true, config.Ready{HTTP: "/ok", Port: "http"}, open)
	ready(false, config.Ready{HTTP: "/starting", Port: "http"}, open)
	ready(false, config.Ready{HTTP: "/moved", Port: "http"}, open)
	ready(false, config.Ready{HTTP: "/ok", Port: "http"}, shut)
	ready(true, config.Ready{File: ".started", Content: "{{.StartupToken}}"}, shut)
	if diff := cmp.Diff(guard.ReadyRequest{Spawn: "spn_1", Path: ".started", Content: "s"}, <-asked); diff != "" {
		t.Error(diff)
	}
	ready(false, config.Ready{Notify: true}, shut)
	p := running("spn_1", 42)
	p.Notified = true
	f.feed <- p
	wait(t, r.changed)
	ready(true, config.Ready{Notify: true}, shut)
	p.State = guard.StateStopping
	f.feed <- p
	wait(t, r.changed)
	ready(false, config.Ready{Notify: true}, shut)
}
