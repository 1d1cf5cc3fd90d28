// This file tests the thread that forks by itself.

package guard

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// testForker is a forker, and a request for a child that makes the file "ran" in its directory.
func testForker(t *testing.T) (*forker, forkRequest) {
	t.Helper()
	var reap sync.Mutex
	f, err := newForker(zap.NewNop(), &reap)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	fd := int(null.Fd())
	return f, forkRequest{
		path: "/bin/sh", argv: []string{"sh", "-c", ": > ran"}, dir: t.TempDir(), stdin: fd, log: fd, cgroup: -1,
		configure: func(int, int) error { return nil }, adopt: func(int, int) {},
	}
}

func TestChildThatCantBeConfiguredNeverRuns(t *testing.T) {
	f, req := testForker(t)
	want := errors.New("no")
	var pid int
	req.configure = func(p, _ int) error { pid = p; return want }
	if err := f.fork(req); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
	if _, err := readStat(pid); !errors.Is(err, errGone) {
		t.Errorf("the child is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(req.dir, "ran")); !os.IsNotExist(err) {
		t.Errorf("it has run: %v", err)
	}
}

func TestChildIsStoppedWhileItIsConfigured(t *testing.T) {
	f, req := testForker(t)
	var state byte
	req.configure = func(pid, _ int) error {
		st, err := readStat(pid)
		state = st.state
		return err
	}
	req.adopt = func(pid, pidfd int) { t.Cleanup(func() { unix.Close(pidfd); unix.Wait4(pid, nil, 0, nil) }) }
	if err := f.fork(req); err != nil {
		t.Fatal(err)
	}
	if state != 't' {
		t.Errorf("state %c while it is configured", state)
	}
	eventually(t, "it runs", func() bool { _, err := os.Stat(filepath.Join(req.dir, "ran")); return err == nil })
}

func TestForkWithoutPtrace(t *testing.T) {
	f, req := testForker(t)
	f.untraced = true
	var ws unix.WaitStatus
	req.adopt = func(pid, pidfd int) {
		unix.Close(pidfd)
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
			t.Error(err)
		}
	}
	if err := f.fork(req); err != nil || !ws.Exited() || ws.ExitStatus() != 0 {
		t.Errorf("%v, %v", err, ws)
	}
}
