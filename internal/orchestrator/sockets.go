// This file reads the kernel's table of TCP sockets: who has a port, so that a node's secrets never go to a stranger who
// has taken its place.

package orchestrator

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// socket is one that some process holds.
type socket struct {
	uid       uint32
	inode     string
	listening bool
}

// CheckListener returns an error unless somebody listens on the TCP port and everybody who does is the user.
func CheckListener(port int, uid uint32) error {
	all, err := sockets(port)
	if err != nil {
		return err
	}
	found := false
	for _, s := range all {
		switch {
		case !s.listening:
		case s.uid != uid:
			return fmt.Errorf("port %d is listened on by uid %d, not by the node's %d; a stranger (%s) has taken its place", port, s.uid, uid, PortHolder(port))
		default:
			found = true
		}
	}
	if !found {
		return fmt.Errorf("nobody listens on port %d yet", port)
	}
	return nil
}

// sockets returns those with this local port.
func sockets(port int) ([]socket, error) {
	var found []socket
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		of, err := socketsIn(table, port)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without the family
			return nil, fmt.Errorf("find out who has port %d: %w", port, err)
		}
		found = append(found, of...)
	}
	return found, nil
}

func socketsIn(table string, port int) ([]socket, error) {
	f, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []socket
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[9] == "0" {
			continue // the heading, or a connection without a process (TIME_WAIT)
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if p, err := strconv.ParseUint(hex, 16, 16); err != nil || int(p) != port {
			continue
		}
		uid, err := strconv.ParseUint(fields[7], 10, 32)
		if err != nil {
			return nil, err
		}
		const listen = "0A"
		found = append(found, socket{uid: uint32(uid), inode: fields[9], listening: fields[3] == listen})
	}
	return found, lines.Err()
}
