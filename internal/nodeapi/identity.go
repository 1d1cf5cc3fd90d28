// This file holds the node's identity: an Ed25519 key that is made once, in the workdir, and the peer id
// that is its public face.

package nodeapi

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
)

const (
	identityFile = "identity.key"
	pemType      = "PRIVATE KEY"
)

// loadIdentity returns the workdir's key (PKCS #8 in PEM) and makes it if there is none. One that can't be
// read is an error: a node that quietly became somebody else would be worse than one that doesn't start.
func loadIdentity(workdir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(workdir, identityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeIdentity(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's identity: %w", err)
	}
	key, err := parseIdentity(data)
	if err != nil {
		return nil, fmt.Errorf("the node's identity %s is damaged and was left as it is: %w; restore it, or remove it for a new identity", path, err)
	}
	return key, nil
}

func parseIdentity(data []byte) (ed25519.PrivateKey, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != pemType || len(rest) > 0 {
		return nil, errors.New("it is not one PEM block of a private key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it holds a %T, not an Ed25519 key", key)
	}
	return private, nil
}

// makeIdentity writes a fresh key to path, durably. Linking it there, instead of renaming, refuses a key
// that another process has made meanwhile.
func makeIdentity(path string) (ed25519.PrivateKey, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("make the node's identity: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("make the node's identity: %w", err)
	}
	if err := writeFile(path, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), os.Link); err != nil {
		return nil, fmt.Errorf("write the node's identity (the workdir must exist and be writable): %w", err)
	}
	return private, nil
}

// base58 is Bitcoin's alphabet, which peer ids use.
const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// PeerID returns the peer id of a public key in libp2p's form ("12D3KooW…"): base58 of the identity
// multihash of the key's protobuf encoding. The same key always has the same id.
func PeerID(key ed25519.PublicKey) string {
	// Multihash: identity, 36 bytes. Protobuf: type = Ed25519, data = 32 bytes.
	raw := append([]byte{0x00, 0x24, 0x08, 0x01, 0x12, 0x20}, key...)
	n, radix, digit := new(big.Int).SetBytes(raw), big.NewInt(58), new(big.Int)
	var out []byte
	for n.Sign() > 0 {
		n.DivMod(n, radix, digit)
		out = append(out, base58[digit.Int64()])
	}
	out = append(out, base58[0]) // the one leading zero byte
	slices.Reverse(out)
	return string(out)
}
