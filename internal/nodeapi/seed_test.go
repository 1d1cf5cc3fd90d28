// This file tests the decision about a seed, and the book of those that were accepted.

package nodeapi

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// signPayload signs bytes that needn't be a payload.
func signPayload(t testing.TB, key ed25519.PrivateKey, payload []byte) []byte {
	t.Helper()
	doc, err := json.Marshal(seedDocument{encode(payload), encode(ed25519.Sign(key, payload)), encode(key.Public().(ed25519.PublicKey))})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// altered returns doc with a change made to it.
func altered(t *testing.T, doc []byte, change func(*seedDocument)) []byte {
	t.Helper()
	var d seedDocument
	if err := json.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	change(&d)
	out, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestVerifySeedAcceptsAnOwners(t *testing.T) {
	pub, priv := owner(t)
	other, _ := owner(t)
	for name, peers := range map[string][]string{
		"peers":  {"/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq", "/dns4/peer.example/tcp/1"},
		"none":   {},
		"a long": {"/" + strings.Repeat("a", maxPeer-1)},
	} {
		got, err := VerifySeed(sign(t, priv, peers...), []ed25519.PublicKey{other, pub})
		if diff := cmp.Diff(peers, got); diff != "" || err != nil {
			t.Errorf("%s: %v, (-want +got)\n%s", name, err, diff)
		}
	}
	if got, err := VerifySeed(sign(t, priv), []ed25519.PublicKey{pub}); err != nil || len(got) != 0 {
		t.Errorf("no peers at all: %v, %v", got, err)
	}
	padded := altered(t, sign(t, priv, "/x"), func(d *seedDocument) { d.Signature += "==" })
	if _, err := VerifySeed(padded, []ed25519.PublicKey{pub}); err != nil {
		t.Errorf("with padding: %v", err)
	}
}

func TestVerifySeedRejects(t *testing.T) {
	pub, priv := owner(t)
	strange, stranger := owner(t)
	good := sign(t, priv, "/ip4/192.0.2.1/tcp/1")
	forge := func(change func(*seedDocument)) []byte { return altered(t, good, change) }
	payload := func(text string) []byte { return signPayload(t, priv, []byte(text)) }
	pinned := []ed25519.PublicKey{pub}
	for name, tc := range map[string]struct {
		doc    []byte
		pinned []ed25519.PublicKey
		words  string
	}{
		"no owner is pinned":       {good, nil, "no owner keys"},
		"another owner is pinned":  {good, []ed25519.PublicKey{strange}, "none of this node's owner keys"},
		"a stranger's":             {sign(t, stranger, "/x"), pinned, "none of this node's owner keys"},
		"a stranger as the owner":  {altered(t, sign(t, stranger, "/x"), func(d *seedDocument) { d.Key = encode(pub) }), pinned, "signature does not fit"},
		"another payload":          {forge(func(d *seedDocument) { d.Payload = encode([]byte(`{"peers":["/x"]}`)) }), pinned, "signature does not fit"},
		"another signature":        {forge(func(d *seedDocument) { d.Signature = encode(make([]byte, ed25519.SignatureSize)) }), pinned, "signature does not fit"},
		"short signature":          {forge(func(d *seedDocument) { d.Signature = "AA" }), pinned, "signature is 1 bytes long, not 64"},
		"no signature":             {forge(func(d *seedDocument) { d.Signature = "" }), pinned, "signature is 0 bytes long"},
		"short key":                {forge(func(d *seedDocument) { d.Key = "AA" }), pinned, "key is 1 bytes long, not 32"},
		"payload not base64url":    {forge(func(d *seedDocument) { d.Payload = "%" }), pinned, "payload is not base64url"},
		"empty":                    {nil, pinned, "not the JSON document"},
		"not JSON":                 {[]byte("seed"), pinned, "not the JSON document"},
		"a field more":             {[]byte(`{"payload":"","signature":"","key":"","alg":"none"}`), pinned, "not the JSON document"},
		"two documents":            {slices.Concat(good, good), pinned, "more follows"},
		"payload not JSON":         {payload("peers"), pinned, "payload can't be read"},
		"payload without peers":    {payload("{}"), pinned, "no list of peers"},
		"payload of another form":  {payload(`{"peers":"/x"}`), pinned, "payload can't be read"},
		"a peer that is none":      {sign(t, priv, "/x", "peer.example"), pinned, "peer 2 is no multiaddr"},
		"a peer with a line break": {sign(t, priv, "/x\n/y"), pinned, "peer 1 is no multiaddr"},
		"a peer without end":       {sign(t, priv, "/"+strings.Repeat("a", maxPeer)), pinned, "peer 1 is 1025 bytes long"},
	} {
		if peers, err := VerifySeed(tc.doc, tc.pinned); err == nil || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%s: %v, %v; want %q", name, peers, err, tc.words)
		}
	}
}

func TestSignSeedRefusesAKeyThatIsNone(t *testing.T) {
	if _, err := SignSeed(ed25519.PrivateKey("short"), nil); err == nil {
		t.Error("signed with a key of 5 bytes")
	}
}

func TestParseOwnerKeys(t *testing.T) {
	a, _ := owner(t)
	b, _ := owner(t)
	got, err := ParseOwnerKeys(" " + encode(a) + ", " + encode(b) + "=,")
	if diff := cmp.Diff([]ed25519.PublicKey{a, b}, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got)\n%s", err, diff)
	}
	if got, err := ParseOwnerKeys(""); err != nil || got != nil {
		t.Errorf("empty: %v, %v", got, err)
	}
	for _, bad := range []string{"AA", "%", encode(a) + "," + encode(b[:31])} {
		if got, err := ParseOwnerKeys(bad); err == nil {
			t.Errorf("ParseOwnerKeys(%q) = %v", bad, got)
		}
	}
}

// FuzzVerifySeed looks for a document that is accepted although no owner signed it, for a signed payload
// whose peers aren't what they should be, and for panics.
func FuzzVerifySeed(f *testing.F) {
	pub, priv := owner(f)
	good := sign(f, priv, "/ip4/192.0.2.1/tcp/1")
	for _, doc := range [][]byte{
		good, good[1:],
		{},
		[]byte("{}"), []byte("null"), []byte(`{"payload":"","signature":"","key":""}`),
		[]byte(`{"peers":["/ip4/192.0.2.1/tcp/1"]}`), []byte(`{"peers":[]}`), []byte(`{"peers":[""]}`), []byte(`{"peers":["/\u0000"]}`),
	} {
		f.Add(doc)
	}
	pinned := []ed25519.PublicKey{pub}
	f.Fuzz(func(t *testing.T, data []byte) {
		if peers, err := VerifySeed(data, pinned); err == nil {
			var d seedDocument
			if err := json.Unmarshal(data, &d); err != nil {
				t.Fatalf("accepted what is no document: %v", err)
			}
			payload, _ := decode(d.Payload)
			signature, _ := decode(d.Signature)
			if !ed25519.Verify(pub, payload, signature) {
				t.Fatalf("accepted %v, which no owner signed", peers)
			}
		}
		peers, err := VerifySeed(signPayload(t, priv, data), pinned)
		if err != nil {
			return
		}
		for _, p := range peers {
			if !strings.HasPrefix(p, "/") || len(p) > maxPeer || strings.ContainsAny(p, " \n\x00") {
				t.Fatalf("accepted the peer %q", p)
			}
		}
	})
}

func TestSeedBookKeepsWhatItAccepted(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b, err := openSeeds(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		peers []string
		want  int
	}{
		{[]string{"/a", "/b", "/a"}, 2},
		{[]string{"/a", "/b", "/a"}, 0}, // the same again isn't written
		{[]string{"/b", "/c"}, 1},
		{[]string{}, 0},
	} {
		if got, err := b.add(step.peers, at); err != nil || got != step.want {
			t.Errorf("step %d: %d, %v; want %d", i, got, err, step.want)
		}
	}
	again, err := openSeeds(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []acceptedSeed{{at, []string{"/a", "/b", "/a"}}, {at, []string{"/b", "/c"}}, {at, []string{}}}
	if diff := cmp.Diff(want, again.seeds); diff != "" {
		t.Errorf("read again (-want +got)\n%s", diff)
	}
	if got, err := again.add([]string{"/c", "/d"}, at); err != nil || got != 1 {
		t.Errorf("after reading again: %d, %v", got, err)
	}
}

func TestSeedBookIsBounded(t *testing.T) {
	b, err := openSeeds(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.add([]string{"/" + strings.Repeat("a", maxSeeds)}, time.Time{}); !errors.Is(err, errBookFull) {
		t.Errorf("error %v, want errBookFull", err)
	}
	if len(b.seeds) != 0 || len(b.peers) != 0 {
		t.Errorf("%d seeds, %d peers were kept", len(b.seeds), len(b.peers))
	}
	absent(t, b.path)
}

func TestSeedBookForgetsWhatItCouldNotWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	b, err := openSeeds(dir) // there is none yet, and never will be
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.add([]string{"/a"}, time.Time{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if len(b.seeds) != 0 || len(b.peers) != 0 {
		t.Errorf("%d seeds, %d peers were kept", len(b.seeds), len(b.peers))
	}
}
