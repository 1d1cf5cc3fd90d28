// This file tests the reference node's life: start, identity, restart, stop.

package nodeapi

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNodeWritesItsStartupTokenOnlyWhenItAnswers(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, ".startup-token")
	r := startNode(t, dir, environment(), hooks{listening: func(a net.Addr) {
		absent(t, token)
		if err := (&Client{Base: "http://" + a.String()}).Health(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("/health before the token: %v, want 503", err)
		}
	}})
	if err := r.Health(t.Context()); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(token)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("startup-token file: %v, %v", info, err)
	}
	if got, err := os.ReadFile(token); err != nil || string(got) != testStartup {
		t.Errorf("startup token %q, %v", got, err)
	}
}

func TestNodeKeepsItsIdentityAndSeedsAcrossStarts(t *testing.T) {
	dir := t.TempDir()
	pub, priv := owner(t)
	seed := sign(t, priv, "/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.2/tcp/1")
	r := startNode(t, dir, environment(pub), hooks{})
	first, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(first.PeerID, "12D3KooW") || first.PID != os.Getpid() || first.StartedAt.IsZero() || first.Seeds != 0 ||
		len(first.Multiaddrs) != 1 || !strings.HasPrefix(first.Multiaddrs[0], "/ip4/127.0.0.1/tcp/") || !strings.HasSuffix(first.Multiaddrs[0], "/p2p/"+first.PeerID) {
		t.Errorf("status %+v", first)
	}
	if got, err := r.Seed(t.Context(), testToken, seed); err != nil || !got.Success || got.PeersAdded != 2 {
		t.Errorf("seed: %+v, %v", got, err)
	}
	log := r.first + r.stop(t)
	if strings.Count(log, "\n") != 2 || !strings.Contains(log, "serves on 127.0.0.1:") || !strings.Contains(log, "stopped") {
		t.Errorf("log %q, want a line at the start and one at the stop", log)
	}
	if strings.Contains(log, testToken) || strings.Contains(log, testStartup) {
		t.Errorf("log %q holds a token", log)
	}
	if err := r.Health(t.Context()); err == nil {
		t.Error("a stopped node answers")
	}

	r = startNode(t, dir, environment(pub), hooks{})
	again, err := r.Status(t.Context())
	if err != nil || again.PeerID != first.PeerID || again.Seeds != 1 || again.StartedAt.Equal(first.StartedAt) {
		t.Errorf("after a restart: %+v, %v; before: %+v", again, err, first)
	}
	if got, err := r.Seed(t.Context(), testToken, sign(t, priv, "/ip4/192.0.2.2/tcp/1", "/ip4/192.0.2.3/tcp/1")); err != nil || got.PeersAdded != 1 {
		t.Errorf("a seed with one new peer: %+v, %v", got, err)
	}
	r.stop(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, fmt.Sprint(e.Name(), " ", info.Mode()))
	}
	want := ".startup-token -rw-------, identity.key -rw-------, seeds.json -rw-------"
	if got := strings.Join(files, ", "); got != want {
		t.Errorf("the workdir holds %s, want %s", got, want)
	}
}

func TestNodeNeverReplacesADamagedFile(t *testing.T) {
	for name, tc := range map[string]struct{ file, content string }{
		"empty identity":       {identityFile, ""},
		"no PEM":               {identityFile, "not a key"},
		"another PEM":          {identityFile, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"},
		"identity cut off":     {identityFile, "-----BEGIN PRIVATE KEY-----\nMC4CAQ==\n-----END PRIVATE KEY-----\n"},
		"identity overwritten": {identityFile, strings.Repeat("\x00", 119)},
		"seeds cut off":        {seedsFile, `[{"at":"2026-01-01T00:00:00Z","peers":["/ip4`},
		"seeds of other form":  {seedsFile, `{"peers":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, token := filepath.Join(dir, tc.file), filepath.Join(dir, "token")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Run(t.Context(), Options{Workdir: dir, StartupTokenFile: token, Env: environment()})
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "left as") {
				t.Errorf("error %v, want one that names %s and says that it was left", err, path)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != tc.content {
				t.Errorf("the file is now %q, %v", after, err)
			}
			absent(t, token)
		})
	}
}

func TestMakeIdentityNeverReplacesOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), identityFile)
	if _, err := makeIdentity(path); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := makeIdentity(path); err == nil {
		t.Error("a second identity was made over the first")
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the identity changed (%v)", err)
	}
}

func TestNodeRefusesToStart(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	env := func(name, value string) func(string) string {
		return func(asked string) string { return map[string]string{name: value}[asked] }
	}
	secret := strings.Repeat("k", 31)
	for name, tc := range map[string]struct {
		o     Options
		words string
	}{
		"no startup token":   {Options{StartupTokenFile: "x"}, "CADRE_STARTUP_TOKEN is not set"},
		"bad owner key":      {Options{Env: env(ownerKeysVar, secret)}, "CADRE_OWNER_KEYS: owner key 1"},
		"port in use":        {Options{HealthPort: held.Addr().(*net.TCPAddr).Port}, "open the health port"},
		"no such address":    {Options{Listen: "192.0.2.1"}, "open the health port"},
		"no such workdir":    {Options{Workdir: filepath.Join(t.TempDir(), "missing")}, "no such file or directory"},
		"nowhere to tell it": {Options{Env: environment(), StartupTokenFile: filepath.Join(t.TempDir(), "no", "token")}, "write the startup token to"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.o.Workdir == "" {
				tc.o.Workdir = t.TempDir()
			}
			err := Run(t.Context(), tc.o)
			if err == nil || !strings.Contains(err.Error(), tc.words) {
				t.Fatalf("error %v, want %q in it", err, tc.words)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), testStartup) {
				t.Errorf("the error repeats what may be a secret: %v", err)
			}
		})
	}
}

func TestNodeDoesNotWriteItsTokenWithoutItsPort(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	o := Options{Workdir: dir, HealthPort: held.Addr().(*net.TCPAddr).Port, StartupTokenFile: token, Env: environment()}
	if err := Run(t.Context(), o); err == nil {
		t.Error("a node started on a port that is held")
	}
	absent(t, token)
}

func TestNodeStopsAlthoughARequestHangs(t *testing.T) {
	r := startNode(t, t.TempDir(), environment(), hooks{grace: time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.Base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The node answers 100 when it begins to read a body, so the request is known to be under way.
	fmt.Fprintf(conn, "POST /seed HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n", testToken)
	answers := bufio.NewReader(conn)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("answered %q, %v", line, err)
	}
	r.stop(t)
	_, _ = io.Copy(io.Discard, answers) // ends because the node closed the connection
}

func TestPeerIDIsLibp2ps(t *testing.T) {
	// The Ed25519 key of the test vectors in libp2p's peer-ids specification, and its id in base58.
	key, err := hex.DecodeString("1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := PeerID(key), "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"; got != want {
		t.Errorf("PeerID = %s, want %s", got, want)
	}
}

func TestMultiaddr(t *testing.T) {
	for want, addr := range map[string]string{
		"/ip4/192.0.2.1/tcp/80/p2p/x":   "192.0.2.1:80",
		"/ip6/2001:db8::1/tcp/80/p2p/x": "[2001:db8::1]:80",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := multiaddr(a, "x"); got != want {
			t.Errorf("multiaddr(%s) = %s, want %s", addr, got, want)
		}
	}
}

func TestPhasesAnswerHealth(t *testing.T) {
	for p, want := range map[phase]int{starting: http.StatusServiceUnavailable, healthy: http.StatusOK, stopping: http.StatusServiceUnavailable} {
		if got := phases[p].code; got != want {
			t.Errorf("in phase %d (%s) /health answers %d, want %d", p, phases[p].word, got, want)
		}
	}
}
