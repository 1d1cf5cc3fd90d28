// This file holds the lock that makes a guard the only one: a kernel lock for life, never a pid file.

package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// HeldError says that another guard has the lock.
type HeldError struct {
	// PID is the holder's, 0 if its line in the lock file can't be read.
	PID int
	// Answers is false when the holder did not answer within a second: stopped, or wedged.
	Answers bool
	Path    string
}

func (e *HeldError) Error() string {
	if e.Answers {
		return fmt.Sprintf("a guard is running already (pid %d, lock %s)", e.PID, e.Path)
	}
	return fmt.Sprintf("the guard with pid %d holds %s but doesn't answer; "+
		"if it is stopped, continue it (kill -CONT %d), or start one with --replace", e.PID, e.Path, e.PID)
}

// holder is the line in the lock file. It names who holds the lock; that somebody does, the kernel says.
type holder struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"`
	BootID    string `json:"boot_id"`
	Instance  string `json:"instance"`
}

func (h holder) alive() bool {
	return h.PID > 0 && h.BootID == bootID() && sameProcess(h.PID, h.StartTime)
}

// The waits for a lock whose holder isn't alive any more (a child between fork and exec has it for an instant
// longer), and for a holder that was killed.
const (
	lockRetry   = time.Second
	lockReplace = 10 * time.Second
)

// guardLock is the held lock: an open-file-description lock, which unlike a POSIX one doesn't vanish with an unrelated
// close, and unlike flock can be queried without being taken.
type guardLock struct{ file *os.File }

// takeLock takes the lock of the runtime directory, or returns a *HeldError.
func takeLock(ctx context.Context, cfg Config, instance string) (*guardLock, error) {
	path := lockPath(cfg.RuntimeDir)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("guard lock: %w", err)
	}
	if err := waitForLock(ctx, cfg, f); err != nil {
		f.Close()
		return nil, err
	}
	err = shareLock(f, cfg.PeerUID)
	if err == nil {
		err = writeHolder(f, instance)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("guard lock %s: %w", path, err)
	}
	return &guardLock{file: f}, nil
}

func waitForLock(ctx context.Context, cfg Config, f *os.File) error {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	wait, killed := lockRetry, false
	for begun := time.Now(); ; {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return fmt.Errorf("guard lock %s: %w", f.Name(), err)
		}
		h := readHolder(f)
		switch alive := h.alive(); {
		case alive && cfg.Replace && !killed:
			if err := killHolder(h); err != nil {
				return fmt.Errorf("replacing the guard with pid %d: %w", h.PID, err)
			}
			wait, killed = lockReplace, true
		case alive && !killed, time.Since(begun) > wait:
			return &HeldError{PID: h.PID, Answers: answers(ctx, cfg.RuntimeDir), Path: f.Name()}
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// release lets go of the lock. The file stays: removing it would let two guards lock two files.
func (l *guardLock) release() error { return l.file.Close() }

// shareLock lets a daemon of another user see who holds the lock, and nobody else: whoever can read the file could put
// a read lock in a guard's way, and whoever could write it would choose whom Replace kills.
func shareLock(f *os.File, peer int) error {
	if os.Getuid() != 0 || peer <= 0 {
		return nil
	}
	u, err := user.LookupId(strconv.Itoa(peer))
	if err != nil {
		return nil // a user without a name has no group to share it with
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return fmt.Errorf("group of uid %d: %w", peer, err)
	}
	if err := f.Chown(-1, gid); err != nil {
		return err
	}
	return f.Chmod(0o640)
}

func writeHolder(f *os.File, instance string) error {
	st, err := readStat(os.Getpid())
	if err != nil {
		return err
	}
	line, err := json.Marshal(holder{PID: st.pid, StartTime: st.start, BootID: bootID(), Instance: instance})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(line, '\n'), 0)
	return err
}

func readHolder(f *os.File) holder {
	var h holder
	buf := make([]byte, 4096)
	n, _ := f.ReadAt(buf, 0) // a short read is the normal case
	if err := json.Unmarshal(buf[:n], &h); err != nil {
		return holder{}
	}
	return h
}

// killHolder kills exactly the process that wrote the lock file's line.
func killHolder(h holder) error {
	fd, err := openProcess(h.PID, h.StartTime)
	if err != nil {
		if errors.Is(err, errGone) {
			return nil
		}
		return err
	}
	defer unix.Close(fd)
	return signalProcess(fd, unix.SIGKILL)
}

// answers reports whether a guard answers on the socket within a second.
func answers(ctx context.Context, runtimeDir string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client := NewClient(socketPath(runtimeDir))
	defer client.Close()
	_, err := client.Hello(ctx)
	return err == nil
}

// Holder reports whether a guard holds the lock of the runtime directory, and its pid. It never takes the
// lock, so it can't get in the way of a guard that is starting.
func Holder(runtimeDir string) (pid int, held bool, err error) {
	f, err := os.Open(lockPath(runtimeDir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("guard lock: %w", err)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return 0, false, fmt.Errorf("guard lock %s: %w", f.Name(), err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0, false, nil
	}
	return readHolder(f).PID, true, nil
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
