// This file looks at TCP ports: whether one is free for a node, and who has it if not.

package orchestrator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// PortFree reports whether a node could listen on the TCP port, on any address. It binds without listening,
// so that nobody can connect to the probe, and with SO_REUSEADDR as servers do: connections of a former
// server that the kernel still remembers (TIME_WAIT) don't count, while a socket that listens does, whatever
// the address it has chosen. A port that can't be probed counts as free; the node's own bind will tell.
func PortFree(port int) bool {
	return !inUse(unix.AF_INET, &unix.SockaddrInet4{Port: port}) && !inUse(unix.AF_INET6, &unix.SockaddrInet6{Port: port})
}

// inUse reports whether the wildcard address of the family can't be bound because the port is taken.
func inUse(family int, wildcard unix.Sockaddr) bool {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false // a kernel without the family
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return false
	}
	if family == unix.AF_INET6 {
		// The other probe covers IPv4.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return false
		}
	}
	return errors.Is(unix.Bind(fd, wildcard), unix.EADDRINUSE)
}

// PortHolder names who has the port, as far as this user may know: "pid 123 (redis-server)", or "another
// process".
func PortHolder(port int) string {
	const unknown = "another process"
	found, err := sockets(port)
	if err != nil || len(found) == 0 {
		return unknown
	}
	inodes := map[string]bool{}
	for _, s := range found {
		inodes["socket:["+s.inode+"]"] = true // as it reads in /proc/*/fd
	}
	// Sockets of other users' processes can't be seen unless this is root.
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return unknown
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !inodes[target] {
			continue
		}
		pid := strings.Split(link, "/")[2]
		comm, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		if err != nil {
			return "pid " + pid
		}
		return fmt.Sprintf("pid %s (%s)", pid, strings.TrimSpace(string(comm)))
	}
	return unknown
}
