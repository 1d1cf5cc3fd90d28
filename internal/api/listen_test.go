// This file tests the admin socket itself, and the client before one that is silent, dead or closed to it.

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// The environment of a helper process: the path of the socket that it asks for an overview.
const helperSocket = "CADRE_TEST_ASK_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(helperSocket); path != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := NewClient(path).Overview(ctx)
		fmt.Printf("permission=%v err=%v", errors.Is(err, ErrPermission), err)
		return
	}
	os.Exit(m.Run())
}

func TestF71_SocketIsNarrowFromBirth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing", "run")
	path := filepath.Join(dir, "admin.sock")
	old := syscall.Umask(0)
	ln, err := listen(path)
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, path: fs.ModeSocket | 0o600} {
		if info, err := os.Lstat(p); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", p, info.Mode(), err, want)
		}
	}
	if ln.Addr().String() != path {
		t.Errorf("Addr is %s", ln.Addr())
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestF71_OnlyOwnerAndRootAreAnswered(t *testing.T) {
	for _, tc := range []struct {
		peer uint32
		self int
		want bool
	}{{0, 0, true}, {0, 990, true}, {990, 990, true}, {1000, 990, false}, {1000, 0, false}} {
		if got := permitted(tc.peer, tc.self); got != tc.want {
			t.Errorf("permitted(%d, %d) = %v", tc.peer, tc.self, got)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("asking as another user needs root")
	}
	dir, err := os.MkdirTemp("", "cadre-api")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(dir, "helper")
	if err := os.WriteFile(helper, self, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "admin.sock")
	e, err := Open(path, NewServer(&scripted{overview: func() Overview { return Overview{} }}, zap.NewNop()), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(context.Background())
	ask := func() string {
		cmd := exec.CommandContext(t.Context(), helper)
		cmd.Dir = "/"
		cmd.Env = []string{helperSocket + "=" + path}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := ask(); !strings.HasPrefix(out, "permission=true") {
		t.Errorf("another user before a narrow socket: %s", out)
	}
	if err := os.Chmod(path, 0o777); err != nil { // the second line of defence
		t.Fatal(err)
	}
	if out := ask(); !strings.HasPrefix(out, "permission=false err=the daemon is not running any more") {
		t.Errorf("another user before a wide socket: %s", out)
	}
}

func TestF69_StaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	// What a process that was killed in the middle of Listen leaves.
	if err := os.MkdirAll(filepath.Join(filepath.Dir(path), ".admin.sock.new", ""), 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
}

func TestF69_LiveSocketIsNotStolen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	// A listener that never accepts is what a stopped process looks like.
	live, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	before, _ := os.Lstat(path)
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "a living process listens on "+path) {
		t.Errorf("Listen: %v", err)
	}
	if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the live socket was touched: %v", err)
	}
}

func TestF69_WhatIsNoSocketIsLeftUntouched(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, place := range map[string]func(path string) error{
		"a regular file":  func(p string) error { return os.WriteFile(p, []byte("precious"), 0o600) },
		"a symbolic link": func(p string) error { return os.Symlink(target, p) },
		"a directory":     func(p string) error { return os.Mkdir(p, 0o700) },
		"no socket":       func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		path := filepath.Join(dir, strings.ReplaceAll(what, " ", "-"))
		if err := place(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		_, err := listen(path)
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
			t.Errorf("%s was touched: %v", what, err)
		}
	}
}

func TestListenRefusesLongPathsAndForeignDirectories(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 108), "admin.sock")
	if _, err := listen(long); err == nil || !strings.Contains(err.Error(), "--runtime-dir") {
		t.Errorf("a long path: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(long)); err == nil {
		t.Error("a directory was made for a path that can't be used")
	}
	if os.Geteuid() != 0 {
		t.Skip("a foreign directory needs root")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(filepath.Join(dir, "admin.sock")); err == nil || !strings.Contains(err.Error(), "belongs to uid 65534") {
		t.Errorf("a foreign directory: %v", err)
	}
}

func TestF70_VanishedSocketComesBack(t *testing.T) {
	c, e := open(t, &scripted{overview: func() Overview { return Overview{PID: 1} }})
	if again, err := e.Check(); again || err != nil {
		t.Fatalf("Check of a socket in its place: %v, %v", again, err)
	}
	for range 2 {
		if err := os.Remove(c.socket); err != nil {
			t.Fatal(err)
		}
		c.Close() // a new connection, not the one that is open
		if _, err := c.Overview(t.Context()); !errors.Is(err, ErrNotRunning) {
			t.Errorf("without a socket: %v", err)
		}
		if again, err := e.Check(); !again || err != nil {
			t.Fatalf("Check: %v, %v", again, err)
		}
		if _, err := c.Overview(t.Context()); err != nil {
			t.Errorf("after Check: %v", err)
		}
	}
	// Somebody else's file in its place is not ours to remove.
	if err := os.Remove(c.socket); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Check(); err == nil || !strings.Contains(err.Error(), "a regular file") {
		t.Errorf("Check with a file in the way: %v", err)
	}
}

func TestEndpointDrainsRequestsAndCutsOffTheRest(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	b := &scripted{donation: func(ctx context.Context, ref string) (View, error) {
		close(begun)
		select {
		case <-release:
		case <-ctx.Done():
			return View{}, ctx.Err()
		}
		return View{ID: "don_a"}, nil
	}}
	for _, inTime := range []bool{true, false} {
		begun, release = make(chan struct{}), make(chan struct{})
		c, e := openQuiet(t, b)
		answer := make(chan error, 1)
		go func() { _, err := c.Donation(t.Context(), "a"); answer <- err }()
		<-begun
		ctx, cancel := context.WithCancel(t.Context())
		if inTime {
			close(release)
		} else {
			cancel()
		}
		if err := e.Close(ctx); (err == nil) != inTime {
			t.Errorf("in time %v: Close: %v", inTime, err)
		}
		if err := <-answer; (err == nil) != inTime {
			t.Errorf("in time %v: the request: %v", inTime, err)
		}
		cancel()
		if _, err := os.Lstat(c.socket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is left behind: %v", err)
		}
	}
}

func openQuiet(t *testing.T, b *scripted) (*Client, *Endpoint) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admin.sock")
	e, err := Open(path, NewServer(b, zap.NewNop()), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return NewClient(path), e
}

func TestF72_SilentDaemonIsToldFromNoneAndFromADeadOne(t *testing.T) {
	dir := t.TempDir()
	silent, err := net.Listen("unix", filepath.Join(dir, "silent"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "dead"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	for _, tc := range []struct {
		socket string
		want   error
		words  string
	}{
		{"silent", ErrNoAnswer, "gave no answer in time"},
		{"dead", ErrNotRunning, "nobody listens"},
		{"none", ErrNotRunning, "no socket at"},
		{strings.Repeat("long", 40), ErrNotRunning, "longer than"},
	} {
		c := NewClient(filepath.Join(dir, tc.socket))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := c.Overview(ctx)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%s: %v", tc.socket, err)
		}
		cancel()
		err = c.FollowEvents(t.Context(), "", 0, 50*time.Millisecond, func(donation.Event) error { return nil })
		if !errors.Is(err, tc.want) {
			t.Errorf("%s, following: %v", tc.socket, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Logs(gone, "x", 1, true, 0, io.Discard); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v", tc.socket, err)
		}
		c.Close()
	}
}
