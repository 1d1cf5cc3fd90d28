// Package store keeps the records in SQLite: it implements donation.Store and is the only package that
// knows SQL.
//
// One goroutine writes (writer.go), a few connections read. Every change is a compare-and-set: its statement
// names the state that it starts from, and it commits together with the events that tell of it. No row is
// ever written back from a copy that was read earlier.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/jmoiron/sqlx"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/migrations"
)

// readers is how many queries can run at once. They are short and SQLite's work is CPU: more would
// only take memory (about 2 MiB of page cache each).
const readers = 4

// Options are what the store is told by the configuration.
type Options struct {
	// PortFirst and PortLast are the range that ports are allocated from, both included.
	PortFirst, PortLast int
}

// Store is an open database. Its methods may be called by many goroutines at once.
type Store struct {
	path   string
	write  *sqlx.DB
	conn   *sqlx.Conn
	writer *committer
	read   *sqlx.DB
	// stmts are prepared on read.
	stmts *statements
	// ports is used by the committer's goroutine only.
	ports *portRange

	mu      sync.Mutex // guards changed
	changed chan struct{}

	closeOnce sync.Once
	closeErr  error
}

var _ donation.Store = (*Store)(nil)

// Open opens the database in the state directory dir, creating both if they aren't there: the directory with
// mode 0700, the file with 0600, whatever the umask. It checks the file (ErrCorrupt), refuses one from a
// newer cadre-hostd (*VersionError) and migrates an older one. The caller holds the Lock of dir.
func Open(ctx context.Context, dir string, opts Options) (*Store, error) {
	return open(ctx, dir, opts, migrations.FS)
}

func open(ctx context.Context, dir string, opts Options, migrations fs.FS) (_ *Store, err error) {
	if opts.PortFirst < 1 || opts.PortLast > 65535 || opts.PortFirst > opts.PortLast {
		return nil, fmt.Errorf("the port range %d-%d is not within 1-65535; set ports.range", opts.PortFirst, opts.PortLast)
	}
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	s := &Store{
		path:    filepath.Join(dir, DatabaseFile),
		ports:   newPortRange(opts.PortFirst, opts.PortLast),
		changed: make(chan struct{}),
	}
	if s.write, err = openFile(ctx, s.path, migrations); err != nil {
		return nil, err
	}
	if s.conn, err = s.write.Connx(ctx); err != nil {
		return nil, errors.Join(translate(s.path, "open the database", err), s.write.Close())
	}
	if s.read, err = sqlx.Open("sqlite", readerDSN(s.path)); err != nil {
		return nil, errors.Join(translate(s.path, "open the database", err), s.conn.Close(), s.write.Close())
	}
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	s.stmts = newStatements(s.read)
	s.writer = startCommitter(s.conn, s.path, s.announce)
	return s, nil
}

// Close writes what is waiting, stops the committer and closes the database. It may be called twice.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.writer.stop()
		// The writer's connection goes last: only that one may write the log back into the file.
		s.closeErr = translate(s.path, "close the database", errors.Join(
			s.stmts.close(), s.read.Close(), s.writer.stmts.close(), s.conn.Close(), s.write.Close()))
	})
	return s.closeErr
}

// Path is the database file's.
func (s *Store) Path() string { return s.path }

// Changed implements donation.Store.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// announce wakes everybody who waits on Changed.
func (s *Store) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}
