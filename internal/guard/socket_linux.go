// This file makes the guard's socket: narrow from birth, only in place once it is, and answered to two users.

package guard

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// sunPathMax is the longest socket path that the kernel takes.
const sunPathMax = 107

// listen binds the socket in a directory that nobody else can enter, narrows it, and moves it into place. So it has no
// moment with wider rights, and the umask, which nodes inherit, stays as it is. The caller holds the guard's lock, so a
// socket that is there already is a dead one's.
func listen(cfg Config) (*peerListener, error) {
	path := socketPath(cfg.RuntimeDir)
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("socket %s: something that isn't a socket is in the way; remove it", path)
	}
	dir, err := os.MkdirTemp(cfg.RuntimeDir, ".socket-")
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	defer os.RemoveAll(dir)
	tmp := filepath.Join(dir, "s")
	l, err := bindSocket(dir)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(tmp, 0o600)
	if err == nil && os.Getuid() == 0 && cfg.PeerUID > 0 {
		err = os.Chown(tmp, cfg.PeerUID, -1)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(tmp, &st)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	return &peerListener{UnixListener: l, peer: cfg.PeerUID, log: cfg.Logger, path: path, inode: st.Ino}, nil
}

// bindSocket binds dir/s by way of a descriptor, since the path may be longer than a socket's may.
func bindSocket(dir string) (*net.UnixListener, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return net.ListenUnix("unix", &net.UnixAddr{Name: "/proc/self/fd/" + strconv.Itoa(fd) + "/s", Net: "unix"})
}

// dialSocket connects to a socket whose path may be of any length.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) <= sunPathMax {
		return d.DialContext(ctx, "unix", path)
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(fd)
	return d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd)+"/"+filepath.Base(path))
}

// peerListener accepts connections of the peer's user and of the guard's own only.
type peerListener struct {
	*net.UnixListener
	peer  int
	log   *zap.Logger
	path  string
	inode uint64
}

// Accept waits for a connection that will be answered.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, err := peerOf(conn)
		if err == nil && (int(cred.Uid) == l.peer || int(cred.Uid) == os.Getuid()) {
			return conn, nil
		}
		conn.Close()
		if err != nil {
			l.log.Warn("connection of an unknown user closed", zap.Error(err))
		} else {
			l.log.Warn("connection of another user closed", zap.Uint32("uid", cred.Uid), zap.Int32("pid", cred.Pid))
		}
	}
}

// inPlace reports whether the socket can still be reached by its path.
func (l *peerListener) inPlace() bool {
	var st unix.Stat_t
	return unix.Lstat(l.path, &st) == nil && st.Ino == l.inode
}

// unlink removes the socket, if it is still ours.
func (l *peerListener) unlink() error {
	if !l.inPlace() {
		return nil
	}
	if err := os.Remove(l.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var errCred error
	if err := raw.Control(func(fd uintptr) {
		cred, errCred = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, errCred
}

// quietLog takes what the HTTP server has to say.
func quietLog(l *zap.Logger) *log.Logger {
	std, err := zap.NewStdLogAt(l, zap.DebugLevel)
	if err != nil {
		return zap.NewStdLog(l)
	}
	return std
}
