// This file holds the store's errors and the one place where the driver's codes become sentences.

package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/serfab/cadre-hostd/internal/donation"
)

var (
	// ErrCorrupt: the file is damaged, or is no database of cadre-hostd at all. It is left as it is.
	ErrCorrupt = errors.New("not a usable database")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("the store is closed")
)

// VersionError refuses a database that a newer cadre-hostd has written.
type VersionError struct {
	Path string
	// Database is the schema version of the file, Program the newest that this binary knows.
	Database, Program int64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has schema version %d, but this cadre-hostd knows versions up to %d only; install the newer cadre-hostd that wrote it, or restore a backup from before the upgrade",
		e.Path, e.Database, e.Program)
}

// corrupt reports damage of the file at path with its remedy.
func corrupt(path, what string) error {
	return fmt.Errorf("%s is %w: %s; move it (and %s-wal, if there) aside, or restore a backup over both", path, ErrCorrupt, what, path)
}

// translate turns an error of the driver into one that names the file, the reason and the remedy. Errors
// of the domain and of contexts pass through; what it doesn't know is wrapped with the operation's name.
func translate(path, op string, err error) error {
	var known *donation.Error
	var newer *VersionError
	var driver *sqlite.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, donation.ErrConflict), errors.As(err, &known), errors.As(err, &newer), errors.Is(err, ErrCorrupt), errors.Is(err, ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case !errors.As(err, &driver):
		return fmt.Errorf("%s: %w", op, err)
	}
	unavailable := func(what string) error {
		return &donation.Error{Code: donation.CodeUnavailable, Message: fmt.Sprintf("%s: %s", op, what), Err: err}
	}
	// The low byte is the primary code; the rest says more than anybody can act on.
	code := driver.Code() & 0xff
	if code == sqlite3.SQLITE_IOERR && diskFull(path) {
		code = sqlite3.SQLITE_FULL // it failed while it made room for the log's index, which has no code of its own
	}
	switch code {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%s: %w", op, corrupt(path, driver.Error()))
	case sqlite3.SQLITE_FULL:
		return unavailable(fmt.Sprintf("the disk that holds %s is full; nothing was changed; free some space and try again", path))
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return unavailable(fmt.Sprintf("another process has kept %s locked for %s; end it (fuser %s names it)", path, busyTimeout, path))
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return unavailable(fmt.Sprintf("%s can't be written (%s); make the file, its directory and its file system writable for this user", path, driver.Error()))
	case sqlite3.SQLITE_IOERR:
		return unavailable(fmt.Sprintf("reading or writing %s failed (%s); look at the disk (dmesg) before anything else", path, driver.Error()))
	}
	return fmt.Errorf("%s in %s: %w", op, path, err)
}

// diskFull reports whether there is no room left for even the index of the write-ahead log (32 KiB).
func diskFull(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(filepath.Dir(path), &fs) == nil && fs.Bavail*uint64(fs.Bsize) < 64<<10
}

// notFound is the answer for a donation that doesn't exist.
func notFound(id donation.ID) error {
	return donation.Errorf(donation.CodeNotFound, "there is no donation %s; `cadre-hostd status` lists them", id)
}

// spawnNotFound is the answer for a spawn that doesn't exist.
func spawnNotFound(id donation.SpawnID) error {
	return donation.Errorf(donation.CodeNotFound, "there is no spawn %s on record", id)
}
