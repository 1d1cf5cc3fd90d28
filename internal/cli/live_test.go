// This file holds what the scripts with a living daemon need: a look at its processes, and their end.

package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// get sets a variable to a field of what status says of a donation: get VAR REF FIELD, the field as in ports.health
func get(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: get VAR REF FIELD")
	}
	ts.Check(ts.Exec(program, "status", "-o", "json", args[1]))
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	dec.UseNumber()
	var v any
	ts.Check(dec.Decode(&v))
	for name := range strings.SplitSeq(args[2], ".") {
		object, ok := v.(map[string]any)
		if v, ok = object[name], ok && object[name] != nil; !ok {
			ts.Fatalf("there is no %s in %s", args[2], ts.ReadFile("stdout"))
		}
	}
	ts.Setenv(args[0], fmt.Sprint(v))
}

// until runs cadre-hostd until it succeeds and its stdout matches: until REGEXP ARGS...
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP ARGS...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	poll(ts, func() bool {
		return ts.Exec(program, args[1:]...) == nil && want.MatchString(ts.ReadFile("stdout"))
	})
}

// waitmatch waits, within bounds, until a file has a line that matches: waitmatch FILE REGEXP
func waitmatch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitmatch FILE REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	poll(ts, func() bool {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && want.Match(b)
	})
}

// sendSignal signals a process that must exist: signal NAME PID
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME PID")
	}
	pid, err := strconv.Atoi(args[1])
	ts.Check(err)
	sig := unix.SignalNum("SIG" + args[0])
	if pid <= 1 || sig == 0 {
		ts.Fatalf("signal %s %d: no such signal or process", args[0], pid)
	}
	ts.Check(unix.Kill(pid, sig))
}

// theGuard sets a variable to the pid of the script's guard: guard VAR
func theGuard(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: guard VAR")
	}
	pid, held, err := guard.Holder(filepath.Join(ts.Getenv("WORK"), "s", "run"))
	ts.Check(err)
	if !held {
		ts.Fatalf("no guard holds the lock")
	}
	ts.Setenv(args[0], strconv.Itoa(pid))
}

// theDaemon sets a variable to the pid of the script's daemon: daemon VAR
func theDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: daemon VAR")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := api.NewClient(ts.Getenv("SOCKET"))
	defer c.Close()
	o, err := c.Overview(ctx)
	ts.Check(err)
	ts.Setenv(args[0], strconv.Itoa(o.PID))
}

// sqlExec changes a database behind the daemon's back: sql FILE STATEMENT
func sqlExec(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql FILE STATEMENT")
	}
	db, err := sql.Open("sqlite", ts.MkAbs(args[0])) // the driver is the store's
	ts.Check(err)
	_, err = db.Exec(args[1])
	ts.Check(errors.Join(err, db.Close()))
}

// gone waits, within bounds, until a process has ended, or, without a pid, all of the script's: gone [PID]
func gone(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case neg || len(args) > 1:
		ts.Fatalf("usage: gone [PID]")
	case len(args) == 0:
		poll(ts, func() bool { return len(processesIn(ts.Getenv("WORK"))) == 0 })
	default:
		pid, err := strconv.Atoi(args[0])
		ts.Check(err)
		poll(ts, func() bool { return !alive(pid) })
	}
}

// alive reports whether a process runs; one that only waits for its parent doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && !bytes.HasPrefix(state, []byte("Z")) && !bytes.HasPrefix(state, []byte("X"))
}

// processesIn finds what runs in a directory or was told of it: daemons, guards and nodes.
func processesIn(dir string) map[int]string {
	found := map[int]string{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		pid, _ := strconv.Atoi(filepath.Base(e))
		cwd, _ := os.Readlink(filepath.Join(e, "cwd"))
		cmdline, _ := os.ReadFile(filepath.Join(e, "cmdline"))
		if pid != os.Getpid() && (strings.HasPrefix(cwd, dir) || bytes.Contains(cmdline, []byte(dir))) && alive(pid) {
			found[pid] = strings.ReplaceAll(string(cmdline), "\x00", " ")
		}
	}
	return found
}

// endLeftovers kills what a script that failed has left; one that didn't has waited until all had ended.
func endLeftovers(dir string) {
	for left := processesIn(dir); len(left) > 0; left = processesIn(dir) {
		for pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// noProcessLeft fails the test if anything still runs in dir when the guards that are idle have had time to leave.
func noProcessLeft(t *testing.T, dir string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(15 * time.Second); ; <-tick.C {
		left := processesIn(dir)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("these processes are left behind: %v", left)
			for pid := range left {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			return
		}
	}
}
