// This file holds the owner's side of a seed: what somebody who lends from this host does at home.

package nodeapi

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
)

// SignSeed makes a seed document that tells a node of peers (multiaddrs), signed by an owner's key. It is
// what Client.Seed takes, and what VerifySeed accepts where the key is pinned.
func SignSeed(priv ed25519.PrivateKey, peers []string) ([]byte, error) {
	if len(priv) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("sign the seed: the private key is %d bytes long, not %d", len(priv), ed25519.PrivateKeySize)
	}
	if peers == nil {
		peers = []string{} // a payload without the list is refused
	}
	payload, err := json.Marshal(seedPayload{Peers: peers})
	if err != nil {
		return nil, fmt.Errorf("encode the seed's payload: %w", err)
	}
	doc, err := json.Marshal(seedDocument{
		Payload:   encode(payload),
		Signature: encode(ed25519.Sign(priv, payload)),
		Key:       encode(priv.Public().(ed25519.PublicKey)),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the seed: %w", err)
	}
	return doc, nil
}
