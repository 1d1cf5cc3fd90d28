// This file makes and checks identifiers.

package guard

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
)

// The variables that every node finds in its environment. With session tracking they help to find its tree.
const (
	spawnVariable    = "CADRE_SPAWN"
	donationVariable = "CADRE_DONATION"
	notifyVariable   = "NOTIFY_SOCKET"
)

// idPattern is what spawns and donations are named: a prefix and a ULID in lower case. It is safe as a file name.
var idPattern = regexp.MustCompile(`^(spn|don)_[0-9a-z]{26}$`)

func validID(s string) bool { return idPattern.MatchString(s) }

// newID returns 64 random bits in hex.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return hex.EncodeToString(b[:])
}
