// This file tests the daemon in surroundings that it doesn't control: without root, with a guard of somebody else's,
// with a socket that vanishes, with processes that are on no record.

package daemon_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

// nobody is a user that exists everywhere and owns nothing.
const nobody = 65534

func TestDaemonWithoutRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the other tests run without root then")
	}
	h := newHost(t, templates)
	h.exe = h.path("cadre-hostd")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(h.dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	h.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	o := h.run("running")
	if o.Guard.Root {
		t.Error("the guard says that it is root")
	}
	v := h.donate("reference", "node")
	if v.UID != 0 {
		t.Errorf("the node has uid %d, want the guard's own", v.UID)
	}
	signalTo(t, v.PID, unix.SIGKILL)
	h.await("node", "back", func(now api.View) bool {
		return now.Ready && now.PID != v.PID && now.Ports["health"] == v.Ports["health"]
	})
	h.terminate("node")
}

func TestExternalGuardIsNeverStarted(t *testing.T) {
	h := newHost(t, templates)
	h.args = []string{"--guard=external"}
	o := h.run("running")
	if o.Guard.State != "absent" || !slices.ContainsFunc(o.Faults, func(f api.Fault) bool { return f.Code == "guard_absent" }) {
		t.Errorf("without a guard status says %+v, %+v", o.Guard, o.Faults)
	}
	if _, err := h.client.Donate(t.Context(), donation.Request{Template: "sleeper"}); donation.CodeOf(err) != donation.CodeUnavailable {
		t.Errorf("donate without a guard: %v", err)
	}
	pid := h.externalGuard()
	h.eventually("the daemon finds it", func() bool {
		o, err := h.client.Overview(t.Context())
		return err == nil && o.Guard.State == "connected" && o.Guard.PID == pid && o.Guard.Instance != ""
	})
	h.donate("sleeper", "node")
	h.terminate("node")
}

// externalGuard starts a guard as a service manager would, and returns its pid; it ends with the test.
func (h *host) externalGuard(args ...string) (pid int) {
	h.t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"guard", "--runtime-dir", h.path("s", "run"), "--nodes-dir", h.path("s-nodes"), "--exit-when-idle"}, args...)...)
	cmd.Env = []string{"HOME=" + h.dir, "GORACE=atexit_sleep_ms=0"}
	if err := theInit.start(cmd); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("the guard ended badly: %v", err)
		}
	})
	return cmd.Process.Pid
}

func TestLeaseLongerThanTheGuardAllows(t *testing.T) {
	text := templates + "\n[lease]\nttl = \"30s\"\n"
	h := newHost(t, text)
	h.args = []string{"--guard=external"}
	h.externalGuard("--max-ttl=1m")
	h.run("running")
	h.eventually("the daemon has its guard", func() bool {
		o, err := h.client.Overview(t.Context())
		return err == nil && o.Guard.Instance != ""
	})
	v := h.donate("sleeper", "node")
	h.configure(strings.Replace(text, "30s", "10m", 1))
	signalTo(t, h.cmd.Process.Pid, unix.SIGHUP)
	h.await("node", "renewed for as long as may be", func(v api.View) bool { return v.Lease != nil && v.Lease.TTLSeconds == 60 && v.Lease.RenewedAt != nil })
	h.mustBe(v)
	o, err := h.client.Overview(t.Context())
	if err != nil || !slices.ContainsFunc(o.Faults, func(f api.Fault) bool { return f.Code == "lease" && strings.Contains(f.Message, "max_ttl") }) {
		t.Errorf("faults %+v, %v", o.Faults, err)
	}
	if _, err := h.client.Donate(t.Context(), donation.Request{Template: "sleeper"}); donation.CodeOf(err) != donation.CodeSpawnFailed || !strings.Contains(err.Error(), "max_ttl") {
		t.Errorf("donate with a lease that is too long: %v", err)
	}
}

func TestF31_TerminalThatHangsUpEndsTheDaemonAlone(t *testing.T) {
	h := newHost(t, templates)
	terminal, tty := openTerminal(t)
	h.attr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	h.stdin = tty
	h.run("running")
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	v := h.donate("sleeper", "node")
	// While the terminal is there, SIGHUP is a reload.
	h.configure(templates + "\n[template.new]\ncommand = \"/bin/sleep\"\nargs = [\"1000000\"]\n")
	signalTo(t, h.cmd.Process.Pid, unix.SIGHUP)
	h.eventually("the configuration is taken over", func() bool {
		o, err := h.client.Overview(t.Context())
		return err == nil && slices.Contains(o.Templates, "new")
	})
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-h.exited; err != nil {
		t.Errorf("the daemon ended badly: %v\n%s", err, h.said)
	}
	h.cmd = nil
	if !running(v.PID) {
		t.Error("the node went with the terminal")
	}
}

// openTerminal returns both ends of a pseudo terminal; closing the first is hanging up.
func openTerminal(t *testing.T) (terminal, tty *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return terminal, tty
}

func TestAdminSocketComesBack(t *testing.T) {
	h := newHost(t, templates+"\n[supervision]\nsweep_interval = \"1s\"\n")
	h.run("running")
	if err := os.Remove(h.path("s", "run", "admin.sock")); err != nil {
		t.Fatal(err)
	}
	h.eventually("the socket is back", func() bool {
		conn, err := net.Dial("unix", h.path("s", "run", "admin.sock"))
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

func TestStraysAreShownAndEndedByID(t *testing.T) {
	h := newHost(t, templates)
	h.run("running")
	v := h.donate("stubborn", "node")
	h.stop()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(h.path("s", "cadre.db"+suffix)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	h.run("running")
	var faults []api.Fault
	h.eventually("the stray is shown", func() bool {
		o, err := h.client.Overview(t.Context())
		faults = o.Faults
		return err == nil && slices.ContainsFunc(o.Faults, func(f api.Fault) bool { return f.Code == "stray" && strings.Contains(f.Message, string(v.ID)) })
	})
	if !running(v.PID) {
		t.Fatalf("the stray was killed: %v", faults)
	}
	h.terminate(string(v.ID))
	if running(v.PID) {
		t.Error("the stray still runs")
	}
	if _, err := os.Stat(v.Workdir); !os.IsNotExist(err) {
		t.Errorf("its workdir is still there: %v", err)
	}
	if o, err := h.client.Overview(t.Context()); err != nil || len(o.Faults) != 0 {
		t.Errorf("afterwards: %v, %v", o.Faults, err)
	}
}
