// This file tells whose a listening port is, so that a node's secrets never go to a stranger who has taken its place.

package orchestrator

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// stateListen is a listening socket's in /proc/net/tcp.
const stateListen = "0A"

// CheckListener returns an error unless somebody listens on the TCP port and everybody who does is the user.
func CheckListener(port int, uid uint32) error {
	found := false
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		uids, err := listeners(table, port)
		if err != nil {
			return err
		}
		for _, u := range uids {
			if u != uid {
				return fmt.Errorf("port %d is listened on by uid %d, not by the node's %d; a stranger (%s) has taken its place", port, u, uid, PortHolder(port))
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("nobody listens on port %d yet", port)
	}
	return nil
}

// listeners are the users who listen on the port.
func listeners(table string, port int) ([]uint32, error) {
	f, err := os.Open(table)
	if os.IsNotExist(err) {
		return nil, nil // a kernel without the family
	}
	if err != nil {
		return nil, fmt.Errorf("find out who listens on port %d: %w", port, err)
	}
	defer f.Close()
	var uids []uint32
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[3] != stateListen {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if p, err := strconv.ParseUint(hex, 16, 16); err != nil || int(p) != port {
			continue
		}
		uid, err := strconv.ParseUint(fields[7], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("find out who listens on port %d: %w", port, err)
		}
		uids = append(uids, uint32(uid))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("find out who listens on port %d: %w", port, err)
	}
	return uids, nil
}
