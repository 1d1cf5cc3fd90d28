// This file tests seeding with the real reference node, which verifies real signatures.

package daemon_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/nodeapi"
)

// waiting is the reference node as a borrower's: it waits for a seed.
const waiting = `
[template.waiting]
command = "@self"
args = ["node", "--workdir", "{{.Workdir}}", "--health-port", "{{.Port.health}}", "--startup-token-file", "{{.Workdir}}/.startup-token"]
ports = ["health"]
ready = { file = ".startup-token", content = "{{.StartupToken}}" }
seed = true

[template.waiting.env]
CADRE_STARTUP_TOKEN = "{{.StartupToken}}"
CADRE_SEED_TOKEN = "{{.SeedToken}}"
CADRE_OWNER_KEYS = '{{join .OwnerKeys ","}}'
GORACE = "atexit_sleep_ms=0"
`

func TestD09_SeedAfterTheDeathOfDaemonAndNode(t *testing.T) {
	h := newHost(t, waiting)
	h.run("running")
	public, owner, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := h.client.Donate(t.Context(), donation.Request{
		Template: "waiting", Name: "node", OwnerKeys: []string{base64.URLEncoding.EncodeToString(public)},
	})
	if err != nil || v.Status != donation.AwaitingSeed {
		t.Fatalf("%s, %v", v.Status, err)
	}
	h.await("node", "ready", func(v api.View) bool { return v.Ready })
	sign := func(key ed25519.PrivateKey) []byte {
		seed, err := nodeapi.SignSeed(key, []string{"/ip4/192.0.2.1/tcp/4001"})
		if err != nil {
			t.Fatal(err)
		}
		return seed
	}

	// A stranger's seed is rejected. Then daemon and node die, and the owner's is accepted all the same.
	if _, err := h.client.Seed(t.Context(), "node", sign(stranger)); donation.CodeOf(err) != donation.CodeSeedRejected {
		t.Errorf("a stranger's seed: %v", err)
	}
	before := h.view("node")
	h.kill()
	signalTo(t, before.PID, unix.SIGKILL)
	h.run("running")
	h.await("node", "back", func(v api.View) bool { return v.Ready && v.PID != before.PID && v.Status == donation.AwaitingSeed })
	result, err := h.client.Seed(t.Context(), "node", sign(owner))
	if err != nil || !result.Accepted || result.PeersAdded != 1 {
		t.Fatalf("the owner's seed: %+v, %v", result, err)
	}
	if now := h.view("node"); now.Status != donation.Seeded {
		t.Errorf("status %s", now.Status)
	}
	peer, err := h.client.Peer(t.Context(), "node")
	if err != nil || !strings.HasPrefix(peer.ID, "12D3") || len(peer.Addrs) == 0 {
		t.Errorf("peer %+v, %v", peer, err)
	}
}

func TestP14_StrangerOnANodesPortGetsNoToken(t *testing.T) {
	h := newHost(t, `
[template.waiting]
command = "/bin/sleep"
args = ["1000000"]
ports = ["health"]
seed = true
`)
	h.run("running")
	v := h.donate("waiting", "node")
	if v.UID == 0 {
		t.Skip("nodes have no users of their own without root")
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", v.Ports["health"]))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = h.client.Seed(t.Context(), "node", []byte("seed"))
	if donation.CodeOf(err) != donation.CodePeerUnavailable || !strings.Contains(err.Error(), "stranger") {
		t.Errorf("with a stranger on its port: %v", err)
	}
}
