// This file holds what is known of a node's lease.

package donation

import "time"

// Lease is the lease of a donation's node as its renewals have left it.
type Lease struct {
	Donation ID
	// Spawn is whose lease it is.
	Spawn SpawnID
	TTL   time.Duration
	// ExpiresAt is the last expiry that the enforcer has confirmed.
	ExpiresAt time.Time
	// RenewedAt is when it last did; zero if it never has.
	RenewedAt time.Time
	// Failures counts the renewals in a row that failed since, LastError says what of.
	Failures  int
	LastError string
}

// Low reports whether less than a quarter of the TTL is left: healthy renewals never let it come to that.
func (l Lease) Low(now time.Time) bool { return l.TTL > 0 && l.ExpiresAt.Sub(now) < l.TTL/4 }

// The kinds of the events about leases.
const (
	// EventLeaseFailing: the first of several renewals in a row has failed.
	EventLeaseFailing = "lease.failing"
	// EventLeaseRegained: a renewal has succeeded after failures.
	EventLeaseRegained = "lease.regained"
	// EventLeaseGone: the enforcer doesn't know the process any more.
	EventLeaseGone = "lease.gone"
)
