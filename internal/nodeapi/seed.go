// This file decides whether a seed is one of the node's owners': pure, from bytes and keys to peers or the
// reason why not. A reason goes back to whoever sent the seed, so it repeats no more of it than needed.

package nodeapi

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// maxPeer bounds one multiaddr, in bytes: several times the longest that is in use.
const maxPeer = 1024

// seedDocument is a seed as it travels; its fields are base64url.
type seedDocument struct {
	Payload   string `json:"payload"`
	Signature string `json:"signature"`
	Key       string `json:"key"`
}

// seedPayload is what a seed tells the node. The signature is over these very bytes as they were sent.
type seedPayload struct {
	Peers []string `json:"peers"`
}

// VerifySeed returns the peers that a seed document names if one of the pinned owners signed it. The error
// is the reason to give to the sender.
func VerifySeed(doc []byte, pinned []ed25519.PublicKey) ([]string, error) {
	if len(pinned) == 0 {
		return nil, errors.New("this node has no owner keys (CADRE_OWNER_KEYS), so it takes no seed")
	}
	var d seedDocument
	if err := strictJSON(doc, &d); err != nil {
		return nil, fmt.Errorf("the seed is not the JSON document that this node takes: %w", err)
	}
	payload, err := field("payload", d.Payload, -1)
	if err != nil {
		return nil, err
	}
	signature, err := field("signature", d.Signature, ed25519.SignatureSize)
	if err != nil {
		return nil, err
	}
	key, err := field("key", d.Key, ed25519.PublicKeySize)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(pinned, func(p ed25519.PublicKey) bool { return bytes.Equal(p, key) }) {
		return nil, errors.New("the seed's key is none of this node's owner keys")
	}
	if !ed25519.Verify(key, payload, signature) {
		return nil, errors.New("the seed's signature does not fit its payload")
	}
	return parsePeers(payload)
}

// parsePeers reads a payload that an owner has signed. Also an owner can be mistaken.
func parsePeers(payload []byte) ([]string, error) {
	var p seedPayload
	if err := strictJSON(payload, &p); err != nil {
		return nil, fmt.Errorf("the seed's payload can't be read: %w", err)
	}
	if p.Peers == nil {
		return nil, errors.New("the seed's payload has no list of peers")
	}
	for i, peer := range p.Peers {
		if len(peer) > maxPeer {
			return nil, fmt.Errorf("the seed's peer %d is %d bytes long; %d are allowed", i+1, len(peer), maxPeer)
		}
		if !strings.HasPrefix(peer, "/") || strings.ContainsFunc(peer, notInMultiaddr) {
			return nil, fmt.Errorf("the seed's peer %d is no multiaddr, such as /ip4/192.0.2.1/tcp/4001", i+1)
		}
	}
	return p.Peers, nil
}

func notInMultiaddr(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

// field decodes one field of a seed; a size below zero is any.
func field(name, text string, size int) ([]byte, error) {
	b, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("the seed's %s is not base64url: %w", name, err)
	}
	if size >= 0 && len(b) != size {
		return nil, fmt.Errorf("the seed's %s is %d bytes long, not %d", name, len(b), size)
	}
	return b, nil
}

// ParseOwnerKeys reads the text of CADRE_OWNER_KEYS: Ed25519 public keys in base64url, separated by commas.
// Empty is none. An error names the key by its position: what stands there may be a secret by mistake.
func ParseOwnerKeys(text string) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		b, err := decode(part)
		if err != nil || len(b) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("owner key %d is not an Ed25519 public key: %d bytes in base64url are expected", len(keys)+1, ed25519.PublicKeySize)
		}
		keys = append(keys, b)
	}
	return keys, nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode reads base64url with or without padding.
func decode(text string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
}

// strictJSON reads exactly one document without unknown fields.
func strictJSON(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows after the document")
	}
	return nil
}
