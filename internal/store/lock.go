// This file holds the kernel lock that keeps a second daemon out of a state directory.

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LockFile is the name of the lock file in the state directory.
const LockFile = "daemon.lock"

// LockedError says that another daemon holds the state directory.
type LockedError struct {
	// Path is the lock file's.
	Path string
	// PID is the holder's, 0 in the instant before it has written it.
	PID int
}

func (e *LockedError) Error() string {
	holder := "another cadre-hostd"
	if e.PID != 0 {
		holder = fmt.Sprintf("another cadre-hostd, process %d,", e.PID)
	}
	return fmt.Sprintf("%s holds %s; stop it first, or use another state directory", holder, e.Path)
}

// DirLock is the held lock. The kernel drops it when the process ends, however it ends.
type DirLock struct{ f *os.File }

// Lock takes the lock of the state directory dir, creating dir (0700) if it isn't there. It doesn't
// wait: if another process (or another part of this one) holds it, the error is a *LockedError. What the
// lock file contains never decides, only the lock does; the pid in it is for the message.
func Lock(dir string) (*DirLock, error) {
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file of the state directory: %w; make %s writable for this user", err, dir)
	}
	if err := flock(f); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &LockedError{Path: path, PID: readPID(f)}
		}
		return nil, fmt.Errorf("lock %s: %w; the state directory must be on a file system with locks", path, err)
	}
	if err := writePID(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the pid into %s: %w; make its file system writable and free some space", path, err)
	}
	return &DirLock{f}, nil
}

// Close gives the lock up. The file stays: removing it would let two processes lock two files of one name.
func (l *DirLock) Close() error {
	if err := errors.Join(l.f.Truncate(0), l.f.Close()); err != nil {
		return fmt.Errorf("release %s: %w", l.f.Name(), err)
	}
	return nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writePID replaces what an earlier holder left. An umask may have narrowed the mode at birth and an
// older file may be wider, so it is set here.
func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return err
	}
	return f.Chmod(0o600)
}

func readPID(f *os.File) int {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0) // an error leaves n at 0: no pid to name
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}
