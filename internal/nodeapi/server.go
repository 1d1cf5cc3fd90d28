// This file holds the reference node's HTTP surface.

package nodeapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func (n *node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", n.health)
	mux.HandleFunc("GET /ready", n.health)
	mux.HandleFunc("GET /status", n.status)
	mux.HandleFunc("GET /metrics", n.metrics)
	mux.HandleFunc("POST /seed", n.seed)
	return mux
}

func (n *node) health(w http.ResponseWriter, _ *http.Request) {
	p := phases[n.phase.Load()]
	answer(w, p.code, map[string]string{"status": p.word})
}

func (n *node) status(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, Status{
		PeerID:     n.peerID,
		Multiaddrs: []string{multiaddr(n.addr, n.peerID)},
		StartedAt:  n.startedAt,
		Seeds:      n.seeds(),
		PID:        os.Getpid(),
	})
}

func (n *node) seeds() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.book.seeds)
}

// multiaddr names the node's address.
func multiaddr(a *net.TCPAddr, peer string) string {
	family := "ip6"
	if a.IP.To4() != nil {
		family = "ip4"
	}
	return fmt.Sprintf("/%s/%s/tcp/%d/p2p/%s", family, a.IP, a.Port, peer)
}

// metrics answers in the Prometheus text format; four numbers need no library.
func (n *node) metrics(w http.ResponseWriter, _ *http.Request) {
	up := 0
	if phase(n.phase.Load()) == healthy {
		up = 1
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	for _, m := range []struct {
		name, kind, help string
		value            any
	}{
		{"cadre_node_up", "gauge", "1 while the node is healthy, 0 while it starts or stops.", up},
		{"cadre_node_uptime_seconds", "gauge", "Seconds since the node started.", time.Since(n.startedAt).Seconds()},
		{"cadre_node_seeds_accepted_total", "counter", "Seeds accepted since the start.", n.accepted.Load()},
		{"cadre_node_seeds_rejected_total", "counter", "Seeds rejected since the start.", n.rejected.Load()},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", m.name, m.help, m.name, m.kind, m.name, m.value)
	}
}

// seed takes a seed. Who may speak is settled before anything is read; from then on "no" is an answer about
// the seed and comes with 200, unless the request itself can't be read.
func (n *node) seed(w http.ResponseWriter, r *http.Request) {
	if !n.authorized(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		answer(w, http.StatusUnauthorized, SeedResult{Error: "the bearer token is wrong or missing"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if tooBig := (*http.MaxBytesError)(nil); errors.As(err, &tooBig) {
		n.reject(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the request is larger than %d bytes", MaxBody))
		return
	}
	var req SeedRequest
	if err == nil {
		err = strictJSON(body, &req)
	}
	if err != nil {
		n.reject(w, http.StatusBadRequest, fmt.Errorf(`the request can't be read as {"seed": "<base64url>"}: %w`, err))
		return
	}
	doc, err := decode(req.Seed)
	if err != nil {
		n.reject(w, http.StatusOK, fmt.Errorf("the seed is not base64url: %w", err))
		return
	}
	peers, err := VerifySeed(doc, n.owners)
	if err != nil {
		n.reject(w, http.StatusOK, err)
		return
	}
	added, err := n.keep(peers)
	switch {
	case errors.Is(err, errBookFull):
		n.reject(w, http.StatusOK, err)
	case err != nil:
		// The host's disk is nothing to tell a borrower about.
		n.log.Printf("a seed could not be kept: %v", err)
		answer(w, http.StatusInternalServerError, SeedResult{Error: "the node could not keep the seed; its log says why"})
	default:
		n.accepted.Add(1)
		answer(w, http.StatusOK, SeedResult{Success: true, PeersAdded: added})
	}
}

// keep writes an accepted seed down.
func (n *node) keep(peers []string) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.book.add(peers, time.Now().UTC())
}

// authorized compares the bearer's hash with the token's, in constant time whatever their lengths. Without
// a token nobody is.
func (n *node) authorized(r *http.Request) bool {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(bearer))
	return subtle.ConstantTimeCompare(sum[:], n.seedHash[:]) == 1 && ok && n.hasSeed
}

func (n *node) reject(w http.ResponseWriter, status int, err error) {
	n.rejected.Add(1)
	answer(w, status, SeedResult{Error: err.Error()})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}
