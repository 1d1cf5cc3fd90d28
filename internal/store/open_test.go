// This file tests what Open makes of directories and files: narrow modes, odd names, damage, other
// versions.

package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/migrations"
)

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	noError(t, err)
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %#o, want %#o", path, got, want)
	}
}

func TestOpenIsNarrowFromBirthWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o777} {
		base := t.TempDir()
		dir := filepath.Join(base, "state")
		old := unix.Umask(umask)
		s, err := Open(t.Context(), dir, testOptions)
		unix.Umask(old)
		noError(t, err)
		provision(t, s)
		wantMode(t, dir, 0o700)
		for _, name := range []string{DatabaseFile, DatabaseFile + "-wal", DatabaseFile + "-shm"} {
			wantMode(t, filepath.Join(dir, name), 0o600)
		}
		noError(t, s.Close())
		left, err := os.ReadDir(dir)
		noError(t, err)
		if len(left) != 1 {
			t.Errorf("after Close the directory holds %v, want the database alone", left)
		}
	}
}

func TestOpenNarrowsWhatIsWider(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	noError(t, openAtOnce(t, dir))
	noError(t, os.Chmod(dir, 0o755))
	noError(t, os.Chmod(filepath.Join(dir, DatabaseFile), 0o644))
	noError(t, openAtOnce(t, dir))
	wantMode(t, dir, 0o700)
	wantMode(t, filepath.Join(dir, DatabaseFile), 0o600)
}

func TestOpenRefusesSomebodyElsesWiderDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := t.TempDir()
	noError(t, os.Chmod(dir, 0o755))
	noError(t, os.Chown(dir, 12345, -1))
	_, err := Open(t.Context(), dir, testOptions)
	wantWords(t, err, dir, "12345", "chmod 0700")
}

func openAtOnce(t *testing.T, dir string) error {
	t.Helper()
	s, err := Open(t.Context(), dir, testOptions)
	if err != nil {
		return err
	}
	return s.Close()
}

// wantWords checks that an error says the thing and the remedy, in one line.
func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error %q lacks %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error %q has several lines", err)
	}
}

func TestOpenWithOddNames(t *testing.T) {
	for _, name := range []string{"with space", "what?mode=memory", "a#b", "100%41", "c&d=e+f", "käse", "'quote\"", "mode:ro"} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, name)
			s := openAt(t, dir)
			rec := provision(t, s)
			wantSame(t, "the record read back", get(t, s, rec.ID), rec)
			if _, err := os.Stat(filepath.Join(dir, DatabaseFile)); err != nil {
				t.Error(err)
			}
			entries, err := os.ReadDir(base)
			noError(t, err)
			if len(entries) != 1 {
				t.Errorf("something was created beside the directory: %v", entries)
			}
		})
	}
}

func TestOpenWithARelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	noError(t, openAtOnce(t, "state"))
	noError(t, os.Truncate(filepath.Join("state", DatabaseFile), 0))
	err := openAtOnce(t, "state")
	wantWords(t, err, "state/cadre.db is not a usable database", "move it", "restore a backup")
	if strings.Contains(err.Error(), "/state/cadre.db is") {
		t.Errorf("the error %q doesn't name the file as the caller did", err)
	}
}

func TestEveryConnectionHasItsPragmas(t *testing.T) {
	s := openTest(t)
	for pragma, want := range map[string]string{"busy_timeout": "5000", "journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		noError(t, s.conn.GetContext(t.Context(), &got, "PRAGMA "+pragma))
		if got != want {
			t.Errorf("the writer has %s = %s, want %s", pragma, got, want)
		}
	}
	for range readers {
		conn, err := s.read.Connx(t.Context())
		noError(t, err)
		defer conn.Close()
		var timeout int
		noError(t, conn.GetContext(t.Context(), &timeout, "PRAGMA busy_timeout"))
		wantSame(t, "a reader's busy_timeout", timeout, 5000)
		if _, err := conn.ExecContext(t.Context(), "DELETE FROM events"); err == nil {
			t.Error("a reader can write")
		}
	}
}

func TestF48_DamagedDatabaseIsRefusedAndKept(t *testing.T) {
	damage := map[string]func(t *testing.T, path string){
		"not a database": func(t *testing.T, path string) {
			noError(t, os.WriteFile(path, []byte(strings.Repeat("hello ", 900)), 0o600))
		},
		"emptied":          func(t *testing.T, path string) { noError(t, os.Truncate(path, 0)) },
		"cut in half":      func(t *testing.T, path string) { noError(t, os.Truncate(path, sizeOf(t, path)/2)) },
		"cut after page 1": func(t *testing.T, path string) { noError(t, os.Truncate(path, 4096)) },
		"a few bytes":      func(t *testing.T, path string) { noError(t, os.Truncate(path, 50)) },
		"every page but the first overwritten": func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			noError(t, err)
			defer f.Close()
			_, err = f.WriteAt([]byte(strings.Repeat("\xa5", int(sizeOf(t, path))-4096)), 4096)
			noError(t, err)
		},
		"a directory": func(t *testing.T, path string) {
			noError(t, os.Remove(path))
			noError(t, os.Mkdir(path, 0o700))
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			s := openAt(t, dir)
			for range 50 {
				provision(t, s)
			}
			noError(t, s.Close())
			path := filepath.Join(dir, DatabaseFile)
			do(t, path)
			before := sizeOf(t, path)
			_, err := Open(t.Context(), dir, testOptions)
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error = %v, want ErrCorrupt", err)
			}
			wantWords(t, err, path, "move it", "restore a backup")
			if after := sizeOf(t, path); after != before {
				t.Errorf("the damaged file was touched: %d bytes, then %d", before, after)
			}
		})
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	noError(t, err)
	return info.Size()
}

func TestF49_OldLogIsNotPlayedIntoANewDatabase(t *testing.T) {
	dir := t.TempDir()
	wal := filepath.Join(dir, DatabaseFile+"-wal")
	noError(t, os.WriteFile(wal, []byte("frames"), 0o600))
	_, err := Open(t.Context(), dir, testOptions)
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("error = %v, want ErrCorrupt", err)
	}
	wantWords(t, err, wal, "aside")
}

func TestInterruptedCreationIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		noError(t, os.WriteFile(filepath.Join(dir, DatabaseFile+".new"+suffix), []byte("half"), 0o600))
	}
	noError(t, openAtOnce(t, dir))
	entries, err := os.ReadDir(dir)
	noError(t, err)
	if len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
}

func TestDatabaseOfAnotherProgramIsRefused(t *testing.T) {
	s := openTest(t)
	other := raw(t, s)
	dir := filepath.Join(t.TempDir(), "state")
	noError(t, os.Mkdir(dir, 0o700))
	_, err := other.Exec(`ATTACH ? AS other`, filepath.Join(dir, DatabaseFile))
	noError(t, err)
	_, err = other.Exec(`CREATE TABLE other.bookmarks (url TEXT)`)
	noError(t, err)
	_, err = other.Exec(`DETACH other`)
	noError(t, err)
	_, err = Open(t.Context(), dir, testOptions)
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("error = %v, want ErrCorrupt", err)
	}
	wantWords(t, err, "another program")
}

// withNext is the embedded migrations and one from the future.
func withNext(t *testing.T, sql string) fs.FS {
	t.Helper()
	out := fstest.MapFS{"00099_next.sql": {Data: []byte("-- +goose Up\n" + sql)}}
	entries, err := fs.ReadDir(migrations.FS, ".")
	noError(t, err)
	for _, e := range entries {
		b, err := fs.ReadFile(migrations.FS, e.Name())
		noError(t, err)
		out[e.Name()] = &fstest.MapFile{Data: b}
	}
	return out
}

func TestOlderDatabaseIsMigratedAndNewerRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := openAt(t, dir)
	rec := provision(t, s)
	noError(t, s.Close())

	newer, err := open(t.Context(), dir, testOptions, withNext(t, "ALTER TABLE donations ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';"))
	noError(t, err)
	wantSame(t, "the record after the migration", get(t, newer, rec.ID), rec)
	noError(t, newer.Close())

	_, err = Open(t.Context(), dir, testOptions)
	var version *VersionError
	if !errors.As(err, &version) || version.Database != 99 || version.Program < 1 || version.Program >= 99 {
		t.Fatalf("error = %v, want a VersionError with 99 and the newest of this binary", err)
	}
	wantWords(t, err, filepath.Join(dir, DatabaseFile), "99", "install the newer cadre-hostd")
}

func TestFailedMigrationLeavesTheDatabaseAsItWas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := openAt(t, dir)
	rec := provision(t, s)
	noError(t, s.Close())
	broken := withNext(t, "ALTER TABLE donations ADD COLUMN colour TEXT;\nUPDATE donations SET nonsense = 1;")
	if _, err := open(t.Context(), dir, testOptions, broken); err == nil {
		t.Fatal("a broken migration went through")
	}
	s = openAt(t, dir)
	wantSame(t, "the record after a failed migration", get(t, s, rec.ID), rec)
}

func TestOpenRefusesAnImpossiblePortRange(t *testing.T) {
	for _, o := range []Options{{}, {PortFirst: 10, PortLast: 9}, {PortFirst: 1, PortLast: 70000}} {
		if _, err := Open(t.Context(), t.TempDir(), o); err == nil {
			t.Errorf("the range %+v was accepted", o)
		}
	}
}

func TestF50_UnwritableStateSaysSo(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everything; TestF50_ReadOnlyFileSystem covers root")
	}
	dir := t.TempDir()
	noError(t, openAtOnce(t, dir))
	path := filepath.Join(dir, DatabaseFile)
	noError(t, os.Chmod(path, 0o400))
	wantWords(t, openAtOnce(t, dir), path, "mode")
	noError(t, os.Chmod(path, 0o600))
	noError(t, os.Chmod(dir, 0o500))
	wantWords(t, openAtOnce(t, dir), dir, "mode")
	noError(t, os.Chmod(dir, 0o700))
}

func TestF50_ReadOnlyFileSystem(t *testing.T) {
	mnt := tmpfs(t, "size=4m")
	dir := filepath.Join(mnt, "state")
	noError(t, openAtOnce(t, dir))
	noError(t, unix.Mount("", mnt, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	wantWords(t, openAtOnce(t, dir), dir, "read-only file system", "remount")
	_, err := Open(t.Context(), filepath.Join(mnt, "other"), testOptions)
	wantWords(t, err, filepath.Join(mnt, "other"), "read-only file system")
}

// tmpfs mounts a file system of its own for the test, or skips it.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a tmpfs")
	}
	mnt := t.TempDir()
	if err := unix.Mount("tmpfs", mnt, "tmpfs", 0, options); err != nil {
		t.Skipf("can't mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() { noError(t, unix.Unmount(mnt, 0)) })
	return mnt
}

func TestClosedStoreSaysSo(t *testing.T) {
	s := openTest(t)
	rec := provision(t, s)
	noError(t, s.Close())
	noError(t, s.Close())
	if err := s.Refill(context.Background(), rec.ID, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("a write after Close: %v, want ErrClosed", err)
	}
	if _, err := s.Get(context.Background(), rec.ID); err == nil || errors.As(err, new(*donation.Error)) {
		t.Errorf("a read after Close: %v, want an error that isn't the domain's", err)
	}
}
