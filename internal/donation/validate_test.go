// This file tests what is accepted and what is refused before anything is written: one table of each kind.

package donation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
)

const (
	somePeer  = "12D3KooWD3kqRWQQUvjWx6RXc5Q5XnjRKwU88Ph45KpDc2nJipJy"
	otherPeer = "QmcgpsyWgH8Y8ajJz1Cu72KnS5uo2Aa2LpzU7kinSupNKC"
	someKey   = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
)

func TestD04_OwnerKeys(t *testing.T) {
	for key, want := range map[string]string{
		someKey:                    someKey,
		" \t" + someKey + "\n":     someKey,
		someKey + "=":              someKey,
		"":                         "an Ed25519 public key, 32 bytes in base64url, and has 0",
		"AAEC":                     "and has 3",
		someKey + "AAAA":           "and has 35",
		strings.Repeat("+", 43):    "base64url",
		"AAEC AwQF":                "base64url",
		someKey[:42] + "é":         "base64url",
		someKey + "," + someKey:    "base64url",
		"\x00" + someKey:           "base64url",
		strings.Repeat("A", 1<<16): "and has 49152",
		strings.ToUpper(someKey) + strings.Repeat("=", 9): strings.ToUpper(someKey[:42]), // what it decodes to, in its one form
	} {
		got, err := donation.Request{OwnerKeys: []string{key}}.Valid()
		check(t, "owner key", key, first(got.OwnerKeys), err, want)
	}
}

func TestD04_BootstrapAddresses(t *testing.T) {
	nowhere, nobody, no := "nowhere to dial", "names no peer", "multiaddress"
	for addr, want := range map[string]string{
		"/ip4/192.0.2.1/tcp/4001/p2p/" + somePeer:                                "/ip4/192.0.2.1/tcp/4001/p2p/" + somePeer,
		" /ip4/192.0.2.1/tcp/4001/p2p/" + otherPeer + "\n":                       "/ip4/192.0.2.1/tcp/4001/p2p/" + otherPeer,
		"/ip4/192.0.2.1/tcp/4001/ipfs/" + otherPeer:                              "/ip4/192.0.2.1/tcp/4001/p2p/" + otherPeer,
		"/ip6/2001:db8::1/udp/4001/quic-v1/p2p/" + somePeer:                      "/ip6/2001:db8::1/udp/4001/quic-v1/p2p/" + somePeer,
		"/dns/example.org/tcp/443/wss/p2p/" + somePeer:                           "/dns/example.org/tcp/443/wss/p2p/" + somePeer,
		"/dns4/example.org/tcp/4001/ws/p2p/" + somePeer:                          "/dns4/example.org/tcp/4001/ws/p2p/" + somePeer,
		"/dnsaddr/bootstrap.example.org/p2p/" + somePeer:                         "/dnsaddr/bootstrap.example.org/p2p/" + somePeer,
		"/ip4/192.0.2.1/tcp/1/p2p/" + somePeer + "/p2p-circuit/p2p/" + otherPeer: "/ip4/192.0.2.1/tcp/1/p2p/" + somePeer + "/p2p-circuit/p2p/" + otherPeer,
		"":                   no,
		"192.0.2.1:4001":     no,
		"http://example.org": no,
		"/ip4/192.0.2.256/tcp/4001/p2p/" + somePeer:    no,
		"/ip4/192.0.2.1/tcp/65536/p2p/" + somePeer:     no,
		"/ip4/192.0.2.1/tcp/4001/p2p/nobody":           no,
		"/ip4/192.0.2.1/tcp/4001/p2p":                  no,
		"/nosuch/x/p2p/" + somePeer:                    no,
		"/ip4/192.0.2.1/tcp/4001":                      nobody,
		"/p2p/" + somePeer:                             nowhere,
		"/ip4/192.0.2.1/p2p/" + somePeer:               nowhere,
		"/ip4/192.0.2.1/tcp/0/p2p/" + somePeer:         nowhere,
		"/ip4/0.0.0.0/tcp/4001/p2p/" + somePeer:        nowhere,
		"/ip6/::/tcp/4001/p2p/" + somePeer:             nowhere,
		"/tcp/4001/p2p/" + somePeer:                    nowhere,
		"/p2p/" + somePeer + "/ip4/192.0.2.1/tcp/4001": nowhere,
	} {
		got, err := donation.Request{BootstrapNodes: []string{addr}}.Valid()
		check(t, "bootstrap address", addr, first(got.BootstrapNodes), err, want)
	}
}

func TestD04_OtherValues(t *testing.T) {
	many := make([]string, 65)
	for what, r := range map[string]donation.Request{
		"a party id with a line feed": {PartyID: "a\nb"},
		"an endless profile":          {Profile: strings.Repeat("x", 257)},
		"too many keys":               {OwnerKeys: many},
		"too many addresses":          {BootstrapNodes: many},
	} {
		if _, err := r.Valid(); donation.CodeOf(err) != donation.CodeInvalidRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
	got, err := donation.Request{Template: "t", Name: "n", PartyID: " p ", Profile: "storage\n"}.Valid()
	if diff := cmp.Diff(donation.Request{Template: "t", Name: "n", PartyID: "p", Profile: "storage"}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// check compares what became of a value: want is what it is in its one form, or what the refusal says.
func check(t *testing.T, what, value, got string, err error, want string) {
	t.Helper()
	switch {
	case err == nil && !strings.HasPrefix(got, want):
		t.Errorf("%s %.80q became %.80q, want %q", what, value, got, want)
	case err != nil && (donation.CodeOf(err) != donation.CodeInvalidRequest || !strings.Contains(err.Error(), want)):
		t.Errorf("%s %.80q: %.300v, want %q", what, value, err, want)
	case err != nil && value != "" && len(value) < 100 && !strings.Contains(err.Error(), what):
		t.Errorf("%s %.80q: the refusal doesn't name it: %v", what, value, err)
	}
}

func first(items []string) string {
	if len(items) == 0 {
		return ""
	}
	return items[0]
}

func FuzzRequestValues(f *testing.F) {
	f.Add(someKey, "/ip4/192.0.2.1/tcp/4001/p2p/"+somePeer)
	f.Add("", "/dnsaddr/x/p2p/"+otherPeer)
	f.Fuzz(func(t *testing.T, key, addr string) {
		r, err := donation.Request{OwnerKeys: []string{key}, BootstrapNodes: []string{addr}}.Valid()
		if err != nil {
			return
		}
		again, err := r.Valid()
		if diff := cmp.Diff(r, again); diff != "" || err != nil {
			t.Errorf("what was accepted is refused, or changes: %v\n%s", err, diff)
		}
	})
}
