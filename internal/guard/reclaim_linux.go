// This file deletes a donation's directory, whatever its node left there: links, directories without any
// permission, or more levels of them than descriptors.

package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// reclaimDepth is how deep the walk goes with a descriptor a level; deeper directories are first moved to the top.
const reclaimDepth = 64

// reclaim deletes the donation's directory; nothing there is no error.
func (w *workdirs) reclaim(donation string) error {
	top, err := w.open()
	if err != nil {
		return err
	}
	defer unix.Close(top)
	if unix.Unlinkat(top, donation, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	r := &remover{}
	r.top, err = r.enter(top, donation)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		err = r.empty(r.top, 0)
		unix.Close(r.top)
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = unix.Unlinkat(top, donation, 0)
	} else if err == nil {
		err = unix.Unlinkat(top, donation, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", filepath.Join(w.dir, donation), err)
	}
	return nil
}

// remover deletes what is below one directory.
type remover struct{ top int }

// enter opens a directory below parent for reading, and lets itself in if its mode doesn't.
func (r *remover) enter(parent int, name string) (int, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// Emptying takes write permission too; root has it anyway.
	if os.Getuid() != 0 {
		path, err := unix.Openat(parent, name, flags|unix.O_PATH, 0)
		if err != nil {
			return -1, err
		}
		// There is no fchmod of a path descriptor; through /proc it names this very directory.
		err = unix.Chmod("/proc/self/fd/"+strconv.Itoa(path), 0o700)
		unix.Close(path)
		if err != nil {
			return -1, err
		}
	}
	return unix.Openat(parent, name, flags|unix.O_RDONLY, 0)
}

// empty deletes everything in the directory dir, which is depth levels below the top.
func (r *remover) empty(dir, depth int) error {
	names, err := listDir(dir)
	for err == nil && len(names) > 0 {
		for _, name := range names {
			if err := r.remove(dir, name, depth); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		// The top is read again until nothing is left: directories may have been moved there.
		if dir != r.top {
			return nil
		}
		names, err = listDir(dir)
	}
	return err
}

func (r *remover) remove(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	if depth >= reclaimDepth {
		return unix.Renameat(dir, name, r.top, ".reclaim-"+newID())
	}
	sub, err := r.enter(dir, name)
	if err != nil {
		return err
	}
	err = r.empty(sub, depth+1)
	unix.Close(sub)
	if err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// listDir returns the names in an open directory, from its beginning. It needs no further descriptor: a start that
// failed for want of one is undone here.
func listDir(dir int) ([]string, error) {
	if _, err := unix.Seek(dir, 0, io.SeekStart); err != nil {
		return nil, err
	}
	var names []string
	buf := make([]byte, 8192)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}
