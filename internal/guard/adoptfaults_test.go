// This file tests guards that can't take over, and what they must not do to the nodes then.

package guard

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// withFewDescriptors turns the guard's command into one that may open n descriptors and can't help itself to more.
func withFewDescriptors(t *testing.T, cmd *exec.Cmd, n string) {
	t.Helper()
	words := []string{"/bin/sh", "-c", "ulimit -n " + n + "; exec " + cmd.Path}
	if os.Getuid() == 0 {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("root may open as many as it likes here: there is no setpriv")
		}
		words = append([]string{setpriv, "--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"}, words...)
	}
	cmd.Path, cmd.Args = words[0], words
}

func TestP03_GuardWithTooFewDescriptorsTouchesNoNode(t *testing.T) {
	r := newRig(t)
	const nodes = 20
	before := map[string]Process{}
	for range nodes {
		p := r.start(r.sh("sleep 1000"))
		before[p.Spawn] = p
	}
	r.kill()

	cmd := r.command()
	withFewDescriptors(t, cmd, "40") // enough for itself and some of them
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	if err == nil || !strings.Contains(r.said(), "raise LimitNOFILE") {
		t.Errorf("the guard ended with %v and said:\n%s", err, r.said())
	}
	r.boot()
	for spawn, p := range before {
		got := r.await(spawn, "adopted", func(p Process) bool { return p.Adopted })
		if got.State != StateRunning || got.PID != p.PID || !alive(p.PID) {
			t.Errorf("before %+v, after %+v", p, got)
		}
		reapAdopted(t, p.PID)
	}
}

func TestP06_SpawnThatNeverHadAPIDHasNoSession(t *testing.T) {
	// Where pid 1 and the kernel's threads have session 0 and have started with the clock.
	system := []procStat{
		{pid: 1, state: 'S'}, {pid: 2, state: 'S'}, {pid: 3, ppid: 2, state: 'S'}, {pid: 400, ppid: 1, session: 400, start: 90, state: 'S'},
	}
	tree := &sessionTree{scan: &scanner{}, spawn: spawnID(), adopted: true}
	tree.leaderReaped(0)
	if found := tree.find(system); len(found) > 0 {
		t.Errorf("taken for the node's: %+v", found)
	}
}

func TestScarce(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{
		unix.EMFILE: true, unix.ENFILE: true, unix.ENOMEM: true, unix.ESRCH: false, unix.EINVAL: false, unix.EACCES: false,
	} {
		if got := scarce(&os.PathError{Op: "open", Path: "x", Err: errno}); got != want {
			t.Errorf("%v is scarcity: %v", errno, got)
		}
	}
	if scarce(nil) || scarce(errGone) {
		t.Error("no error and a gone process are none")
	}
}
