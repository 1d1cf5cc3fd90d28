// This file tests the look at ports against real sockets.

package orchestrator

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// listen listens on the address and returns the port.
func listen(t *testing.T, address string) (net.Listener, int) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("this machine has no %s: %v", address, err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

func TestP10_PortOfAStrangerIsNotFree(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "127.0.0.2:0", "0.0.0.0:0", "[::]:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			l, port := listen(t, address)
			if PortFree(port) {
				t.Error("free while somebody listens on it")
			}
			want := fmt.Sprintf("pid %d (", os.Getpid())
			if got := PortHolder(port); !strings.HasPrefix(got, want) {
				t.Errorf("held by %q, want %q", got, want)
			}
			err := CheckPorts(map[string]int{"http": port})
			var blocked *donation.BlockedError
			if !errors.As(err, &blocked) || blocked.Kind != donation.BlockPort ||
				!strings.HasPrefix(blocked.Message, fmt.Sprintf("port http (%d) is held by pid %d (", port, os.Getpid())) {
				t.Errorf("CheckPorts: %v", err)
			}
			l.Close()
			if !PortFree(port) {
				t.Error("not free after the listener has gone")
			}
			if err := CheckPorts(map[string]int{"http": port}); err != nil {
				t.Error(err)
			}
			if got := PortHolder(port); got != "another process" {
				t.Errorf("nobody's port is held by %q", got)
			}
		})
	}
}

// TestP10_BoundWithoutReuse: a socket that keeps everybody out counts even before it listens.
func TestP10_BoundWithoutReuse(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if PortFree(sa.(*unix.SockaddrInet4).Port) {
		t.Error("free although nobody else can bind it")
	}
}

// TestF24_TimeWaitIsFree: a server that closed its connections first leaves them in TIME_WAIT, and that must not
// hold up its successor.
func TestF24_TimeWaitIsFree(t *testing.T) {
	l, port := listen(t, "127.0.0.1:0")
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server.Close() // the active close
	if _, err := io.ReadAll(client); err != nil {
		t.Fatal(err)
	}
	client.Close()
	l.Close()
	if !waiting(t, port) {
		t.Skip("this kernel left no TIME_WAIT behind")
	}
	if !PortFree(port) {
		t.Error("not free although only TIME_WAIT is left")
	}
}

// waiting reports whether a connection of the port is in TIME_WAIT (state 06).
func waiting(t *testing.T, port int) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "06" {
			return true
		}
	}
	return false
}
