// This file holds the type that keeps tokens out of logs, errors, JSON and printf.

package donation

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
)

// Secret is a token that prints as *** and marshals as nothing. Reveal is called where it is stored and
// where it is handed to the guard, and nowhere else. Two of the same token aren't ==.
type Secret struct {
	// value is behind a pointer because fmt can't call the methods of an unexported field: there it prints the
	// address instead of the token.
	value *string
}

// NewSecret wraps a token; an empty one is no token.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{&value}
}

// NewSeedToken returns 256 random bits in base64url, the bearer for a node's /seed.
func NewSeedToken() Secret {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return NewSecret(base64.RawURLEncoding.EncodeToString(b[:]))
}

// NewStartupToken returns 128 random bits as 32 hex digits, what a node writes to show that it started.
func NewStartupToken() Secret {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return NewSecret(hex.EncodeToString(b[:]))
}

// Reveal returns the token itself, "" if there is none.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether there is no token.
func (s Secret) IsZero() bool { return s.value == nil }

// String returns ***.
func (Secret) String() string { return "***" }

// Format writes *** for every verb of fmt; String alone would leave the verbs that aren't for text.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns nothing, so that encoders write an empty string.
func (Secret) MarshalText() ([]byte, error) { return nil, nil }
