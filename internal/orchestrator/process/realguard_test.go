// This file runs the tests' real guard: this test binary in a mode of its own.

package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// guardDir makes this binary a guard in the directory that it names.
const guardDir = "CADRE_TEST_GUARD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(guardDir); dir != "" {
		if err := guard.Run(context.Background(), guardConfig(dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func guardConfig(dir string) guard.Config {
	return guard.Config{RuntimeDir: filepath.Join(dir, "run"), NodesDir: filepath.Join(dir, "nodes"), PeerUID: os.Getuid(), Version: "test"}
}

// guardedRig is a rig with a real guard and the configuration file at path. Guard and nodes end with the test.
func guardedRig(t *testing.T, path string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "cadre") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // nodes have users of their own
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{guardDir + "=" + dir, "PATH=/usr/bin:/bin", "FOO=guard"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it stops its nodes first
		timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the guard ended badly: %v", err)
		}
		if t.Failed() {
			t.Logf("the guard said:\n%s", said.String())
		}
	})

	r := newRig(t, guard.SocketPath(guardConfig(dir).RuntimeDir), nil)
	if path != "" {
		cfg, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		r.cfg.Store(cfg)
	}
	r.run(t)
	wait(t, r.connected)
	return r
}

// guardedLaunch is the first launch of a donation of the template: free ports, and a user where nodes have one.
func guardedLaunch(t *testing.T, r *rig, template string) donation.Launch {
	t.Helper()
	plan, err := r.Plan(template)
	if err != nil {
		t.Fatal(err)
	}
	l := donation.Launch{Donation: donation.NewID(), Request: donation.Request{Template: template, Name: "example"}, Ports: map[string]int{}, UID: r.UIDs().Min}
	for _, name := range plan.PortNames {
		l.Ports[name] = freePort(t)
	}
	return again(l)
}

// again is the next launch of the same donation.
func again(l donation.Launch) donation.Launch {
	l.Spawn = donation.Spawn{ID: donation.NewSpawnID(), Donation: l.Donation, SeedToken: donation.NewSeedToken(), StartupToken: donation.NewStartupToken()}
	return l
}

// startReady starts a launch and waits until it is ready. A port says nothing by itself, so this one polls.
func startReady(t *testing.T, r *rig, l donation.Launch) donation.Process {
	t.Helper()
	if err := r.Check(t.Context(), l); err != nil {
		t.Fatalf("check: %v", err)
	}
	p, err := r.Start(t.Context(), l)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ready, err := r.Ready(t.Context(), l)
		if ready {
			return p
		}
		if seen, ok := r.view.find(l.Donation, l.Spawn.ID); err != nil || !ok || seen.Exit != nil {
			t.Fatalf("not ready: %v; %+v; it said:\n%s", err, seen.Exit, nodeLog(r, l))
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not ready in time; it said:\n%s", nodeLog(r, l))
		}
	}
}

func nodeLog(r *rig, l donation.Launch) string {
	b, err := os.ReadFile(r.LogPath(l.Donation))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// exitOf waits for a spawn's exit and acknowledges it.
func exitOf(t *testing.T, r *rig, l donation.Launch) donation.Exit {
	t.Helper()
	for {
		if p, ok := r.view.find(l.Donation, l.Spawn.ID); !ok {
			t.Fatal("the spawn is gone before its exit was seen")
		} else if p.State == guard.StateExited {
			if err := r.Ack(t.Context(), l.Spawn.ID); err != nil {
				t.Error(err)
			}
			return *toProcess(p).Exit
		}
		select {
		case <-r.changed:
		case <-time.After(time.Minute):
			t.Fatal("no exit")
		}
	}
}

// end terminates a donation in order and leaves nothing of it.
func end(t *testing.T, r *rig, l donation.Launch) {
	t.Helper()
	if err := r.Stop(t.Context(), l.Spawn.ID, donation.ReasonTerminate, false); err != nil {
		t.Fatal(err)
	}
	if exit := exitOf(t, r, l); exit.Reason != donation.ReasonTerminate || exit.Signal == int(syscall.SIGKILL) {
		t.Errorf("it didn't end in order: %s; it said:\n%s", exit, nodeLog(r, l))
	}
	if err := r.Reclaim(t.Context(), l.Donation); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(r.LogPath(l.Donation)))); !os.IsNotExist(err) {
		t.Errorf("the donation's directory is still there: %v", err)
	}
}
