// This file receives sd_notify messages: an abstract datagram socket a node that asked for one. The only
// message that means something is READY=1.

package guard

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// notifyAddress is what the node finds in NOTIFY_SOCKET. It is abstract: nothing is left of it in a file system.
func notifyAddress(spawn string) string { return "@cadre/" + spawn }

// notifySocket is one node's socket, with the goroutine that reads it.
type notifySocket struct {
	conn *net.UnixConn
	done chan struct{}
}

// listenNotify binds the socket of a spawn and calls ready, once, for a READY=1 that accept agrees to.
func listenNotify(spawn string, accept func(unix.Ucred) bool, ready func()) (*notifySocket, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notifyAddress(spawn), Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("notify socket: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("notify socket: %w", err)
	}
	s := &notifySocket{conn: conn, done: make(chan struct{})}
	go s.read(accept, ready)
	return s, nil
}

func (s *notifySocket) read(accept func(unix.Ucred) bool, ready func()) {
	defer close(s.done)
	buf, oob := make([]byte, 4096), make([]byte, 512)
	for {
		n, oobn, _, _, err := s.conn.ReadMsgUnix(buf, oob)
		if err != nil {
			return // closed
		}
		cred, ok := credentials(oob[:oobn])
		if ok && slices.ContainsFunc(bytes.Split(buf[:n], []byte{'\n'}), isReady) && accept(cred) {
			ready()
		}
	}
}

func isReady(line []byte) bool { return string(line) == "READY=1" }

// close ends the socket and its goroutine. It must not be called with a lock that ready takes.
func (s *notifySocket) close() {
	s.conn.Close()
	<-s.done
}

// credentials returns the sender's, and closes descriptors that it sent along.
func credentials(oob []byte) (unix.Ucred, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return unix.Ucred{}, false
	}
	var cred unix.Ucred
	found := false
	for i := range messages {
		if c, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			cred, found = *c, true
		}
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
	}
	return cred, found
}

// fromNode says whose messages count: those of the node's user and, while the sender can still be looked at, of
// the node's own cgroup.
func fromNode(uid uint32, cgroup string) func(unix.Ucred) bool {
	return func(cred unix.Ucred) bool {
		if uid == 0 {
			uid = uint32(os.Getuid())
		}
		if cred.Uid != uid {
			return false
		}
		if cgroup == "" {
			return true
		}
		b, err := os.ReadFile("/proc/" + strconv.Itoa(int(cred.Pid)) + "/cgroup")
		if err != nil {
			return true // it has ended already, as systemd-notify does
		}
		for line := range strings.Lines(string(b)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				return slices.Contains(strings.Split(path, "/"), filepath.Base(cgroup))
			}
		}
		return true
	}
}
