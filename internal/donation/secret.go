// This file holds the type that keeps tokens out of logs, errors, JSON and printf.

package donation

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
)

// Secret is a token that prints as *** and marshals as nothing. Reveal is called where it is stored and
// where it is handed to the guard, and nowhere else.
type Secret struct{ value string }

// NewSecret wraps a token.
func NewSecret(value string) Secret { return Secret{value} }

// NewSeedToken returns 256 random bits in base64url, the bearer for a node's /seed.
func NewSeedToken() Secret {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return Secret{base64.RawURLEncoding.EncodeToString(b[:])}
}

// NewStartupToken returns 128 random bits as 32 hex digits, what a node writes to show that it started.
func NewStartupToken() Secret {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return Secret{hex.EncodeToString(b[:])}
}

// Reveal returns the token itself.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether there is no token.
func (s Secret) IsZero() bool { return s.value == "" }

// String returns *** so that no verb of fmt prints the token.
func (Secret) String() string { return "***" }

// GoString returns *** for %#v.
func (Secret) GoString() string { return "***" }

// MarshalText returns nothing, so that encoders write an empty string.
func (Secret) MarshalText() ([]byte, error) { return nil, nil }
