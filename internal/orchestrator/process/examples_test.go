// This file tests the templates of examples/ with the real programs and the real guard: start, write, SIGKILL,
// start again on the same port, read, stop in order. A program that isn't installed leaves its example out.

package process

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// example is how to tell whether one of them works.
type example struct {
	template string
	// program is a glob of paths, one of which must be there.
	program string
	// write stores something; read returns it again after the program was killed.
	write, read func(t *testing.T, r *rig, l donation.Launch) string
	want        string
}

var examples = []example{
	{
		template: "redis", program: "/usr/*bin/redis-server",
		write: func(t *testing.T, _ *rig, l donation.Launch) string { return talk(t, l.Ports["redis"], "SET k v\r\n") },
		read: func(t *testing.T, _ *rig, l donation.Launch) string {
			talk(t, l.Ports["redis"], "GET k\r\n")
			return talk(t, l.Ports["redis"], "GETRANGE k 0 0\r\n")
		},
		want: "$1",
	},
	{
		template: "memcached", program: "/usr/*bin/memcached",
		write: func(t *testing.T, _ *rig, l donation.Launch) string {
			return talk(t, l.Ports["memcached"], "set k 0 0 1\r\nv\r\n")
		},
		// A cache comes back empty, but it comes back.
		read: func(t *testing.T, _ *rig, l donation.Launch) string {
			return talk(t, l.Ports["memcached"], "get k\r\n")
		},
		want: "END",
	},
	{
		template: "nginx", program: "/usr/*bin/nginx",
		write: func(t *testing.T, r *rig, l donation.Launch) string {
			page := filepath.Join(workdir(r, l), "www", "page.html")
			if err := os.WriteFile(page, []byte("kept"), 0o644); err != nil {
				t.Fatal(err)
			}
			return get(t, l.Ports["http"], "/")
		},
		read: func(t *testing.T, _ *rig, l donation.Launch) string { return get(t, l.Ports["http"], "/page.html") },
		want: "kept",
	},
	{
		template: "postgres", program: "/usr/lib/postgresql/*/bin/postgres",
		write: func(t *testing.T, r *rig, l donation.Launch) string {
			return psql(t, r, l, "create table k (v text); insert into k values ('v')")
		},
		read: func(t *testing.T, r *rig, l donation.Launch) string { return psql(t, r, l, "select v from k") },
		want: "v",
	},
}

func TestExamples(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "templates_dir = %q\n", dir), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range examples {
		t.Run(x.template, func(t *testing.T) {
			if found, _ := filepath.Glob(x.program); len(found) == 0 {
				t.Skipf("%s isn't installed; make test-deps says how", x.template)
			}
			r := guardedRig(t, path)
			l := guardedLaunch(t, r, x.template)
			first := startReady(t, r, l)
			t.Logf("wrote: %s", x.write(t, r, l))
			if err := syscall.Kill(first.Identity.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if exit := exitOf(t, r, l); exit.Reason != donation.ReasonCrash || exit.Signal != int(syscall.SIGKILL) {
				t.Errorf("exit: %s", exit)
			}
			l = again(l)
			if second := startReady(t, r, l); second.Identity == first.Identity {
				t.Errorf("the same process: %+v", second)
			}
			if got := x.read(t, r, l); got != x.want {
				t.Errorf("read %q, want %q; it said:\n%s", got, x.want, nodeLog(r, l))
			}
			end(t, r, l)
		})
	}
}

func workdir(r *rig, l donation.Launch) string {
	h, _ := r.Hello()
	return guard.Workdir(h.NodesDir, string(l.Donation))
}

// talk sends a request on a connection of its own and returns the first line of the answer.
func talk(t *testing.T, port int, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return strings.TrimSpace(line)
}

func get(t *testing.T, port int, path string) string {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
	return strings.TrimSpace(string(b))
}

// psql asks through the port, with the password that the first start made.
func psql(t *testing.T, r *rig, l donation.Launch, query string) string {
	t.Helper()
	password, err := os.ReadFile(filepath.Join(workdir(r, l), "password"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "psql", "-X", "-h", "127.0.0.1", "-p", fmt.Sprint(l.Ports["postgres"]), "-U", "postgres", "-Atqc", query)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "PGPASSWORD=" + string(password)}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", query, err, out)
	}
	return strings.TrimSpace(string(out))
}
