// This file checks what people hand in, before anything is written or started: bad input costs nothing.

package donation

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/multiformats/go-multiaddr"
)

// The bounds of a request, far above what a cadre needs.
const (
	maxWord  = 256
	maxItems = 64
	// ownerKeySize is that of an Ed25519 public key, in bytes.
	ownerKeySize = 32
)

var nameRE = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)

// Valid returns the request with its values trimmed and in their one form, or a CodeInvalidRequest that names the
// first bad value, the reason and what is right.
func (r Request) Valid() (Request, error) {
	if r.Name != "" && (!nameRE.MatchString(r.Name) || strings.HasPrefix(strings.ToLower(r.Name), "don_")) {
		return r, Errorf(CodeInvalidRequest, "%q can't be a name: use letters, digits, dots, dashes and underscores, 63 at most, and don't begin it with \"don_\"", r.Name)
	}
	for what, word := range map[string]*string{"party id": &r.PartyID, "profile": &r.Profile} {
		*word = strings.TrimSpace(*word)
		if len(*word) > maxWord || strings.ContainsFunc(*word, unicode.IsControl) {
			return r, Errorf(CodeInvalidRequest, "the %s %.40q has more than %d bytes or a control character", what, *word, maxWord)
		}
	}
	var err error
	if r.OwnerKeys, err = each("owner key", r.OwnerKeys, ownerKey); err != nil {
		return r, err
	}
	r.BootstrapNodes, err = each("bootstrap address", r.BootstrapNodes, bootstrapAddress)
	return r, err
}

// each checks every item of a list; an empty list is valid.
func each(what string, items []string, check func(string) (string, error)) ([]string, error) {
	if len(items) > maxItems {
		return nil, Errorf(CodeInvalidRequest, "%d times %s are more than the %d that a request may hold", len(items), what, maxItems)
	}
	var checked []string
	for _, item := range items {
		good, err := check(strings.TrimSpace(item))
		if err != nil {
			return nil, Errorf(CodeInvalidRequest, "the %s %.200q is invalid: %w", what, item, err)
		}
		checked = append(checked, good)
	}
	return checked, nil
}

// ownerKey returns the key in base64url without padding.
func ownerKey(text string) (string, error) {
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return "", fmt.Errorf("it must be base64url: %w", err)
	}
	if len(key) != ownerKeySize {
		return "", fmt.Errorf("it must be an Ed25519 public key, %d bytes in base64url, and has %d", ownerKeySize, len(key))
	}
	return base64.RawURLEncoding.EncodeToString(key), nil
}

// The protocols that say where to dial, and those that say which port there.
var (
	hosts = []int{multiaddr.P_IP4, multiaddr.P_IP6, multiaddr.P_DNS, multiaddr.P_DNS4, multiaddr.P_DNS6, multiaddr.P_DNSADDR}
	ports = []int{multiaddr.P_TCP, multiaddr.P_UDP}
)

// bootstrapAddress returns the multiaddress in its one form: it must say where to dial, and whom to expect there.
func bootstrapAddress(text string) (string, error) {
	addr, err := multiaddr.NewMultiaddr(text)
	if err != nil {
		return "", fmt.Errorf("it must be a multiaddress like /ip4/192.0.2.1/tcp/4001/p2p/PEER: %w", err)
	}
	if _, err := addr.ValueForProtocol(multiaddr.P_P2P); err != nil {
		return "", errors.New("it names no peer; end it with /p2p/ and the peer's id")
	}
	if !dialable(addr) {
		return "", errors.New("it names nowhere to dial; begin it with a host and its port, like /dns/example.org/tcp/4001")
	}
	return addr.String(), nil
}

// dialable reports whether the address begins with a host, and with a port unless the name says that too.
func dialable(addr multiaddr.Multiaddr) bool {
	if len(addr) < 2 {
		return false
	}
	host, port := addr[0], addr[1]
	switch {
	case host.Protocol().Code == multiaddr.P_DNSADDR:
		return host.Value() != ""
	case !slices.Contains(hosts, host.Protocol().Code), !slices.Contains(ports, port.Protocol().Code), port.Value() == "0":
		return false
	}
	return host.Value() != "0.0.0.0" && host.Value() != "::"
}
