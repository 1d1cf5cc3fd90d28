// This file starts a guard that outlives its starter: in a session of its own, where neither a Ctrl-C nor the end of
// a terminal reaches it.

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// lastWords is how much of a failed guard's log its error quotes.
const lastWords = 2048

// logRotate is the size in bytes from which a guard's log is put aside when the next one starts.
const logRotate = 5 << 20

// SpawnDetached starts exe (usually "/proc/self/exe") with args as a guard for the runtime directory, and waits until it
// answers. If it ends instead, the error holds its last words. Its output goes to LogPath.
func SpawnDetached(ctx context.Context, runtimeDir, exe string, args []string) (Hello, error) {
	if err := os.MkdirAll(runtimeDir, 0o700); err != nil {
		return Hello{}, fmt.Errorf("starting a guard: %w", err)
	}
	if info, err := os.Stat(LogPath(runtimeDir)); err == nil && info.Size() > logRotate {
		if err := os.Rename(LogPath(runtimeDir), LogPath(runtimeDir)+".1"); err != nil {
			return Hello{}, fmt.Errorf("starting a guard: %w", err)
		}
	}
	log, err := os.OpenFile(LogPath(runtimeDir), os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return Hello{}, fmt.Errorf("starting a guard: %w", err)
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return Hello{}, fmt.Errorf("starting a guard: %w", err)
	}
	// Not bound to ctx: the guard is to live on when the starter's work is done.
	cmd := exec.Command(exe, args...)
	cmd.Dir = "/"
	cmd.Env = inheritable(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Hello{}, fmt.Errorf("starting a guard: %w", err)
	}
	ended := make(chan error, 1)
	// Ends with the guard, or with this process: it only keeps the guard from becoming a zombie.
	go func() { ended <- cmd.Wait() }()

	client := NewClient(socketPath(runtimeDir))
	defer client.Close()
	for {
		hello, errHello := helloOf(ctx, client)
		if errHello == nil && hello.PID == cmd.Process.Pid {
			return hello, nil
		}
		select {
		case err := <-ended:
			if err == nil {
				err = errors.New("it has ended again")
			}
			return Hello{}, fmt.Errorf("the guard did not start: %w%s", err, tail(LogPath(runtimeDir), begin))
		case <-ctx.Done():
			return Hello{}, fmt.Errorf("waiting for the guard (pid %d) to answer: %w", cmd.Process.Pid, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func helloOf(ctx context.Context, c *Client) (Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.Hello(ctx)
}

// tail returns what was written to the file from an offset on, its end if it is long, for an error message.
func tail(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from = max(from, info.Size()-lastWords)
	b, err := io.ReadAll(io.NewSectionReader(f, from, lastWords))
	if text := strings.TrimSpace(string(b)); err == nil && text != "" {
		return ": " + text
	}
	return ""
}

// addressed are the variables that a service manager sets for the one process it started: a guard that inherited them
// would speak in the daemon's name.
var addressed = []string{
	"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "MAINPID",
	"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "CREDENTIALS_DIRECTORY", "FDSTORE",
}

// inheritable returns the environment without what was addressed to this process alone.
func inheritable(env []string) []string {
	return slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(addressed, name)
	})
}

// Spooled reports whether the runtime directory holds records of spawns: nodes that a guard has left, which live on
// until another adopts them.
func Spooled(runtimeDir string) bool {
	entries, err := os.ReadDir(spoolDir(runtimeDir))
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == ".json" })
}
