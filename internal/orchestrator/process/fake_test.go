// This file holds a guard made of paper: a real HTTP server on a real unix socket that speaks the wire types and
// does what a test tells it to.

package process

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// patience bounds every wait of a test; it ends only tests that fail.
const patience = 10 * time.Second

// fakeGuard answers as its script says.
type fakeGuard struct {
	socket string
	// feed goes out on the stream; cut ends it.
	feed chan guard.Process
	cut  chan struct{}

	mu sync.Mutex // guards all below; edit changes the script while the fake serves
	script
	stops []guard.StopRequest
	acks  []string
}

// script is what a fakeGuard answers.
type script struct {
	hello guard.Hello
	list  []guard.Process
	// start, reclaim and ready answer these calls.
	start   func(ctx context.Context, req guard.StartRequest) (guard.Process, error)
	reclaim func(guard.ReclaimRequest) error
	ready   func(guard.ReadyRequest) bool
	renew   func(guard.RenewRequest) (guard.RenewResponse, error)
	// silent makes the stream never begin.
	silent bool
}

// edit changes the script.
func (f *fakeGuard) edit(change func(*script)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.script)
}

func (f *fakeGuard) now() script {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.script
}

// errHangUp makes the fake close the connection without an answer.
var errHangUp = errors.New("hang up")

func newFakeGuard(t *testing.T) *fakeGuard {
	t.Helper()
	dir, err := os.MkdirTemp("", "guard") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &fakeGuard{
		socket: filepath.Join(dir, "s"),
		script: script{hello: guard.Hello{Instance: "g1", BootID: "boot", Protocol: guard.Protocol, PID: 7, NodesDir: "/nodes"}},
		feed:   make(chan guard.Process),
		cut:    make(chan struct{}),
	}
}

// serve begins to answer; the test's end ends it.
func (f *fakeGuard) serve(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/hello", func(w http.ResponseWriter, _ *http.Request) { answer(w, f.now().hello, nil) })
	mux.HandleFunc("GET /v1/watch", f.watch)
	mux.HandleFunc("POST /v1/start", func(w http.ResponseWriter, r *http.Request) {
		req := read[guard.StartRequest](t, r)
		p, err := f.now().start(r.Context(), req)
		answer(w, p, err)
	})
	mux.HandleFunc("POST /v1/stop", func(w http.ResponseWriter, r *http.Request) {
		req := read[guard.StopRequest](t, r)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stops = append(f.stops, req)
		answer(w, guard.StopResponse{Found: true}, nil)
	})
	mux.HandleFunc("POST /v1/ack", func(w http.ResponseWriter, r *http.Request) {
		req := read[guard.AckRequest](t, r)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.acks = append(f.acks, req.Spawns...)
		answer(w, struct{}{}, nil)
	})
	mux.HandleFunc("POST /v1/reclaim", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, f.now().reclaim(read[guard.ReclaimRequest](t, r)))
	})
	mux.HandleFunc("POST /v1/renew", func(w http.ResponseWriter, r *http.Request) {
		resp, err := f.now().renew(read[guard.RenewRequest](t, r))
		answer(w, resp, err)
	})
	mux.HandleFunc("POST /v1/ready", func(w http.ResponseWriter, r *http.Request) {
		answer(w, guard.ReadyResponse{Ready: f.now().ready(read[guard.ReadyRequest](t, r))}, nil)
	})
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
}

func (f *fakeGuard) watch(w http.ResponseWriter, r *http.Request) {
	script := f.now()
	if script.silent {
		<-r.Context().Done()
		return
	}
	enc := json.NewEncoder(w)
	send := func(m guard.Message) {
		_ = enc.Encode(m)
		_ = http.NewResponseController(w).Flush()
	}
	send(guard.Message{Hello: &script.hello, List: script.list})
	for {
		select {
		case p := <-f.feed:
			send(guard.Message{Process: &p})
		case <-f.cut:
			panic(http.ErrAbortHandler) // breaks the connection in the middle of the stream
		case <-r.Context().Done():
			return
		}
	}
}

func read[T any](t *testing.T, r *http.Request) T {
	var v T
	b, err := io.ReadAll(r.Body) // to the end, or the server doesn't see the client go
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Errorf("request %s: %v", r.URL.Path, err)
	}
	return v
}

func answer(w http.ResponseWriter, v any, err error) {
	var refusal *guard.Error
	switch {
	case errors.Is(err, errHangUp):
		panic(http.ErrAbortHandler)
	case errors.As(err, &refusal):
		w.WriteHeader(http.StatusConflict)
		v = refusal
	}
	_ = json.NewEncoder(w).Encode(v)
}

// rig is an Orchestrator under test with its callbacks as channels.
type rig struct {
	*Orchestrator
	cfg                    atomic.Pointer[config.Config]
	changed                chan donation.ID
	connected, disconnects chan struct{}
}

// newRig makes an Orchestrator for the guard behind the socket with one template, "x".
func newRig(t *testing.T, socket string, ensure func(context.Context) error) *rig {
	t.Helper()
	cfg := config.Defaults()
	cfg.Templates = map[string]*config.Template{"x": {
		Name: "x", Command: "prog", Args: []string{"{{.Port.http}}"}, Ports: []string{"http"},
		Stop: config.Stop{Signal: "SIGTERM", Grace: config.Duration(time.Second)},
	}}
	r := &rig{changed: make(chan donation.ID, 100), connected: make(chan struct{}, 100), disconnects: make(chan struct{}, 100)}
	r.cfg.Store(&cfg)
	r.Orchestrator = New(Options{
		Socket: socket, Config: r.cfg.Load, Logger: zaptest.NewLogger(t), Ensure: ensure,
		OnChange:     func(id donation.ID) { r.changed <- id },
		OnConnect:    func() { r.connected <- struct{}{} },
		OnDisconnect: func() { r.disconnects <- struct{}{} },
	})
	return r
}

// edit swaps the configuration as a reload does; template x is there to be changed.
func (r *rig) edit(change func(cfg *config.Config, x *config.Template)) {
	cfg := *r.cfg.Load()
	cfg.Templates = maps.Clone(cfg.Templates)
	var x config.Template
	if cfg.Templates["x"] != nil {
		x = *cfg.Templates["x"]
		cfg.Templates["x"] = &x
	}
	change(&cfg, &x)
	r.cfg.Store(&cfg)
}

// callTimeout changes how long a call to the guard may take.
func (r *rig) callTimeout(d time.Duration) {
	r.edit(func(cfg *config.Config, _ *config.Template) { cfg.Guard.CallTimeout = config.Duration(d) })
}

// run runs it until the test ends.
func (r *rig) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// connectedRig is a rig connected to a fake guard.
func connectedRig(t *testing.T, f *fakeGuard) *rig {
	t.Helper()
	f.serve(t)
	r := newRig(t, f.socket, nil)
	r.run(t)
	wait(t, r.connected)
	return r
}

// wait receives from a channel.
func wait[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func launch() donation.Launch {
	return donation.Launch{
		Donation: "don_1",
		Spawn:    donation.Spawn{ID: "spn_1", StartupToken: donation.NewSecret("s")},
		Request:  donation.Request{Template: "x"},
		Ports:    map[string]int{"http": 1},
	}
}

func running(spawn string, pid int) guard.Process {
	return guard.Process{Spawn: spawn, Donation: "don_1", State: guard.StateRunning, PID: pid, BootID: "boot", StartTime: 5}
}
