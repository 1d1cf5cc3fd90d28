// This file holds how the admin socket comes to be: narrow from its first moment, never in the place of
// a living one, and never over something that isn't a socket.

package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path of a unix socket on Linux (sun_path without its closing NUL).
const maxSocketPath = 107

// listen opens the unix socket at path with mode 0600 and answers only peers of our own uid or root. A
// directory that is missing is made, 0700. A socket that nobody listens on any more is replaced; one
// that somebody does listen on, and anything that isn't a socket, is refused and left untouched.
func listen(path string) (*listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the socket path %s is %d bytes long and Linux allows %d; choose a shorter --runtime-dir",
			path, len(path), maxSocketPath)
	}
	dir := filepath.Dir(path)
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkVacant(path); err != nil {
		return nil, err
	}
	return bindNarrow(path)
}

// lockDir makes dir if need be and holds a kernel lock on it, so that of two processes that find the same
// stale socket only one replaces it.
func lockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's directory: %w; choose another with --runtime-dir", err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the socket's directory %s: %w", dir, err)
	}
	unlock = func() { _ = unix.Close(fd) }
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unlock()
		return nil, fmt.Errorf("look at the socket's directory %s: %w", dir, err)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		unlock()
		return nil, fmt.Errorf("the socket's directory %s belongs to uid %d, who could put another socket in our place; "+
			"choose a directory of your own with --runtime-dir", dir, st.Uid)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unlock()
		return nil, fmt.Errorf("lock the socket's directory %s: %w; another process is just opening a socket there, try again", dir, err)
	}
	return unlock, nil
}

// checkVacant returns nil if nothing is at path, or a socket that nobody listens on: only a refused
// connection proves that. A stopped process still accepts connections into its backlog.
func checkVacant(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is in the socket's place and is %s; nothing was touched: move it away, or choose another --runtime-dir",
			path, describe(info.Mode()))
	}
	conn, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("a living process listens on %s already; stop it first, or choose another --runtime-dir", path)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return fmt.Errorf("whether a living process listens on %s can't be told: %w", path, err)
	}
}

// describe names a file's type.
func describe(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	default:
		return "no socket"
	}
}

// bindNarrow binds in a directory that only we can enter, narrows the socket there, and then moves it to
// path, so that nobody else can reach it at any moment, whatever the umask. The detour through
// /proc/self/fd keeps the name that is bound short. The directory is locked by the caller, so one of the
// same name is what a killed process has left.
func bindNarrow(path string) (*listener, error) {
	private := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	fresh := filepath.Join(private, "s")
	_, _ = os.Remove(fresh), os.Remove(private)
	if err := os.Mkdir(private, 0o700); err != nil {
		return nil, fmt.Errorf("make a private directory for the socket: %w; remove it, or choose another --runtime-dir", err)
	}
	defer os.Remove(private)
	fd, err := unix.Open(private, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", private, err)
	}
	defer unix.Close(fd)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/s", fd)})
	if err != nil {
		return nil, fmt.Errorf("open the socket %s: %w", path, err)
	}
	ln.SetUnlinkOnClose(false) // the name it was bound by is gone soon; Close removes the real one
	l := &listener{UnixListener: ln, path: path}
	if err := os.Chmod(fresh, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("narrow the socket %s: %w", path, err), ln.Close(), os.Remove(fresh))
	}
	if l.info, err = os.Lstat(fresh); err != nil {
		return nil, errors.Join(fmt.Errorf("look at the socket %s: %w", path, err), ln.Close(), os.Remove(fresh))
	}
	if err := os.Rename(fresh, path); err != nil {
		return nil, errors.Join(fmt.Errorf("move the socket into place: %w", err), ln.Close(), os.Remove(fresh))
	}
	return l, nil
}

// listener is a unix listener that answers only our own uid and root.
type listener struct {
	*net.UnixListener
	path string
	info os.FileInfo

	once     sync.Once
	closeErr error
}

// Accept returns the next connection of a permitted peer; others are closed unanswered.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(conn)
		if err == nil && permitted(uid, os.Geteuid()) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// permitted reports whether a peer may use the surface of a daemon that runs as self.
func permitted(peer uint32, self int) bool { return peer == 0 || int(peer) == self }

// peerUID asks the kernel who connected.
func peerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return cred.Uid, nil
}

// inPlace reports whether path still leads to this socket.
func (l *listener) inPlace() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(info, l.info)
}

// Addr returns the path that clients use.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: l.path} }

// Close stops listening and removes the socket, unless another has taken its place.
func (l *listener) Close() error {
	l.once.Do(func() {
		if l.inPlace() {
			_ = os.Remove(l.path)
		}
		l.closeErr = l.UnixListener.Close()
	})
	return l.closeErr
}
