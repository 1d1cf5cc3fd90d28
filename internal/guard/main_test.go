// This file makes the test binary three things: the tests, a guard, and nodes that obey a script.

package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// guardVariable holds a guard's configuration; the binary runs as that guard when it is set.
const guardVariable = "CADRE_TEST_GUARD"

// binary is a copy of the test binary that every user may execute. Set once, before the tests.
var binary string

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(guardVariable) != "":
		os.Exit(guardMain())
	case len(os.Args) == 3 && os.Args[1] == "script":
		os.Exit(nodeMain(strings.Fields(os.Args[2])))
	}
	dir, err := os.MkdirTemp("", "guard-test-")
	if err == nil {
		binary = filepath.Join(dir, "node")
		err = copyBinary(dir, binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Nodes of a guard that was killed become ours, and are reaped here, as an init would.
	err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	code := 1
	if err == nil {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func copyBinary(dir, to string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(to, exe, 0o755)
}

// guardMain runs a guard with the configuration in the environment.
func guardMain() int {
	var cfg Config
	if err := json.Unmarshal([]byte(os.Getenv(guardVariable)), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	logger, err := zap.NewDevelopment()
	if err != nil {
		return 2
	}
	cfg.Logger = logger
	if err := Run(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// nodeMain obeys a script.
func nodeMain(words []string) int {
	switch words[0] {
	case "dump":
		return dump()
	case "alloc":
		mib, _ := strconv.Atoi(words[1])
		b := make([]byte, mib<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println("allocated")
	case "notify":
		// notify <message with _ for a line feed>, then wait
		conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
		if err != nil {
			fmt.Println(err)
			return 1
		}
		io.WriteString(conn, strings.ReplaceAll(words[1], "_", "\n"))
		waitForTerm()
	case "double-fork":
		// A child in a session of its own, whose parent ends at once; with "clean" it forgets its environment.
		self, _ := os.Executable()
		cmd := exec.Command(self, "script", "daemon")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if len(words) > 2 && words[2] == "clean" {
			cmd.Env = []string{"A=1"}
		}
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		bufio.NewReader(out).ReadString('\n')
		os.WriteFile("daemon.pid", []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
		if words[1] == "stay" {
			waitForTerm()
		}
	case "hello":
		if _, err := NewClient(words[1]).Hello(context.Background()); err != nil {
			return 1
		}
	case "daemon":
		signal.Ignore(unix.SIGTERM, unix.SIGHUP)
		fmt.Println("up")
		select {}
	default:
		fmt.Println("unknown script", words)
		return 99
	}
	return 0
}

func waitForTerm() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGTERM)
	<-c
}

// dump prints what this process was given, as JSON on one line.
func dump() int {
	d := dumped{Env: os.Environ(), Args: os.Args[:1], RLimits: map[string]string{}, FDs: map[string]string{}}
	d.Cwd, _ = os.Getwd()
	d.UID, d.GID = os.Getuid(), os.Getgid()
	d.Groups, _ = os.Getgroups()
	d.Umask = unix.Umask(0)
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && !strings.Contains(to, "/proc/") && !strings.HasPrefix(to, "/sys/fs/cgroup/") && !strings.HasPrefix(to, "anon_inode") {
			d.FDs[fd.Name()] = to
		}
	}
	for line := range strings.Lines(readString("/proc/self/limits")) {
		if len(line) > 26 && !strings.HasPrefix(line, "Limit") {
			d.RLimits[strings.TrimSpace(line[:26])] = strings.Join(strings.Fields(line[26:]), " ")
		}
	}
	for line := range strings.Lines(readString("/proc/self/status")) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "NoNewPrivs", "CapBnd", "CapPrm", "CapEff", "CapInh", "CapAmb", "SigIgn", "SigBlk":
			d.Status = append(d.Status, name+"="+strings.TrimSpace(value))
		}
	}
	d.OOM = strings.TrimSpace(readString("/proc/self/oom_score_adj"))
	d.Nice, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
	sid, _ := unix.Getsid(0)
	d.Leader = sid == os.Getpid()
	json.NewEncoder(os.Stdout).Encode(d)
	return 0
}

// dumped is what dump prints.
type dumped struct {
	Env, Args, Status []string
	Cwd, OOM          string
	UID, GID, Umask   int
	Groups            []int
	Nice              int
	Leader            bool
	RLimits, FDs      map[string]string
}

func readString(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}
