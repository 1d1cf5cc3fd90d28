// This file tests the kernel lock with a real second process.

package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lockAndWait is the second process: it locks dir, says so, and waits for its stdin to end.
func lockAndWait(dir string) {
	lock, err := Lock(dir)
	var locked *LockedError
	switch {
	case errors.As(err, &locked):
		fmt.Println("held by", locked.PID)
		return
	case err != nil:
		fmt.Println("error", err)
		return
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = lock.Close()
}

// startRole runs this test binary in another role. The line that it prints first is returned; wait ends
// it by closing its stdin.
func startRole(t *testing.T, what, arg string) (cmd *exec.Cmd, first string, wait func()) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], arg)
	cmd.Env = append(os.Environ(), role+"="+what)
	stdin, err := cmd.StdinPipe()
	noError(t, err)
	stdout, err := cmd.StdoutPipe()
	noError(t, err)
	cmd.Stderr = os.Stderr
	noError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Errorf("the %s process said nothing: %v", what, err)
	}
	return cmd, strings.TrimSpace(line), func() {
		_ = stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	}
}

func TestP09_SecondDaemonIsRefusedAndNamesTheFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, said, end := startRole(t, "lock", dir)
	defer end()
	if said != "locked" {
		t.Fatalf("the first process said %q", said)
	}
	_, err := Lock(dir)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != first.Process.Pid {
		t.Fatalf("error = %v, want a LockedError that names %d", err, first.Process.Pid)
	}
	if !strings.Contains(err.Error(), fmt.Sprint(first.Process.Pid)) || !strings.Contains(err.Error(), filepath.Join(dir, LockFile)) {
		t.Errorf("the message %q lacks the pid or the path", err)
	}

	noError(t, first.Process.Kill())
	_, _ = first.Process.Wait() // the kernel has dropped its lock when it has been waited for
	lock, err := Lock(dir)
	noError(t, err)
	defer lock.Close()
	_, said, end = startRole(t, "lock", dir)
	end()
	if want := fmt.Sprint("held by ", os.Getpid()); said != want {
		t.Errorf("a second process said %q, want %q", said, want)
	}
}

func TestF10_StaleContentOfTheLockFileNeverMatters(t *testing.T) {
	for name, content := range map[string]string{
		"a living pid": fmt.Sprint(os.Getpid()), "pid 1": "1\n", "rubbish": "\x00\xff", "much": strings.Repeat("9", 10000), "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, LockFile)
			noError(t, os.WriteFile(path, []byte(content), 0o644))
			lock, err := Lock(dir)
			noError(t, err)
			b, err := os.ReadFile(path)
			noError(t, err)
			if want := fmt.Sprintln(os.Getpid()); string(b) != want {
				t.Errorf("the lock file says %q, want %q", b, want)
			}
			wantMode(t, path, 0o600)
			noError(t, lock.Close())
			again, err := Lock(dir)
			noError(t, err)
			noError(t, again.Close())
		})
	}
}

func TestLockFileIsNotFollowedThroughALink(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	noError(t, os.WriteFile(elsewhere, []byte("keep"), 0o600))
	noError(t, os.Symlink(elsewhere, filepath.Join(dir, LockFile)))
	if lock, err := Lock(dir); err == nil {
		lock.Close()
		t.Fatal("locked through a symbolic link")
	}
	b, err := os.ReadFile(elsewhere)
	noError(t, err)
	wantSame(t, "the link's target", string(b), "keep")
}

// startWriter runs writeForEver on dir; every whole line that it prints comes through lines, which is closed when
// the process is gone. end kills it with SIGKILL.
func startWriter(t *testing.T, dir string, lines chan<- string) (end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), role+"=write")
	stdout, err := cmd.StdoutPipe()
	noError(t, err)
	cmd.Stderr = os.Stderr
	noError(t, cmd.Start())
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			lines <- sc.Text()
		}
		_ = cmd.Wait() // after the last line has been read
	}()
	return func() { _ = cmd.Process.Kill() }
}
