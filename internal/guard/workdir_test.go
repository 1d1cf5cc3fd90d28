// This file tests that nothing leads out of a workdir, and that all of it can be deleted.

package guard

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestP15_PlantedLinksLeadNowhere(t *testing.T) {
	r := newRig(t)
	outside := openDir(t)
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	// The first life of the node plants: links in place of its files and directories, and a FIFO.
	req := r.sh(`ln -sf ` + victim + ` conf; ln -s ` + outside + ` sub; ln -s ` + victim + ` ready; mkfifo fifo; ln ` + victim + ` hard || true; ls`)
	r.start(req)
	r.exit(req.Spawn)

	req = again(req)
	req.Args = []string{"-c", "sleep 1000"}
	req.Files = []File{{Path: "conf", Content: "new"}, {Path: "fifo", Content: "new", Mode: 0o640}}
	r.start(req)
	if info, err := os.Lstat(r.work(req, "conf")); err != nil || !info.Mode().IsRegular() || readString(r.work(req, "conf")) != "new" {
		t.Errorf("conf: %v, %v", info, err)
	}
	if info, err := os.Lstat(r.work(req, "fifo")); err != nil || info.Mode() != 0o640 {
		t.Errorf("fifo: %v, %v", info.Mode(), err)
	} else if st := info.Sys().(*syscall.Stat_t); os.Getuid() == 0 && st.Uid != req.UID {
		t.Errorf("fifo belongs to %d", st.Uid)
	}
	for _, path := range []string{"ready", "sub/victim", "../work/ready", "/etc/passwd"} {
		if ok, err := r.client.Ready(context.Background(), ReadyRequest{Spawn: req.Spawn, Path: path, Content: "precious"}); ok || err != nil {
			t.Errorf("ready %s: %v, %v", path, ok, err)
		}
	}
	if ok, err := r.client.Ready(context.Background(), ReadyRequest{Spawn: req.Spawn, Path: "conf", Content: " new\n"}); !ok || err != nil {
		t.Errorf("ready conf: %v, %v", ok, err)
	}
	r.halt(req.Spawn, "terminate", true)
	r.exit(req.Spawn)

	req = again(req)
	req.Files = []File{{Path: "sub/planted", Content: "new"}}
	if e := r.refused(req); e.Code != CodeFailed || !strings.Contains(e.Message, "sub") {
		t.Errorf("%+v", e)
	}
	if err := r.client.Reclaim(context.Background(), req.Donation); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 || readString(victim) != "precious" {
		t.Errorf("outside: %v, %v, %q", entries, err, readString(victim))
	}
	if _, err := os.Lstat(filepath.Join(r.cfg.NodesDir, req.Donation)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

func TestReclaimDeletesWhateverIsThere(t *testing.T) {
	r := newRig(t)
	req := r.sh(`mkdir -p a/b/c locked/x; echo x > locked/x/f; chmod 0 locked/x; chmod 0 locked; mkfifo p; ` +
		`d=.; i=0; while [ $i -lt 400 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done`)
	r.start(req)
	if e := r.exit(req.Spawn); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	for range 2 { // the second time there is nothing
		if err := r.client.Reclaim(context.Background(), req.Donation); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(r.cfg.NodesDir, req.Donation)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	if err := r.client.Reclaim(context.Background(), "../"+filepath.Base(r.cfg.NodesDir)); !hasCode(err, CodeInvalid) {
		t.Errorf("a donation that leads out: %v", err)
	}
}

func TestWorkdirHasTheRightOwnersAndModes(t *testing.T) {
	r := newRig(t)
	req := r.sh("sleep 1000")
	req.Files = []File{{Path: "etc/deep/conf", Content: "x"}}
	r.start(req)
	for path, want := range map[string]struct {
		mode os.FileMode
		node bool
	}{
		"": {0o711, false}, "work": {0o700, true}, "log": {0o755, false}, "log/node.log": {0o600, false},
		"work/etc": {0o700, true}, "work/etc/deep": {0o700, true}, "work/etc/deep/conf": {0o600, true},
	} {
		info, err := os.Lstat(filepath.Join(r.cfg.NodesDir, req.Donation, path))
		if err != nil {
			t.Fatal(err)
		}
		owner := uint32(os.Getuid())
		if want.node && owner == 0 {
			owner = req.UID
		}
		if st := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != want.mode || st.Uid != owner {
			t.Errorf("%s: %v, uid %d; want %v, uid %d", path, info.Mode(), st.Uid, want.mode, owner)
		}
	}
}

func TestP14_LimitsHoldAgainstAHostileClient(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.Executables = []string{"/bin/", "/usr/bin/true"} })
	for name, c := range map[string]struct {
		change func(*StartRequest)
		code   Code
	}{
		"another executable":    {func(q *StartRequest) { q.Command = "/usr/sbin/reboot" }, CodeRefused},
		"a way around the list": {func(q *StartRequest) { q.Command = "/bin/../usr/sbin/reboot" }, CodeInvalid},
		"a file outside":        {func(q *StartRequest) { q.Files = []File{{Path: "../../x"}} }, CodeInvalid},
		"an absolute file":      {func(q *StartRequest) { q.Files = []File{{Path: "/etc/x"}} }, CodeInvalid},
		"the workdir itself":    {func(q *StartRequest) { q.Files = []File{{Path: "."}} }, CodeInvalid},
		"a donation outside":    {func(q *StartRequest) { q.Donation = "../x" }, CodeInvalid},
		"a spawn outside":       {func(q *StartRequest) { q.Spawn = "spn_../../x" }, CodeInvalid},
		"no signal":             {func(q *StartRequest) { q.StopSignal = 0 }, CodeInvalid},
		"a signal too high":     {func(q *StartRequest) { q.StopSignal = 65 }, CodeInvalid},
		"a NUL byte":            {func(q *StartRequest) { q.Args = []string{"a\x00b"} }, CodeInvalid},
		"a bad variable":        {func(q *StartRequest) { q.Env = []string{"=x"} }, CodeInvalid},
		"a negative limit":      {func(q *StartRequest) { q.Limits.Memory = -1 }, CodeInvalid},
		"root":                  {func(q *StartRequest) { q.UID = 0 }, rootOnly(CodeRefused)},
		"a system user":         {func(q *StartRequest) { q.UID = 33 }, CodeRefused},
		"a uid out of range":    {func(q *StartRequest) { q.UID = DefaultUIDMax + 1 }, CodeRefused},
	} {
		if c.code == "" {
			continue
		}
		req := r.sh("exit 0")
		c.change(&req)
		if e := r.refused(req); e.Code != c.code {
			t.Errorf("%s: %+v, want %s", name, e, c.code)
		}
	}
	entries, err := os.ReadDir(r.cfg.NodesDir)
	if err != nil || len(entries) > 0 {
		t.Errorf("in the nodes directory: %v, %v", entries, err)
	}
}

// rootOnly is the code for a guard that is root; others don't refuse.
func rootOnly(c Code) Code {
	if os.Getuid() == 0 {
		return c
	}
	return ""
}

func TestWorkdirOfAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to have other users")
	}
	r := newRig(t)
	req := r.sh("exit 0")
	r.start(req)
	r.exit(req.Spawn)
	req = again(req)
	req.UID++
	if e := r.refused(req); e.Code != CodeFailed || !strings.Contains(e.Message, "belongs to uid") {
		t.Errorf("%+v", e)
	}
}

func TestUnreachableNodesDirectoryIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("nodes of their guard's own user reach what it does")
	}
	_, err := openWorkdirs(Config{NodesDir: filepath.Join(t.TempDir(), "nodes")}) // TempDir's parent is 0700
	if err == nil || !strings.Contains(err.Error(), "chmod o+x") {
		t.Errorf("%v", err)
	}
}

func TestF42_DirectoriesRemovedWhileRunning(t *testing.T) {
	r := newRig(t)
	req := r.sh("echo up; read x; sleep 1000")
	p := r.start(req)
	r.output(req, "up")
	if err := os.RemoveAll(r.cfg.NodesDir); err != nil {
		t.Fatal(err)
	}
	other := r.sh("echo fine")
	r.start(other)
	r.exit(other.Spawn)
	r.output(other, "fine")
	if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.exit(req.Spawn)
	next := again(req)
	next.Args = []string{"-c", "echo back"}
	r.start(next)
	r.exit(next.Spawn)
	r.output(next, "back")
}

func TestF22_UnusableLogIsAFailedStart(t *testing.T) {
	r := newRig(t)
	req := r.sh("exit 0")
	r.start(req)
	r.exit(req.Spawn)
	log := NodeLog(r.cfg.NodesDir, req.Donation)
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(log, 0o666); err != nil {
		t.Fatal(err)
	}
	req = again(req)
	if e := r.refused(req); e.Code != CodeFailed || !strings.Contains(e.Message, "log of the node") {
		t.Errorf("%+v", e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.seen {
		if p.State == StateRunning && p.PID == 0 {
			t.Error("running, pid " + strconv.Itoa(p.PID))
		}
	}
}

func TestStartAfterAGuardThatDiedWhileMakingTheWorkdir(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("nodes of their guard's own user reach what it does")
	}
	r := newRig(t)
	req := r.sh("sleep 1000")
	if err := os.MkdirAll(filepath.Join(r.cfg.NodesDir, req.Donation, workDirName), 0o700); err != nil {
		t.Fatal(err)
	}
	r.start(req)
	info, err := os.Stat(r.work(req, "."))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != req.UID {
		t.Errorf("the workdir: %+v, %v", info, err)
	}
}
