// This file tests the orchestrator and the real guard together.

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
)

const realTemplates = `
[template.env]
command = "env"
env = { B = "{{.Name}}", LANG = "C" }

[template.node]
command = "sh"
args = ["-c", 'cat conf/token >.started; exec sleep 1000']
ports = ["http"]
ready = { file = ".started", content = "{{.StartupToken}}" }
[template.node.files."conf/token"]
content = "{{.StartupToken}}\n"

[template.missing]
command = "no-such-program"

[template.unknown-user]
command = "env"
user = "nobody-by-this-name"
`

func realRig(t *testing.T) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(realTemplates), 0o600); err != nil {
		t.Fatal(err)
	}
	return guardedRig(t, path)
}

// TestF76_EnvironmentIsTheTemplates: neither the daemon's nor the guard's environment reaches a node, and it is the
// same at the first spawn and at a respawn.
func TestF76_EnvironmentIsTheTemplates(t *testing.T) {
	t.Setenv("FOO", "daemon") // the guard has FOO=guard
	r := realRig(t)
	l := guardedLaunch(t, r, "env")
	for range 2 {
		if _, err := r.Start(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if exit := exitOf(t, r, l); !exit.Known || exit.Code != 0 || exit.Reason != donation.ReasonCrash {
			t.Errorf("exit: %+v", exit)
		}
		got := strings.Split(strings.TrimSpace(nodeLog(r, l)), "\n")
		slices.Sort(got)
		want := []string{
			"B=example", "CADRE_DONATION=" + string(l.Donation), "CADRE_SPAWN=" + string(l.Spawn.ID),
			"HOME=" + workdir(r, l), "LANG=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
		if err := os.Truncate(r.LogPath(l.Donation), 0); err != nil {
			t.Fatal(err)
		}
		l = again(l)
	}
}

// TestP13_SameSpawnTwiceIsOneProcess: asking again finds what is there, and another spawn of the donation has to wait.
func TestP13_SameSpawnTwiceIsOneProcess(t *testing.T) {
	r := realRig(t)
	l := guardedLaunch(t, r, "node")
	first := startReady(t, r, l)
	second, err := r.Start(t.Context(), l)
	if err != nil || second.Identity != first.Identity {
		t.Errorf("asked again: %+v, %v; it was %+v", second, err, first)
	}
	if _, err := r.Start(t.Context(), again(l)); !errors.Is(err, donation.ErrBusy) {
		t.Errorf("another spawn of the donation: %v", err)
	}
	if err := r.Reclaim(t.Context(), l.Donation); !errors.Is(err, donation.ErrBusy) {
		t.Errorf("reclaim while it lives: %v", err)
	}
	if got := r.Processes(); len(got) != 1 || got[0].Identity != first.Identity || first.Identity.PID == 0 {
		t.Errorf("processes: %+v", got)
	}
	end(t, r, l)
}

// TestP08_StartsThatCannotBe: a definite refusal with the reason in words, never a process.
func TestP08_StartsThatCannotBe(t *testing.T) {
	r := realRig(t)
	for template, want := range map[string]string{
		"missing":      "no-such-program: no such program",
		"unknown-user": `template unknown-user, user: there is no user "nobody-by-this-name" on this machine`,
	} {
		l := guardedLaunch(t, r, template)
		_, err := r.Start(t.Context(), l)
		var refused *donation.StartError
		var blocked *donation.BlockedError
		if !errors.As(err, &refused) && !errors.As(err, &blocked) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", template, err)
		}
		if seen := r.Observe(l.Donation); !seen.Connected || len(seen.Processes) != 0 {
			t.Errorf("%s: observed %+v", template, seen)
		}
	}
}

// TestNodesUserIsItsOwn: a root guard gives the node the launch's user, and the placeholder tells which.
func TestNodesUserIsItsOwn(t *testing.T) {
	r := realRig(t)
	l := guardedLaunch(t, r, "node")
	p := startReady(t, r, l)
	want := l.UID
	if want == 0 {
		want = uint32(os.Getuid())
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Identity.PID))
	if err != nil {
		t.Fatal(err)
	}
	if line := fmt.Sprintf("\nUid:\t%d\t%d\t", want, want); !strings.Contains(string(status), line) {
		t.Errorf("not uid %d:\n%s", want, status)
	}
	end(t, r, l)
}
