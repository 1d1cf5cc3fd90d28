// This file runs the scripts in testdata/script: the test binary is cadre-hostd in them, so that they see
// exactly what a user sees.

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	// The daemon and the guard run themselves by another name.
	if len(os.Args) > 1 && slices.Contains([]string{"guard", "node"}, os.Args[1]) {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	testscript.Main(m, map[string]func(){
		program: func() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

func TestScripts(t *testing.T) {
	// Short paths: a unix socket's may have 107 bytes.
	root, err := os.MkdirTemp("", "cadre")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		noProcessLeft(t, root)
		_ = os.RemoveAll(root)
	})
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		WorkdirRoot:         root,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			state := filepath.Join(e.WorkDir, "s")
			// Nodes have users of their own, who must get to their directories.
			if err := os.Chmod(e.WorkDir, 0o755); err != nil {
				return err
			}
			e.Defer(func() { endLeftovers(e.WorkDir) })
			e.Setenv(stateDirVar, state)
			e.Setenv("SOCKET", filepath.Join(state, "run", "admin.sock"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else every process of a race build ends a second late
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon":     theDaemon,
			"exits":      exits,
			"get":        get,
			"gone":       gone,
			"guard":      theGuard,
			"listen":     listen,
			"once":       once,
			"signal":     sendSignal,
			"sql":        sqlExec,
			"until":      until,
			"waitfor":    waitfor,
			"waitmatch":  waitmatch,
			"waitsocket": waitSocket,
		},
	})
}

// exits runs the rest of its arguments as cadre-hostd and compares the exit code: exits CODE ARGS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits CODE ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(program, args[1:]...)
	got := 0
	if coded := (interface{ ExitCode() int })(nil); errors.As(err, &coded) {
		got = coded.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s %s exited with %d, want %d\nstdout: %s\nstderr: %s", program, strings.Join(args[1:], " "), got, want,
			ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
	if out := ts.ReadFile("stdout"); want != 0 && out != "" {
		ts.Fatalf("a failure has written to stdout: %q", out)
	}
}

// once checks that a text stands in exactly one line of stderr, and the usage in none: once TEXT
func once(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: once TEXT")
	}
	lines := 0
	for line := range strings.Lines(ts.ReadFile("stderr")) {
		if strings.Contains(line, args[0]) {
			lines++
		}
		if strings.Contains(line, "Usage") {
			ts.Fatalf("the usage is in stderr: %s", line)
		}
	}
	if lines != 1 {
		ts.Fatalf("%q stands in %d lines of stderr: %s", args[0], lines, ts.ReadFile("stderr"))
	}
}

// listen puts a stub on the path until the script ends: "silent" accepts and never answers, "dead" is a
// socket that nobody listens on any more. listen KIND PATH
func listen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: listen silent|dead PATH")
	}
	path := ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o700))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	ts.Check(err)
	if args[0] == "dead" {
		ln.SetUnlinkOnClose(false)
		ts.Check(ln.Close())
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
	})
	ts.Defer(func() {
		_ = ln.Close()
		accepting.Wait()
		cancel()
	})
}

// waitfor waits, within bounds, until a file has a content: waitfor FILE CONTENT
func waitfor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitfor FILE CONTENT")
	}
	poll(ts, func() bool {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && string(b) == args[1]
	})
}

// waitSocket waits, within bounds, until somebody listens on a socket: waitsocket PATH
func waitSocket(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitsocket PATH")
	}
	poll(ts, func() bool {
		conn, err := net.Dial("unix", ts.MkAbs(args[0]))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// poll waits for another process, of which nothing but its effect can be seen.
func poll(ts *testscript.TestScript, cond func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			ts.Fatalf("it has not come to be within 20 seconds")
		}
	}
}

func TestClientEndsQuietlyOnInterrupt(t *testing.T) {
	stopped := interrupted(t)
	var out, errOut strings.Builder
	err := severalError{context.Canceled}
	report(stopped, &errOut, err)
	if code := exitCode(stopped, err); code != exitInterrupted || out.Len() > 0 || errOut.Len() > 0 {
		t.Errorf("code %d, said %q", code, errOut.String())
	}
	if code := exitCode(stopped, fmt.Errorf("open: %w", syscall.EACCES)); code != exitFailure {
		t.Errorf("another error during an interruption: %d", code)
	}
}

// interrupted returns the context of a command that was interrupted.
func interrupted(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
