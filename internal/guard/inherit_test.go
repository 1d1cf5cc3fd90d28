// This file tests what a node is given, and that it is the same at every start.

package guard

import (
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// dirty makes the guard's command one that a node must not inherit anything from.
func dirty(t testing.TB) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		// sh ignores signals, lowers a soft limit, opens descriptors and wants files for everybody.
		script := `trap '' HUP TERM USR2 TSTP; ulimit -S -n 256; umask 0; exec 7</etc/passwd 9>/dev/null; exec "$0"`
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script, binary}
	}
}

// dumpOf starts the request's donation once more and returns what its node was given.
func dumpOf(t *testing.T, r *rig, req StartRequest) dumped {
	t.Helper()
	if err := os.Truncate(NodeLog(r.cfg.NodesDir, req.Donation), 0); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	r.start(req)
	if e := r.exit(req.Spawn); e.Code != 0 || !e.Known {
		t.Fatalf("dump: %+v", e)
	}
	var d dumped
	if err := json.Unmarshal([]byte(r.output(req, "{")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestP07_NodeInheritsNothing(t *testing.T) {
	r := newRig(t, func(r *rig) { r.before = dirty(t) })
	req := r.script("dump")
	req.Env = append(req.Env, "A=1")
	req.Limits = Limits{NoFile: 1000, OOMScoreAdj: 50}
	d := dumpOf(t, r, req)

	env := slices.Sorted(slices.Values(d.Env))
	want := []string{"A=1", "CADRE_DONATION=" + req.Donation, "CADRE_SPAWN=" + req.Spawn, quickExit, "PATH=/usr/bin:/bin"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Error("environment (-want +got)\n" + diff)
	}
	log := NodeLog(r.cfg.NodesDir, req.Donation)
	if diff := cmp.Diff(map[string]string{"0": "/dev/null", "1": log, "2": log}, d.FDs); diff != "" {
		t.Error("descriptors (-want +got)\n" + diff)
	}
	if d.Cwd != Workdir(r.cfg.NodesDir, req.Donation) || !d.Leader || d.Umask != nodeUmask || d.OOM != "350" || d.Nice != 20 {
		t.Errorf("cwd %s, session leader %v, umask %#o, oom %s, nice %d", d.Cwd, d.Leader, d.Umask, d.OOM, d.Nice)
	}
	for _, s := range d.Status {
		name, value, _ := strings.Cut(s, "=")
		mask, err := strconv.ParseUint(value, 16, 64)
		switch {
		case err != nil:
			t.Error(err)
		case name == "NoNewPrivs" && mask != 1, name == "SigIgn" && mask != 0, name == "SigBlk" && mask != 0,
			strings.HasPrefix(name, "Cap") && mask != 0 && os.Getuid() == 0:
			t.Error(s)
		}
	}
	for name, want := range map[string]string{
		"Max open files": "1000 1000 files", "Max core file size": "0 0 bytes", "Max locked memory": "65536 65536 bytes",
	} {
		if d.RLimits[name] != want {
			t.Errorf("%s: %q, want %q", name, d.RLimits[name], want)
		}
	}
	if os.Getuid() == 0 {
		if d.UID != int(req.UID) || d.GID != int(req.UID) || len(d.Groups) > 0 {
			t.Errorf("uid %d, gid %d, groups %v; want %d alone", d.UID, d.GID, d.Groups, req.UID)
		}
		if got := d.RLimits["Max processes"]; !strings.HasPrefix(got, "4096 ") {
			t.Errorf("Max processes: %s", got)
		}
	}
}

func TestF77_EverySpawnIsGivenTheSame(t *testing.T) {
	r := newRig(t, func(r *rig) { r.before = dirty(t) })
	req := r.script("dump")
	first := dumpOf(t, r, req)
	compare := func(when string, d dumped) {
		t.Helper()
		// The spawn's own name is the one thing that differs.
		ignore := func(d dumped) dumped {
			d.Env = slices.DeleteFunc(slices.Clone(d.Env), func(v string) bool { return strings.HasPrefix(v, spawnVariable) })
			return d
		}
		if diff := cmp.Diff(ignore(first), ignore(d)); diff != "" {
			t.Errorf("%s (-first +now)\n%s", when, diff)
		}
	}
	compare("respawn", dumpOf(t, r, again(req)))
	r.kill()
	r.before = func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "OTHER=shell") }
	r.boot()
	compare("after a guard restart from elsewhere", dumpOf(t, r, again(req)))
}

func TestF76_RemovedVariableIsGone(t *testing.T) {
	r := newRig(t)
	req := r.script("dump")
	req.Env = []string{"A=1", quickExit}
	dumpOf(t, r, req)
	req = again(req)
	req.Env = []string{"B=2", quickExit}
	if d := dumpOf(t, r, req); slices.Contains(d.Env, "A=1") || !slices.Contains(d.Env, "B=2") {
		t.Errorf("environment %v", d.Env)
	}
}

func TestF67_ServiceManagersVariablesStayAway(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.before = func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "WATCHDOG_USEC=1", "LISTEN_FDS=1", "INVOCATION_ID=x", "JOURNAL_STREAM=1:2", "CREDENTIALS_DIRECTORY=/x")
		}
	})
	for _, v := range dumpOf(t, r, r.script("dump")).Env {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains([]string{"PATH", "GORACE", spawnVariable, donationVariable}, name) {
			t.Errorf("the node was given %s", name)
		}
	}
}

func TestF75_NoSecretOutsideTheNode(t *testing.T) {
	r := newRig(t)
	req := r.sh("sleep 1000")
	const secret = "S3NTINEL"
	req.Env = append(req.Env, "TOKEN="+secret)
	req.Files = []File{{Path: "token", Content: secret}}
	p := r.start(req)
	for what, text := range map[string]string{
		"the spool":            readString(spoolDir(r.cfg.RuntimeDir) + "/" + req.Spawn + ".json"),
		"the guard's argv":     readString("/proc/" + strconv.Itoa(r.cmd.Process.Pid) + "/cmdline"),
		"the node's argv":      readString("/proc/" + strconv.Itoa(p.PID) + "/cmdline"),
		"the guard's log":      r.said(),
		"an error of the exec": r.refused(func() StartRequest { q := r.request("/no/such", secret); q.Env = req.Env; return q }()).Message,
	} {
		if text == "" && what != "the guard's log" {
			t.Errorf("%s is empty", what)
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret", what)
		}
	}
}

func TestF08_GuardIsNotTheOneToBeKilled(t *testing.T) {
	r := newRig(t)
	p := r.start(r.sh("sleep 1000"))
	score := func(pid int) int {
		n, err := strconv.Atoi(strings.TrimSpace(readString("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if g, n := score(r.cmd.Process.Pid), score(p.PID); g >= n || n != DefaultOOMScoreAdj {
		t.Errorf("oom_score_adj of the guard %d, of the node %d", g, n)
	}
}

func TestIgnoredSignalsAreRead(t *testing.T) {
	// HUP can be ignored by this process without harm: nothing here has a terminal.
	signal.Ignore(unix.SIGWINCH)
	defer signal.Reset(unix.SIGWINCH)
	if got := ignoredSignals(); !slices.Contains(got, unix.SIGWINCH) {
		t.Errorf("ignored signals %v", got)
	}
}
