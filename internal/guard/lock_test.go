// This file tests that there is one guard, and that its socket is nobody else's.

package guard

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// second runs another guard on the rig's directories to its end.
func (r *rig) second() (output string, err error) {
	cmd := r.command()
	cmd.Stderr = nil
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestP12_SilentGuardIsNotReplaced(t *testing.T) {
	r := newRig(t)
	node := r.start(r.sh("sleep 1000"))
	pid := r.cmd.Process.Pid
	if out, err := r.second(); err == nil || !strings.Contains(out, "running already (pid "+strconv.Itoa(pid)) {
		t.Errorf("a second guard beside a live one: %v\n%s", err, out)
	}
	freeze(t, pid)
	out, err := r.second()
	if err == nil || !strings.Contains(out, "doesn't answer") || !strings.Contains(out, strconv.Itoa(pid)) {
		t.Errorf("a second guard beside a stopped one: %v\n%s", err, out)
	}
	if got, held, err := Holder(r.cfg.RuntimeDir); got != pid || !held || err != nil {
		t.Errorf("holder %d, held %v, %v; want %d", got, held, err, pid)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if h, err := r.client.Hello(context.Background()); err != nil || h.PID != pid {
		t.Errorf("%+v, %v", h, err)
	}
	if !alive(node.PID) {
		t.Error("the node has died of it")
	}
}

func TestReplaceKillsTheHolderAndAdopts(t *testing.T) {
	r := newRig(t)
	req := r.sh("sleep 1000")
	node := r.start(req)
	old := r.cmd
	freeze(t, old.Process.Pid)
	r.unwatch()
	r.client.Close()
	r.cfg.Replace = true
	gone := make(chan struct{})
	go func() { // as an init would
		defer close(gone)
		old.Wait()
	}()
	r.boot()
	<-gone
	if p := r.await(req.Spawn, "adopted", func(p Process) bool { return p.Adopted }); p.PID != node.PID {
		t.Errorf("%+v", p)
	}
	reapAdopted(t, node.PID)
}

func TestF10_LockFileOfADeadGuardHoldsNobodyUp(t *testing.T) {
	other := stranger(t, true)
	st, err := readStat(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(r *rig) {
		if err := os.Mkdir(r.cfg.RuntimeDir, 0o700); err != nil {
			t.Fatal(err)
		}
		line := `{"pid":` + strconv.Itoa(st.pid) + `,"start_time":` + strconv.FormatUint(st.start, 10) + `,"boot_id":"` + bootID() + `"}`
		if err := os.WriteFile(lockPath(r.cfg.RuntimeDir), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if pid, held, err := Holder(r.cfg.RuntimeDir); pid != r.cmd.Process.Pid || !held || err != nil {
		t.Errorf("holder %d, held %v, %v", pid, held, err)
	}
}

func TestHolderOfNothing(t *testing.T) {
	if pid, held, err := Holder(t.TempDir()); pid != 0 || held || err != nil {
		t.Errorf("holder %d, held %v, %v", pid, held, err)
	}
}

func TestF69_WhatIsNoSocketIsLeftAlone(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"file":    func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"symlink": func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.kill()
			path := SocketPath(r.cfg.RuntimeDir)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := plant(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(path)
			if out, err := r.second(); err == nil || !strings.Contains(out, "isn't a socket") {
				t.Errorf("%v\n%s", err, out)
			}
			if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() || after.Size() != before.Size() {
				t.Errorf("before %v, after %v, %v", before, after, err)
			}
			os.Remove(path)
			r.boot()
		})
	}
}

func TestF69_StaleSocketIsReplaced(t *testing.T) {
	r := newRig(t)
	r.kill()
	if _, err := os.Lstat(SocketPath(r.cfg.RuntimeDir)); err != nil {
		t.Fatal(err)
	}
	r.boot()
}

func TestF70_RemovedSocketIsMadeAgain(t *testing.T) {
	r := newRig(t)
	if err := os.Remove(SocketPath(r.cfg.RuntimeDir)); err != nil {
		t.Fatal(err)
	}
	r.client.Close()
	eventually(t, "the guard can be reached again", func() bool {
		_, err := r.client.Hello(context.Background())
		return err == nil
	})
}

func TestF71_SocketIsNarrowAndOthersGetNoAnswer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be another user")
	}
	const peer, other = 60001, 60002
	r := newRig(t, func(r *rig) {
		r.cfg.PeerUID = peer
		r.before = func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `umask 000; exec "$0"`, binary}
		}
	})
	info, err := os.Lstat(SocketPath(r.cfg.RuntimeDir))
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o600 || st.Uid != peer {
		t.Errorf("mode %v, uid %d", info.Mode(), st.Uid)
	}
	if info, err := os.Stat(r.cfg.RuntimeDir); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("runtime directory %v, %v", info.Mode(), err)
	}
	// Even with the mode out of the way the kernel tells who is there.
	if err := os.Chmod(SocketPath(r.cfg.RuntimeDir), 0o666); err != nil {
		t.Fatal(err)
	}
	hello := func(uid uint32) bool {
		cmd := exec.Command(binary, "script", "hello "+SocketPath(r.cfg.RuntimeDir))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return cmd.Run() == nil
	}
	if !hello(peer) {
		t.Error("the peer gets no answer")
	}
	if hello(other) {
		t.Error("another user gets an answer")
	}
}

func TestSocketPathOfAnyLength(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg, err := Config{RuntimeDir: dir, NodesDir: dir}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		if conn, err := l.Accept(); err == nil {
			accepted <- conn
		}
	}()
	conn, err := dialSocket(t.Context(), SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if c := <-accepted; c != nil {
		c.Close()
	}
	if !l.inPlace() {
		t.Error("the socket isn't where it should be")
	}
	if err := l.unlink(); err != nil || l.inPlace() {
		t.Errorf("unlink: %v", err)
	}
}
