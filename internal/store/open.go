// This file finds, creates, checks and migrates the database file, and refuses what can't be trusted.

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver
)

// DatabaseFile is the name of the database in the state directory.
const DatabaseFile = "cadre.db"

// busyTimeout is how long a statement waits for a lock that another process holds (a backup, a person
// with sqlite3) before it fails.
const busyTimeout = 5 * time.Second

// walLimit is what the write-ahead log is cut back to, in bytes, once a long reader that made it grow is gone.
// SQLite starts it anew at about half of that by itself.
const walLimit = 8 << 20

// prepareDir makes dir a directory that only its owner may enter: it holds tokens.
func prepareDir(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create the state directory: %w; create %s yourself or use another state directory", err, dir)
		}
		if err := os.Chmod(dir, 0o700); err != nil { // the umask may have taken the owner's own bits
			return fmt.Errorf("narrow the new state directory: %w", err)
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the state directory: %w; make a directory of it, or use another state directory", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("the state directory %s is not a directory; move it aside or use another state directory", dir)
	}
	return narrow(dir, info, 0o700)
}

// narrow takes the bits beyond want from path's mode, if we own it; somebody else's path that is wider is
// refused, because what its owner may do with it is not ours to guess.
func narrow(path string, info fs.FileInfo, want fs.FileMode) error {
	if info.Mode().Perm()&^want == 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s has mode %#o and belongs to uid %d: others could read the tokens in it; chmod %#o it, or chown it to uid %d",
			path, info.Mode().Perm(), st.Uid, want, os.Geteuid())
	}
	if err := os.Chmod(path, info.Mode().Perm()&want); err != nil {
		return fmt.Errorf("narrow %s to %#o: %w; it must belong to this user and be writable", path, want, err)
	}
	return nil
}

// openFile returns the writer's handle of the database at path, which exists, is sound, and has the
// schema of migrations when it returns.
func openFile(ctx context.Context, path string, migrations fs.FS) (*sqlx.DB, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := create(ctx, path, migrations); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("look at the database: %w", err)
	case !info.Mode().IsRegular():
		return nil, corrupt(path, "it is no regular file")
	case info.Size() == 0:
		return nil, corrupt(path, "it is empty, which a database that cadre-hostd has created never is")
	default:
		if err := narrow(path, info, 0o600); err != nil {
			return nil, err
		}
	}
	if err := checkWritable(path); err != nil {
		return nil, err
	}
	return connect(ctx, path, path, migrations)
}

// create builds the database beside its final name and renames it when it is complete, so that a crash
// or a full disk never leaves half a database, and an empty file is always a damaged one.
func create(ctx context.Context, path string, migrations fs.FS) error {
	if _, err := os.Lstat(path + "-wal"); err == nil {
		// SQLite would play the old log into the new file.
		return corrupt(path, "it is missing although its write-ahead log "+path+"-wal is there")
	}
	draft := path + ".new"
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(draft + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what an interrupted start left: %w", err)
		}
	}
	// Narrow from birth: SQLite would create it with 0644, and gives -wal and -shm the mode of the file.
	f, err := os.OpenFile(draft, os.O_CREATE|os.O_EXCL|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create the database %s: %w; make the state directory writable for this user", path, err)
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return fmt.Errorf("create the database %s: %w", path, err)
	}
	db, err := connect(ctx, draft, path, migrations)
	if err != nil {
		return err
	}
	// The last connection to close writes the log back into the file and removes it.
	if err := db.Close(); err != nil {
		return translate(path, "finish the new database", err)
	}
	if err := os.Rename(draft, path); err != nil {
		return fmt.Errorf("put the new database in place: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the state directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync the state directory: %w", err)
	}
	return nil
}

// checkWritable asks the kernel before SQLite does: SQLite falls back to reading and complains much later.
func checkWritable(path string) error {
	dir := filepath.Dir(path)
	for _, p := range []struct {
		path string
		mode uint32
		why  string
	}{
		{dir, unix.W_OK | unix.X_OK, "its log lives beside the database"},
		{path, unix.R_OK | unix.W_OK, "it is the database"},
	} {
		if err := unix.Faccessat(unix.AT_FDCWD, p.path, p.mode, unix.AT_EACCESS); err != nil {
			return fmt.Errorf("%s must be readable and writable for this user (%s): %w; fix its owner or mode, or remount its file system read-write", p.path, p.why, err)
		}
	}
	return nil
}

// connect opens the file for writing, checks that it is sound and ours, and brings its schema up to
// date. Errors name the database as shown.
func connect(ctx context.Context, file, shown string, migrations fs.FS) (*sqlx.DB, error) {
	db, err := sqlx.Open("sqlite", writerDSN(file))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", shown, err)
	}
	db.SetMaxOpenConns(1) // SQLite has one writer at a time: more would only queue in its busy loop
	db.SetMaxIdleConns(1)
	if err := check(ctx, db, shown); err != nil {
		return nil, errors.Join(translate(shown, "open the database", err), db.Close())
	}
	if err := migrate(ctx, db, shown, migrations); err != nil {
		return nil, errors.Join(translate(shown, "migrate the database", err), db.Close())
	}
	return db, nil
}

// check reads the whole file once and returns an ErrCorrupt if its structure is damaged.
func check(ctx context.Context, db *sqlx.DB, shown string) error {
	var findings []string
	if err := db.SelectContext(ctx, &findings, `PRAGMA quick_check(3)`); err != nil {
		return err
	}
	if len(findings) != 1 || findings[0] != "ok" {
		return corrupt(shown, fmt.Sprintf("%q", findings))
	}
	return nil
}

// migrate applies the migrations that are missing, each in a transaction of its own. A database with a
// version that isn't among them comes from a newer cadre-hostd and is refused untouched.
func migrate(ctx context.Context, db *sqlx.DB, shown string, migrations fs.FS) error {
	provider, err := goose.NewProvider(goose.DialectSQLite3, db.DB, migrations, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	sources := provider.ListSources()
	newest := sources[len(sources)-1].Version
	var tables, versioned int
	if err := db.QueryRowxContext(ctx, `SELECT count(*), count(*) FILTER (WHERE name = ?) FROM sqlite_schema WHERE type = 'table'`,
		goose.DefaultTablename).Scan(&tables, &versioned); err != nil {
		return err
	}
	if tables > 0 && versioned == 0 {
		return corrupt(shown, "it is a database of another program (it has tables but no schema version of ours)")
	}
	if versioned > 0 {
		var current int64
		if err := db.GetContext(ctx, &current, `SELECT coalesce(max(version_id), 0) FROM `+goose.DefaultTablename); err != nil {
			return err
		}
		if current > newest {
			return &VersionError{Path: shown, Database: current, Program: newest}
		}
	}
	if _, err := provider.Up(ctx); err != nil {
		return err
	}
	return nil
}

// writerDSN opens path for the one writer. Everything that a connection needs is in the DSN, because what
// is executed on a pool reaches one of its connections only. The busy timeout comes first: switching to WAL
// needs a lock too.
func writerDSN(path string) string {
	return dsn(path, url.Values{
		"_txlock": {"immediate"}, // a deferred transaction that turns into a write fails at once
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
			"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)", fmt.Sprintf("journal_size_limit(%d)", walLimit),
		},
	})
}

// readerDSN opens path for reading only.
func readerDSN(path string) string {
	return dsn(path, url.Values{
		"mode": {"ro"},
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "query_only(ON)",
		},
	})
}

// dsn builds a file: URI. The path is made absolute, so that it starts with one slash, and escaped, so
// that ? # and % in a directory's name are what they are.
func dsn(path string, params url.Values) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params.Encode()
}
