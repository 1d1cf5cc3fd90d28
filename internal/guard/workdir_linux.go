// This file makes, fills, reads and deletes a donation's directory. What is below work/ belongs to the node and
// may be hostile: every step there is taken from an open directory, beneath it, and follows no link.

package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// beneath is how anything in a workdir is opened.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// workdirs is the directory of all donations.
type workdirs struct {
	dir string
	// peer owns the logs.
	peer int
	root bool
}

// openWorkdirs makes the nodes directory if need be and checks that nodes can be kept in it safely.
func openWorkdirs(cfg Config) (*workdirs, error) {
	w := &workdirs{dir: cfg.NodesDir, peer: cfg.PeerUID, root: os.Getuid() == 0}
	if err := os.MkdirAll(cfg.NodesDir, 0o711); err != nil {
		return nil, fmt.Errorf("nodes directory: %w", err)
	}
	if err := privateDir(cfg.NodesDir); err != nil {
		return nil, fmt.Errorf("nodes directory: %w", err)
	}
	if !w.root {
		return w, nil
	}
	if err := os.Chmod(cfg.NodesDir, 0o711); err != nil {
		return nil, fmt.Errorf("nodes directory: %w", err)
	}
	for dir := filepath.Dir(cfg.NodesDir); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return nil, fmt.Errorf("nodes directory: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return nil, fmt.Errorf("nodes directory %s can't be reached by the nodes' users: %s has mode %#o; chmod o+x it, or choose another directory",
				cfg.NodesDir, dir, info.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return w, nil
		}
	}
}

// privateDir returns an error if somebody else than the guard's user or root could change the directory.
func privateDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s isn't a directory", dir)
	case st.Uid != 0 && int(st.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to uid %d, which could replace what the guard keeps there; chown it to uid %d", dir, st.Uid, os.Getuid())
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s is writable by others (mode %#o); chmod go-w it", dir, st.Mode&0o7777)
	}
	return nil
}

// workdir is one donation's directory, open.
type workdir struct {
	// dir, work and log are descriptors of the donation's directory and the two in it.
	dir, work, log int
	// created is true if prepare made it.
	created bool
	path    string
}

func (d *workdir) close() {
	for _, fd := range []int{d.dir, d.work, d.log} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// prepare makes the donation's directory: work/ for the node, log/ for its output.
func (w *workdirs) prepare(donation string, uid uint32) (*workdir, error) {
	d := &workdir{dir: -1, work: -1, log: -1, path: filepath.Join(w.dir, donation)}
	if err := w.fill(d, donation, uid); err != nil {
		d.close()
		if d.created {
			err = errors.Join(err, w.reclaim(donation))
		}
		return nil, err
	}
	return d, nil
}

func (w *workdirs) fill(d *workdir, donation string, uid uint32) error {
	top, err := w.open()
	if err != nil {
		return err
	}
	defer unix.Close(top)
	if d.dir, d.created, err = makeDir(top, donation, 0o711); err != nil {
		return fmt.Errorf("directory %s: %w", d.path, err)
	}
	if d.work, _, err = makeDir(d.dir, workDirName, 0o700); err != nil {
		return fmt.Errorf("directory %s/%s: %w", d.path, workDirName, err)
	}
	if err := w.giveWork(d, uid); err != nil {
		return err
	}
	// The guard's own, so that nobody can plant a link for it to write through; the files in it are the peer's.
	if d.log, _, err = makeDir(d.dir, logDirName, 0o755); err != nil {
		return fmt.Errorf("directory %s/%s: %w", d.path, logDirName, err)
	}
	return nil
}

// giveWork makes the workdir the node's, and refuses one that is another user's. One that is still the guard's own
// was made just now, or by a start that got no further: only the guard can make anything in the directory above.
func (w *workdirs) giveWork(d *workdir, uid uint32) error {
	if !w.root {
		return nil
	}
	var st unix.Stat_t
	err := unix.Fstat(d.work, &st)
	if err == nil && int(st.Uid) == os.Getuid() {
		st.Uid = uid
		err = unix.Fchown(d.work, int(uid), int(uid))
	}
	if err != nil {
		return fmt.Errorf("directory %s/%s: %w", d.path, workDirName, err)
	}
	if st.Uid != uid {
		return fmt.Errorf("directory %s/%s belongs to uid %d, but the node is to run as uid %d", d.path, workDirName, st.Uid, uid)
	}
	return nil
}

// open opens the nodes directory, making it again if somebody deleted it.
func (w *workdirs) open() (int, error) {
	fd, err := unix.Open(w.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		if err := os.MkdirAll(w.dir, 0o711); err != nil {
			return -1, fmt.Errorf("nodes directory: %w", err)
		}
		if err := os.Chmod(w.dir, 0o711); err != nil {
			return -1, fmt.Errorf("nodes directory: %w", err)
		}
		fd, err = unix.Open(w.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return -1, fmt.Errorf("nodes directory %s: %w", w.dir, err)
	}
	return fd, nil
}

// makeDir makes a directory of the guard's own with exactly this mode, or opens the one that is there. That it is there
// doesn't mean that it was finished, so its mode is set in any case; one that was given away is left as it is.
func makeDir(parent int, name string, mode uint32) (fd int, created bool, err error) {
	err = unix.Mkdirat(parent, name, 0o700)
	created = err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, false, err
	}
	if fd, err = openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return fd, created, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && int(st.Uid) == os.Getuid() && st.Mode&0o7777 != mode {
		err = unix.Fchmod(fd, mode)
	}
	return fd, created, err
}

// openBeneath opens a path below the directory fd; it follows no link and never blocks on a planted FIFO.
func openBeneath(fd int, path string, flags int, mode uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOFOLLOW), Mode: mode, Resolve: beneath}
	for {
		f, err := unix.Openat2(fd, path, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return f, err
		}
	}
}

// write puts the file into the workdir, owned by the node. It replaces what is there, links included, in one step.
func (d *workdir) write(f File, uid uint32, root bool) error {
	if err := d.place(f, uid, root); err != nil {
		return fmt.Errorf("writing %s into the workdir: %w", f.Path, err)
	}
	return nil
}

func (d *workdir) place(f File, uid uint32, root bool) error {
	dir, err := d.parents(filepath.Dir(filepath.Clean(f.Path)), uid, root)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	mode := f.Mode & 0o777
	if mode == 0 {
		mode = 0o600
	}
	name := filepath.Base(f.Path)
	tmp := ".cadre-" + newID()
	fd, err := openBeneath(dir, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = file.WriteString(f.Content)
	if err == nil && root {
		err = unix.Fchown(fd, int(uid), int(uid))
	}
	if err == nil {
		err = unix.Fchmod(fd, mode)
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = unix.Renameat(dir, tmp, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, tmp, 0)
	}
	return err
}

// parents opens the directory at the relative path rel, making what is missing, as the node's.
func (d *workdir) parents(rel string, uid uint32, root bool) (int, error) {
	fd, err := unix.FcntlInt(uintptr(d.work), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, err
	}
	if rel == "." {
		return fd, nil
	}
	for name := range strings.SplitSeq(rel, "/") {
		next, created, err := makeDir(fd, name, 0o700)
		if err == nil && created && root {
			err = unix.Fchown(next, int(uid), int(uid))
		}
		unix.Close(fd)
		if err != nil {
			return -1, fmt.Errorf("%s: %w", name, err)
		}
		fd = next
	}
	return fd, nil
}

// The largest file that a readiness condition may name.
const readyMax = 64 << 10

// ready reports whether the file below the donation's work directory has this content, white space at the ends
// aside. A file that can't be had this way, for whatever reason, isn't ready.
func (w *workdirs) ready(donation, path, content string) bool {
	top, err := w.open()
	if err != nil {
		return false
	}
	defer unix.Close(top)
	fd, err := openBeneath(top, filepath.Join(donation, workDirName, path), unix.O_RDONLY, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > readyMax {
		return false
	}
	b, err := io.ReadAll(io.LimitReader(f, readyMax))
	return err == nil && bytes.Equal(bytes.TrimSpace(b), bytes.TrimSpace([]byte(content)))
}
