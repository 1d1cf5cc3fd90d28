// This file holds what the tests share: a node that runs in this process, and owners with their seeds.

package nodeapi

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	testStartup = "0123456789abcdef0123456789abcdef"
	testToken   = "s3cret-seed-token"
)

// lines is a log whose lines are events. It holds more of them than a test makes.
type lines chan string

func newLines() lines { return make(lines, 64) }

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// rig is a running node.
type rig struct {
	*Client
	dir    string
	log    lines
	first  string // its first line, which came when it served
	cancel context.CancelFunc
	ended  chan error
}

// environment is a node's with these owner keys.
func environment(owners ...ed25519.PublicKey) func(string) string {
	var keys []string
	for _, k := range owners {
		keys = append(keys, encode(k))
	}
	vars := map[string]string{startupTokenVar: testStartup, seedTokenVar: testToken, ownerKeysVar: strings.Join(keys, ", ")}
	return func(name string) string { return vars[name] }
}

// startNode runs a node in dir until the test ends or stop is called.
func startNode(t *testing.T, dir string, env func(string) string, h hooks) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &rig{dir: dir, log: newLines(), cancel: cancel, ended: make(chan error, 1)}
	if h.grace == 0 {
		h.grace = stopTimeout
	}
	listening, then := make(chan net.Addr, 1), h.listening
	h.listening = func(a net.Addr) {
		if then != nil {
			then(a)
		}
		listening <- a
	}
	go func() {
		r.ended <- run(ctx, Options{Workdir: dir, StartupTokenFile: filepath.Join(dir, ".startup-token"), Env: env, Log: r.log}, h)
	}()
	select {
	case r.first = <-r.log:
		r.Client = &Client{Base: "http://" + (<-listening).String()}
	case err := <-r.ended:
		cancel()
		t.Fatalf("the node ended at its start: %v", err)
	}
	t.Cleanup(func() { r.stop(t) })
	return r
}

// stop ends the node, waits for it, and returns what it logged since its start.
func (r *rig) stop(t *testing.T) string {
	t.Helper()
	if r.ended == nil {
		return ""
	}
	r.cancel()
	if err := <-r.ended; err != nil {
		t.Errorf("the node ended with %v", err)
	}
	r.ended = nil
	var rest strings.Builder
	for len(r.log) > 0 {
		rest.WriteString(<-r.log)
	}
	return rest.String()
}

func owner(t testing.TB) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pub, priv
}

func sign(t testing.TB, key ed25519.PrivateKey, peers ...string) []byte {
	t.Helper()
	doc, err := SignSeed(key, peers)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// absent fails the test if there is a file at path.
func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want no such file", path, err)
	}
}
