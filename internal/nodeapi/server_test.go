// This file tests the node's HTTP surface, request by request.

package nodeapi

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// newNode returns a node that serves only through its handler.
func newNode(t *testing.T, token string, owners ...ed25519.PublicKey) *node {
	t.Helper()
	book, err := openSeeds(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &node{
		seedHash: sha256.Sum256([]byte(token)), hasSeed: token != "",
		owners: owners, book: book, log: log.New(io.Discard, "", 0),
	}
}

// post sends a body to /seed with an Authorization header, or none.
func post(n *node, authorization, body string) (int, SeedResult) {
	req := httptest.NewRequest(http.MethodPost, "/seed", strings.NewReader(body))
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	n.handler().ServeHTTP(w, req)
	var r SeedResult
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		r.Error = "not JSON: " + w.Body.String()
	}
	return w.Code, r
}

// wrap makes the body of a seed request.
func wrap(doc []byte) string { return fmt.Sprintf(`{"seed":%q}`, encode(doc)) }

func TestSeedAnswers(t *testing.T) {
	pub, priv := owner(t)
	_, stranger := owner(t)
	good := wrap(sign(t, priv, "/ip4/192.0.2.1/tcp/1"))
	// filled is a body of exactly size bytes: white space after the document is part of it.
	filled := func(size int) string { return good + strings.Repeat(" ", size-len(good)) }
	for name, tc := range map[string]struct {
		body  string
		code  int
		added int
		words string // none: success
	}{
		"an owner's":         {good, 200, 1, ""},
		"the largest":        {filled(MaxBody), 200, 1, ""},
		"too large":          {filled(MaxBody + 1), 413, 0, "larger than 262144 bytes"},
		"a stranger's":       {wrap(sign(t, stranger, "/x")), 200, 0, "none of this node's owner keys"},
		"forged":             {wrap(altered(t, sign(t, priv, "/x"), func(d *seedDocument) { d.Payload = "e30" })), 200, 0, "signature does not fit"},
		"no peers":           {wrap(sign(t, priv)), 200, 0, ""},
		"not base64url":      {`{"seed":"%"}`, 200, 0, "not base64url"},
		"no seed in it":      {`{}`, 200, 0, "not the JSON document"},
		"not JSON":           {"seed", 400, 0, "can't be read"},
		"nothing":            {"", 400, 0, "can't be read"},
		"more than one":      {good + good, 400, 0, "can't be read"},
		"something else too": {`{"seed":"","peers":[]}`, 400, 0, "can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, testToken, pub)
			code, r := post(n, "Bearer "+testToken, tc.body)
			if code != tc.code || r.Success != (tc.words == "") || r.PeersAdded != tc.added || !strings.Contains(r.Error, tc.words) {
				t.Errorf("%d %+v, want %d and %q", code, r, tc.code, tc.words)
			}
			accepted, rejected := n.accepted.Load(), n.rejected.Load()
			if accepted+rejected != 1 || (accepted == 1) != r.Success || (n.seeds() == 1) != r.Success {
				t.Errorf("counted %d accepted and %d rejected, kept %d", accepted, rejected, n.seeds())
			}
		})
	}
}

func TestSeedIsRejectedWithoutOwners(t *testing.T) {
	_, priv := owner(t)
	code, r := post(newNode(t, testToken), "Bearer "+testToken, wrap(sign(t, priv, "/x")))
	if code != http.StatusOK || r.Success || !strings.Contains(r.Error, "no owner keys") {
		t.Errorf("%d %+v", code, r)
	}
}

func TestSeedNeedsTheBearer(t *testing.T) {
	pub, priv := owner(t)
	good := wrap(sign(t, priv, "/x"))
	for _, token := range []string{testToken, ""} { // without a configured token nobody may seed
		n := newNode(t, token, pub)
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Bearer " + testToken + "x", "Bearer " + testToken[1:], "Basic " + testToken, testToken} {
			for _, body := range []string{good, "not JSON", strings.Repeat("x", MaxBody+1)} {
				if code, r := post(n, authorization, body); code != http.StatusUnauthorized || r.Success {
					t.Errorf("configured %q, %q, %d bytes: %d %+v, want 401", token, authorization, len(body), code, r)
				}
			}
		}
		if n.seeds() != 0 || n.rejected.Load() != 0 {
			t.Errorf("a wrong bearer counts as a seed: %d kept, %d rejected", n.seeds(), n.rejected.Load())
		}
	}
	if code, _ := post(newNode(t, "", pub), "Bearer "+testToken, good); code != http.StatusUnauthorized {
		t.Errorf("a node without a token answers %d, want 401", code)
	}
}

func TestSeedThatCannotBeKeptIsTheHostsFault(t *testing.T) {
	pub, priv := owner(t)
	n := newNode(t, testToken, pub)
	logged := newLines()
	n.log = log.New(logged, "", 0)
	n.book.path = filepath.Join(t.TempDir(), "gone", seedsFile)
	code, r := post(n, "Bearer "+testToken, wrap(sign(t, priv, "/x")))
	if code != http.StatusInternalServerError || r.Success || strings.Contains(r.Error, n.book.path) {
		t.Errorf("%d %+v, want 500 without the path", code, r)
	}
	if line := <-logged; !strings.Contains(line, "gone") {
		t.Errorf("logged %q, want the path", line)
	}
	if n.rejected.Load() != 0 || n.seeds() != 0 {
		t.Errorf("%d rejected, %d kept", n.rejected.Load(), n.seeds())
	}
}

func TestSeedsAtOnceAreAllKept(t *testing.T) {
	pub, priv := owner(t)
	n := newNode(t, testToken, pub)
	var all sync.WaitGroup
	for i := range 8 {
		body := wrap(sign(t, priv, "/shared", fmt.Sprintf("/own/%d", i)))
		all.Go(func() {
			if code, r := post(n, "Bearer "+testToken, body); code != http.StatusOK || !r.Success {
				t.Errorf("seed %d: %d %+v", i, code, r)
			}
		})
	}
	all.Wait()
	book, err := openSeeds(filepath.Dir(n.book.path))
	if err != nil || len(book.seeds) != 8 || len(book.peers) != 9 {
		t.Errorf("on disk: %d seeds, %d peers, %v; want 8 and 9", len(book.seeds), len(book.peers), err)
	}
	if left, err := os.ReadDir(filepath.Dir(n.book.path)); err != nil || len(left) != 1 {
		t.Errorf("the workdir holds %v, %v; want seeds.json alone", left, err)
	}
}

func TestNodeAnswersByPhase(t *testing.T) {
	n := newNode(t, testToken)
	for _, tc := range []struct {
		phase  phase
		path   string
		code   int
		answer string
	}{
		{starting, "/health", 503, `{"status":"starting"}`},
		{starting, "/metrics", 200, "\ncadre_node_up 0\n"},
		{healthy, "/health", 200, `{"status":"healthy"}`},
		{healthy, "/ready", 200, `{"status":"healthy"}`},
		{healthy, "/metrics", 200, "# TYPE cadre_node_up gauge\ncadre_node_up 1\n"},
		{healthy, "/metrics", 200, "\ncadre_node_uptime_seconds "},
		{healthy, "/metrics", 200, "# TYPE cadre_node_seeds_accepted_total counter\ncadre_node_seeds_accepted_total 2\n"},
		{healthy, "/metrics", 200, "\ncadre_node_seeds_rejected_total 3\n"},
		{stopping, "/ready", 503, `{"status":"stopping"}`},
		{healthy, "/nothing", 404, ""},
		{healthy, "/seed", 405, ""},
	} {
		n.phase.Store(int32(tc.phase))
		n.accepted.Store(2)
		n.rejected.Store(3)
		w := httptest.NewRecorder()
		n.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.answer) {
			t.Errorf("%s in phase %d: %d %s, want %d %s", tc.path, tc.phase, w.Code, w.Body, tc.code, tc.answer)
		}
	}
}
