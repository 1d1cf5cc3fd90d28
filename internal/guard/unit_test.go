// This file tests the parts that need no guard: configuration, protocol, watchers, the spool and /proc.

package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

func TestLoadLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guard.toml")
	write := func(text string, mode os.FileMode) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("nodes_dir = \"/srv/nodes\"\nuid_min = 80000\nmax_ttl = \"24h\"\nexecutables = [\"/usr/bin/\"]\n", 0o644)
	cfg := Config{UIDMax: 90000, NodesDir: "/x"}
	if err := cfg.LoadLimits(path); err != nil {
		t.Fatal(err)
	}
	want := Config{NodesDir: "/srv/nodes", UIDMin: 80000, UIDMax: 90000, MaxTTL: 24 * time.Hour, Executables: []string{"/usr/bin/"}}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"uid_min = 1\nuid_mx = 2\n": `line 2: unknown key`, "uid_min = \"a\"\n": "line 1", "max_ttl = \"x\"": "max_ttl", "a = [": "line 1",
	} {
		write(text, 0o644)
		if err := (&Config{}).LoadLimits(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if os.Getuid() == 0 {
		write("", 0o666)
		if err := (&Config{}).LoadLimits(path); err == nil || !strings.Contains(err.Error(), "lets others write") {
			t.Errorf("a file that others may write: %v", err)
		}
		write("", 0o644)
		if err := os.Chown(path, 60001, -1); err != nil {
			t.Fatal(err)
		}
		if err := (&Config{}).LoadLimits(path); err == nil || !strings.Contains(err.Error(), "uid 60001") {
			t.Errorf("a file of another user: %v", err)
		}
	}
	if err := (&Config{}).LoadLimits(path + ".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{RuntimeDir: "/run/x", NodesDir: "/var/x"}
	for name, change := range map[string]func(*Config){
		"no runtime directory": func(c *Config) { c.RuntimeDir = "" },
		"no nodes directory":   func(c *Config) { c.NodesDir = "" },
		"tracking":             func(c *Config) { c.Tracking = "x" },
		"ttl":                  func(c *Config) { c.MaxTTL = -1 },
		"relative executable":  func(c *Config) { c.Executables = []string{"sh"} },
		"dotted executable":    func(c *Config) { c.Executables = []string{"/bin/../sh"} },
	} {
		c := good
		change(&c)
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if os.Getuid() == 0 {
		for name, c := range map[string]Config{"root": {UIDMin: 1}, "system": {UIDMin: 999}, "empty": {UIDMin: 5000, UIDMax: 4000}} {
			c.RuntimeDir, c.NodesDir = good.RuntimeDir, good.NodesDir
			if _, err := c.withDefaults(); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	}
}

func TestExecutablesAreMatchedAsWholePaths(t *testing.T) {
	c := Config{Executables: []string{"/usr/bin/redis-server", "/opt/nodes/"}}
	for path, want := range map[string]bool{
		"/usr/bin/redis-server": true, "/usr/bin/redis-server-x": false, "/opt/nodes/a": true, "/opt/nodes/a/b": true,
		"/opt/nodes/../../bin/sh": false, "/opt/nodesx": false, "/bin/sh": false,
	} {
		if got := c.allows(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestStatWithHostileName(t *testing.T) {
	line := "42 (a) b) R 1 (x)) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2"
	st, err := parseStat(42, []byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if want := (procStat{pid: 42, ppid: 7, session: 9, state: 'S', start: 12345}); st != want {
		t.Errorf("%+v, want %+v", st, want)
	}
	for _, bad := range []string{"", "42 (a", "42 (a) S 1", "42 (a) S x x x 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 z 1 2"} {
		if _, err := parseStat(42, []byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestSlowWatcherIsDropped(t *testing.T) {
	tb := newTable(zap.NewNop())
	_, slow := tb.subscribe()
	_, quick := tb.subscribe()
	tb.mu.Lock()
	for i := range watchBuffer + 1 {
		tb.hub.publish(Process{PID: i})
		<-quick.changes
	}
	tb.mu.Unlock()
	n := 0
	for range slow.changes { // ends: it was closed
		n++
	}
	if n != watchBuffer || tb.hub.dropped != 1 {
		t.Errorf("%d changes, %d dropped", n, tb.hub.dropped)
	}
	tb.unsubscribe(slow)
	tb.unsubscribe(quick)
}

func TestAnswersAreForgottenInTheEnd(t *testing.T) {
	tb := newTable(zap.NewNop())
	for i := range rememberedAnswers + 10 {
		tb.remember(fmt.Sprint(i), &Error{Code: CodeFailed})
	}
	if len(tb.answers) != rememberedAnswers || len(tb.order) != rememberedAnswers || tb.answers["9"] != nil || tb.answers["10"] == nil {
		t.Errorf("%d answers, %d in order", len(tb.answers), len(tb.order))
	}
}

func TestIllegalMoveIsNotMade(t *testing.T) {
	tb := newTable(zap.NewNop())
	p := newProcess(spawnID(), "don_"+randomID())
	p.view.State = StateExited
	tb.mu.Lock()
	tb.move(p, StateRunning)
	tb.mu.Unlock()
	if p.view.State != StateExited {
		t.Errorf("it went to %s", p.view.State)
	}
}

func TestRequestsAreStrict(t *testing.T) {
	h := handle(func(_ *http.Request, req AckRequest) (struct{}, error) { return struct{}{}, nil })
	for body, status := range map[string]int{
		`{"spawns":[]}`: http.StatusOK, `{"spawn":[]}`: http.StatusBadRequest, `{}{}`: http.StatusBadRequest, `[`: http.StatusBadRequest,
		`{"spawns":["` + strings.Repeat("x", maxBody) + `"]}`: http.StatusBadRequest,
	} {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if w.Code != status {
			t.Errorf("%.40s: %d, want %d", body, w.Code, status)
		}
	}
}

func TestClientTellsSilenceFromRefusal(t *testing.T) {
	c := NewClient(filepath.Join(t.TempDir(), "nobody.sock"))
	defer c.Close()
	if _, err := c.Hello(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
	r := newRig(t)
	freeze(t, r.cmd.Process.Pid)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.client.Close()
	if _, err := r.client.Hello(ctx); !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	if err := checkProtocol(Hello{Protocol: Protocol + 1}); !hasCode(err, CodeInvalid) {
		t.Errorf("another protocol: %v", err)
	}
}

func TestTransientErrors(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ETXTBSY, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOSPC} {
		if e := startError(explain(errno, "/bin/x", 0)); e.Code != CodeTransient {
			t.Errorf("%v: %+v", errno, e)
		}
	}
	if e := startError(explain(unix.EPERM, "/bin/x", 0)); e.Code != CodeFailed {
		t.Errorf("%+v", e)
	}
}

func TestF78_NoDescriptorLeftIsTransient(t *testing.T) {
	r := newRig(t, func(r *rig) { r.before = dirty(t) })
	keep := r.sh("sleep 1000")
	kept := r.start(keep)
	limit := func(n uint64) {
		t.Helper()
		var have unix.Rlimit
		if err := unix.Prlimit(r.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &have); err != nil {
			t.Fatal(err)
		}
		have.Cur = n
		if err := unix.Prlimit(r.cmd.Process.Pid, unix.RLIMIT_NOFILE, &have, nil); err != nil {
			t.Fatal(err)
		}
	}
	limit(uint64(fds(t, r.cmd.Process.Pid)) + 1)
	req := r.sh("exit 0")
	if e := r.refused(req); e.Code != CodeTransient {
		t.Errorf("%+v", e)
	}
	leavesNothing(t, r, req)
	limit(1000)
	r.start(req)
	r.exit(req.Spawn)
	if !alive(kept.PID) {
		t.Error("a running node has died of it")
	}
}
