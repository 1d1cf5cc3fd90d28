// This file tests who is taken for the owner of a port.

package orchestrator

import (
	"net"
	"os"
	"strings"
	"testing"
)

func TestListenerMustBeTheNodesOwnUser(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := net.Listen(network, "localhost:0")
		if err != nil {
			t.Logf("%s: %v", network, err)
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		us := uint32(os.Getuid())
		if err := CheckListener(port, us); err != nil {
			t.Errorf("%s: our own port: %v", network, err)
		}
		if err := CheckListener(port, us+1); err == nil || !strings.Contains(err.Error(), "stranger") {
			t.Errorf("%s: somebody else's port: %v", network, err)
		}
		// A connection to the port isn't a listener on it.
		conn, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		local := conn.LocalAddr().(*net.TCPAddr).Port
		if err := CheckListener(local, us); err == nil || !strings.Contains(err.Error(), "nobody listens") {
			t.Errorf("%s: a port of a connection: %v", network, err)
		}
		conn.Close()
		l.Close()
		if err := CheckListener(port, us); err == nil {
			t.Errorf("%s: a closed port passed", network)
		}
	}
}
