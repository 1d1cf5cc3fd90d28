// This file tests the client commands against a server whose daemon obeys the test: pages, waits and codes
// that the scripts with a real daemon can't bring about at will.

package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

// fakeDaemon answers with its views, in order for as long as there are several of one donation.
type fakeDaemon struct {
	mu       sync.Mutex // guards what follows
	overview api.Overview
	views    map[string][]api.View
	err      error
	events   []donation.Event
	changed  chan struct{}
	asked    []string
}

func (f *fakeDaemon) note(format string, args ...any) {
	f.asked = append(f.asked, fmt.Sprintf(format, args...))
}

// next returns the donation's next view, and lets a watcher know that there is another.
func (f *fakeDaemon) next(ref string) (api.View, error) {
	if f.err != nil {
		return api.View{}, f.err
	}
	list := f.views[ref]
	if len(list) == 0 {
		return api.View{}, donation.Errorf(donation.CodeNotFound, "no donation is called %s", ref)
	}
	if len(list) > 1 {
		f.views[ref] = list[1:]
		f.events = append(f.events, donation.Event{Seq: int64(len(f.events) + 1), Donation: list[0].ID, Kind: "changed"})
		if f.changed != nil {
			close(f.changed)
			f.changed = nil
		}
	}
	return list[0], nil
}

func (f *fakeDaemon) locked() func() { f.mu.Lock(); return f.mu.Unlock }

func (f *fakeDaemon) Overview(context.Context) api.Overview { defer f.locked()(); return f.overview }

func (f *fakeDaemon) Donations(_ context.Context, all bool) ([]api.View, error) {
	defer f.locked()()
	f.note("list all=%v", all)
	var list []api.View
	for _, v := range f.views {
		list = append(list, v[0])
	}
	slices.SortFunc(list, func(a, b api.View) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list, f.err
}

func (f *fakeDaemon) Donation(_ context.Context, ref string) (api.View, error) {
	defer f.locked()()
	return f.next(ref)
}

func (f *fakeDaemon) Donate(_ context.Context, r donation.Request) (api.View, error) {
	defer f.locked()()
	f.note("donate %s %s %s %v %v %s", r.Template, r.Name, r.PartyID, r.OwnerKeys, r.BootstrapNodes, r.Profile)
	return f.next(r.Name)
}

func (f *fakeDaemon) act(verb, ref string) (api.View, error) {
	defer f.locked()()
	f.note("%s %s", verb, ref)
	return f.next(ref)
}

func (f *fakeDaemon) Terminate(_ context.Context, ref string, force bool) (api.View, error) {
	return f.act(fmt.Sprintf("terminate force=%v", force), ref)
}

func (f *fakeDaemon) Restart(_ context.Context, ref string) (api.View, error) {
	return f.act("restart", ref)
}

func (f *fakeDaemon) Retry(_ context.Context, ref string) (api.View, error) {
	return f.act("retry", ref)
}

func (f *fakeDaemon) Logs(_ context.Context, ref string, lines int, _ bool, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s %d\n", ref, lines)
	return err
}

func (f *fakeDaemon) Events(_ context.Context, _ string, after int64, limit int) ([]donation.Event, error) {
	defer f.locked()()
	return f.events[min(int(after), len(f.events)):min(int(after)+limit, len(f.events))], f.err
}

func (f *fakeDaemon) LastSeq(context.Context) (int64, error) {
	defer f.locked()()
	return 0, nil // whatever comes is new to a watcher
}

func (f *fakeDaemon) Changed() <-chan struct{} {
	defer f.locked()()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// serve runs the fake and returns how to run a command against it: exit code, stdout, stderr.
func serve(t *testing.T, f *fakeDaemon) func(args ...string) (int, string, string) {
	t.Helper()
	if f.overview.Mode == "" {
		f.overview = api.Overview{Mode: "running", Guard: api.GuardState{State: "connected"}, Templates: []string{"redis", "reference"}}
	}
	dir := t.TempDir()
	e, err := api.Open(filepath.Join(dir, "admin.sock"), api.NewServer(f, zap.NewNop()), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return func(args ...string) (int, string, string) {
		var out, errOut strings.Builder
		code := Main(append([]string{"--state-dir", dir, "--runtime-dir", dir}, args...), &out, &errOut)
		return code, out.String(), errOut.String()
	}
}

// seededView is a donation that runs well.
func seededView(id, name string) api.View {
	started := time.Now().Add(-192500 * time.Millisecond)
	return api.View{
		ID: donation.ID(id), Name: name, Template: "redis", Status: donation.Seeded, Running: true, Ready: true, PID: 4711,
		Spawn: "spn_1", StartedAt: &started, Generation: 2, Attempts: 1, MaxAttempts: 5, Ports: map[string]int{"b": 2, "a": 1},
		UID: 70001, Workdir: "/nodes/" + id + "/work", CreatedAt: started, UpdatedAt: started,
		LastExit: &api.ExitView{Words: "killed by SIGKILL", Known: true, Signal: 9, At: started},
	}
}

func TestStatusPages(t *testing.T) {
	down := seededView("don_b", "")
	next := time.Now().Add(7500 * time.Millisecond)
	down.Running, down.Ready, down.NextAttempt, down.Hold = false, false, &next, "port 1 is held\nby a stranger\x1b[2J"
	f := &fakeDaemon{views: map[string][]api.View{"a": {seededView("don_a", "cache")}, "b": {down}}}
	run := serve(t, f)

	code, out, errOut := run("status")
	lines := strings.Split(out, "\n")
	if code != 0 || errOut != "" || len(lines) != 4 {
		t.Fatalf("status: %d\n%s%s", code, out, errOut)
	}
	for i, want := range []string{
		"ID NAME TEMPLATE STATUS PID UPTIME ATTEMPTS PORTS LEASE LAST EXIT NOTE",
		"don_a cache redis seeded 4711 3m12s 1/5 a 1, b 2 - killed by SIGKILL, 3m12s ago -",
		"don_b - redis seeded, down - - 1/5 (next in 8s) a 1, b 2 - killed by SIGKILL, 3m12s ago port 1 is held by a stranger [2J",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d:\n got %s\nwant %s", i, got, want)
		}
	}
	if _, out, _ = run("status", "-o", "wide"); !strings.Contains(out, "70001") || !strings.Contains(out, "/nodes/don_a/work") {
		t.Errorf("wide: %s", out)
	}
	if _, out, _ = run("status", "-o", "json"); !strings.HasPrefix(out, "[") || !strings.Contains(out, `"pid": 4711`) || !strings.Contains(out, "T") {
		t.Errorf("json: %s", out)
	}
	if code, out, _ = run("status", "a"); code != 0 || !strings.Contains(out, "pid 4711, up 3m12s") {
		t.Errorf("detail: %d %s", code, out)
	}
	if code, out, errOut = run("status", "nosuch", "-o", "json"); code != exitNotFound || out != "" || strings.Count(errOut, "nosuch") != 1 {
		t.Errorf("unknown: %d %q %q", code, out, errOut)
	}
	run("status", "--all")
	if !slices.Contains(f.asked, "list all=true") {
		t.Errorf("asked: %v", f.asked)
	}
}

func TestStatusTellsACaretakersFault(t *testing.T) {
	f := &fakeDaemon{
		overview: api.Overview{Mode: "caretaker", Faults: []api.Fault{{Code: "config", Message: "config.toml:3: unknown key"}}},
		err:      donation.Errorf(donation.CodeUnavailable, "nothing is decided before the configuration is mended"),
	}
	code, out, errOut := serve(t, f)("status")
	if code != exitUnavailable || out != "" || !strings.Contains(errOut, "! the daemon is a caretaker") ||
		!strings.Contains(errOut, "! config.toml:3: unknown key") || !strings.Contains(errOut, "cadre-hostd: nothing is decided") {
		t.Errorf("%d %q %q", code, out, errOut)
	}
}

func TestStatusOfNothingAndOfASilentGuard(t *testing.T) {
	code, out, errOut := serve(t, &fakeDaemon{})("status")
	if code != 0 || out != "" || !strings.Contains(errOut, "no donations; lend a node with 'cadre-hostd donate'") {
		t.Errorf("%d %q %q", code, out, errOut)
	}
	f := &fakeDaemon{overview: api.Overview{Mode: "running", Guard: api.GuardState{State: "silent", PID: 77}}}
	if code, _, errOut = serve(t, f)("status"); code != 0 || !strings.Contains(errOut, "! the guard (pid 77) does not answer") {
		t.Errorf("%d %q", code, errOut)
	}
}

func TestDonateWaitsUntilReady(t *testing.T) {
	fresh := seededView("don_a", "cache")
	fresh.Ready, fresh.LastExit = false, nil
	dead := fresh
	dead.Running, dead.LastExit = false, &api.ExitView{Words: "exit status 1", At: time.Now()}
	again := dead
	again.Running, again.Spawn, again.PID = true, "spn_2", 4712
	ready := again
	ready.Ready = true
	key := donation.ID("don_a")
	f := &fakeDaemon{views: map[string][]api.View{"cache": {fresh}, string(key): {dead, again, ready}}}
	code, out, errOut := serve(t, f)("donate", "-t", "redis", "--name", "cache", "--wait", "--party-id", "p",
		"--owner-key", "k1", "--owner-key", "k2", "--bootstrap", "/b", "--profile", "storage")
	if code != 0 || out != "don_a\n" {
		t.Errorf("%d %q %q", code, out, errOut)
	}
	at := 0
	for _, want := range []string{"provisioned don_a (cache)", "started, pid 4711", "ended: exit status 1", "started, pid 4712", "ready, "} {
		i := strings.Index(errOut[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing or out of order in %q", want, errOut)
		}
		at += i
	}
	if want := "donate redis cache p [k1 k2] [/b] storage"; !slices.Contains(f.asked, want) {
		t.Errorf("asked %v, want %s", f.asked, want)
	}
}

func TestDonateWaitFails(t *testing.T) {
	fresh := seededView("don_a", "cache")
	fresh.Ready = false
	gone := fresh
	gone.Running, gone.Status, gone.Message = false, donation.Failed, "respawn gave up after 5 attempts"
	for words, second := range map[string]api.View{"gave up after 5 attempts": gone, "is not ready yet": fresh} {
		f := &fakeDaemon{views: map[string][]api.View{"cache": {fresh}, "don_a": {second}}}
		code, out, errOut := serve(t, f)("donate", "--name", "cache", "--wait", "--timeout", "1500ms")
		if code != exitSpawnFailed || out != "" || !strings.Contains(errOut, words) || !strings.Contains(errOut, "killed by SIGKILL") {
			t.Errorf("%s: %d %q %q", words, code, out, errOut)
		}
	}
}

func TestF73_EveryRefusalHasItsCode(t *testing.T) {
	for code, exit := range domainExits {
		f := &fakeDaemon{err: donation.Errorf(code, "the thing, the reason and the remedy")}
		run := serve(t, f)
		for _, args := range [][]string{{"status"}, {"donate"}, {"terminate", "x"}, {"restart", "x"}, {"retry", "x", "-o", "json"}, {"events"}} {
			got, out, errOut := run(args...)
			if got != exit || out != "" || errOut != "cadre-hostd: the thing, the reason and the remedy\n" {
				t.Errorf("%s, %v: %d %q %q", code, args, got, out, errOut)
			}
		}
	}
}

func TestTerminateTellsOfEach(t *testing.T) {
	f := &fakeDaemon{views: map[string][]api.View{"a": {seededView("don_a", "cache")}, "b": {seededView("don_b", "")}}}
	run := serve(t, f)
	code, out, errOut := run("terminate", "a", "nosuch", "b", "nosuch2", "--force")
	if code != exitNotFound || out != "terminated don_a (cache)\nterminated don_b\n" ||
		errOut != "cadre-hostd: no donation is called nosuch\ncadre-hostd: no donation is called nosuch2\n" {
		t.Errorf("%d %q %q", code, out, errOut)
	}
	if !slices.Contains(f.asked, "terminate force=true a") {
		t.Errorf("asked %v", f.asked)
	}
	if code, out, _ = run("restart", "a", "b", "-o", "json"); code != 0 || !strings.HasPrefix(out, "[") {
		t.Errorf("restart: %d %s", code, out)
	}
	if code, out, _ = run("retry", "a", "-o", "json"); code != 0 || !strings.HasPrefix(out, "{") {
		t.Errorf("retry: %d %s", code, out)
	}
}

func TestEventsAndLogsAndCompletion(t *testing.T) {
	f := &fakeDaemon{views: map[string][]api.View{"a": {seededView("don_a", "cache")}}}
	for i := range api.MaxEvents + 5 {
		f.events = append(f.events, donation.Event{Seq: int64(i + 1), Donation: "don_a", Kind: "spawn.exited", Detail: "killed"})
	}
	run := serve(t, f)
	if code, out, _ := run("events", "--since", "2"); code != 0 || strings.Count(out, "\n") != api.MaxEvents+3 || !strings.HasPrefix(out, "     3  ") {
		t.Errorf("events: %d, %d lines", code, strings.Count(out, "\n"))
	}
	if _, out, _ := run("events", "-o", "json", "--since", "1004"); !strings.HasPrefix(out, `{"seq":1005,`) {
		t.Errorf("events as JSON: %s", out)
	}
	if code, out, _ := run("logs", "a", "-n", "3"); code != 0 || out != "a 3\n" {
		t.Errorf("logs: %d %q", code, out)
	}
	if _, out, _ := run("__complete", "terminate", ""); !strings.Contains(out, "cache\tredis, seeded\ndon_a\tredis, seeded\n") {
		t.Errorf("refs: %q", out)
	}
	if _, out, _ := run("__complete", "terminate", "cache", ""); strings.Contains(out, "cache\t") {
		t.Errorf("a ref that is there already: %q", out)
	}
	if _, out, _ := run("__complete", "donate", "--template", ""); !strings.Contains(out, "redis\nreference\n") {
		t.Errorf("templates: %q", out)
	}
}

func TestStatusWatchPrintsEachChangeOnce(t *testing.T) {
	first := seededView("don_a", "cache")
	second, last := first, first
	second.PID, last.PID = 4712, 4713
	f := &fakeDaemon{views: map[string][]api.View{"cache": {first, first, second, last}}}
	dir := t.TempDir()
	e, err := api.Open(filepath.Join(dir, "admin.sock"), api.NewServer(f, zap.NewNop()), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	pages := &pageWriter{seen: make(chan string, 10)}
	ended := make(chan int, 1)
	go func() {
		ended <- Main([]string{"--state-dir", dir, "--runtime-dir", dir, "status", "--watch", "cache"}, pages, io.Discard)
	}()
	for _, pid := range []string{"4711", "4712", "4713"} {
		for page := range pages.seen {
			if strings.Contains(page, "pid "+pid) {
				break
			}
			if strings.Contains(page, "pid ") {
				t.Errorf("saw %q while waiting for pid %s", page, pid)
			}
		}
	}
	go func() {
		for range pages.seen { // ends with the watch, below
		}
	}()
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if code := <-ended; code != exitNotRunning {
		t.Errorf("the daemon left and the watch ended with %d", code)
	}
	close(pages.seen)
}

// pageWriter hands on what is written.
type pageWriter struct{ seen chan string }

func (w *pageWriter) Write(b []byte) (int, error) {
	w.seen <- string(b)
	return len(b), nil
}

func (f *fakeDaemon) Drain(context.Context) error {
	defer f.locked()()
	f.note("drain")
	return f.err
}

func (f *fakeDaemon) Seed(_ context.Context, ref string, seed []byte) (donation.SeedResult, error) {
	defer f.locked()()
	f.note("seed %s %s", ref, seed)
	return donation.SeedResult{Accepted: true, PeersAdded: 2}, f.err
}

func (f *fakeDaemon) Peer(_ context.Context, ref string) (donation.Peer, error) {
	defer f.locked()()
	return donation.Peer{ID: "peer-" + ref, Addrs: []string{"/ip4/192.0.2.1/tcp/1", "/dns/example.org/tcp/1"}}, f.err
}
