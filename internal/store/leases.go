// This file keeps the leases. They change all the time, so they are written many at once, and what a crash loses is
// the moment of the latest renewals: the enforcer knows better anyway.

package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// SaveLeases writes all of these in one transaction, each over what was there for its donation. A lease of a
// donation that isn't on record is left out.
func (s *Store) SaveLeases(ctx context.Context, leases []donation.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	return s.writer.do(ctx, "save leases", func(w *writeTx) error {
		for _, l := range leases {
			if _, err := w.exec(`
				INSERT INTO leases (donation, spawn, ttl_ns, expires_at, renewed_at, failures, last_error)
				SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS (SELECT 1 FROM donations WHERE id = ?1)
				ON CONFLICT (donation) DO UPDATE SET spawn = ?2, ttl_ns = ?3, expires_at = ?4, renewed_at = ?5, failures = ?6, last_error = ?7`,
				l.Donation, l.Spawn, int64(l.TTL), micros(l.ExpiresAt), micros(l.RenewedAt), l.Failures, l.LastError); err != nil {
				return err
			}
		}
		return nil
	})
}

// Lease returns what is on record of a donation's lease; false if nothing is.
func (s *Store) Lease(ctx context.Context, id donation.ID) (donation.Lease, bool, error) {
	rows, err := s.query(ctx, `SELECT donation, spawn, ttl_ns, expires_at, renewed_at, failures, last_error FROM leases WHERE donation = ?`, id)
	if err != nil {
		return donation.Lease{}, false, translate(s.path, "read a lease", err)
	}
	type row struct {
		Donation  donation.ID      `db:"donation"`
		Spawn     donation.SpawnID `db:"spawn"`
		TTL       int64            `db:"ttl_ns"`
		ExpiresAt sql.NullInt64    `db:"expires_at"`
		RenewedAt sql.NullInt64    `db:"renewed_at"`
		Failures  int              `db:"failures"`
		LastError string           `db:"last_error"`
	}
	leases, err := collect(rows, func(r *row) (donation.Lease, error) {
		return donation.Lease{
			Donation: r.Donation, Spawn: r.Spawn, TTL: time.Duration(r.TTL), ExpiresAt: fromMicros(r.ExpiresAt),
			RenewedAt: fromMicros(r.RenewedAt), Failures: r.Failures, LastError: r.LastError,
		}, nil
	})
	if err != nil || len(leases) == 0 {
		return donation.Lease{}, false, translate(s.path, "read a lease", err)
	}
	return leases[0], true, nil
}

// LeaseEvents returns the events about a donation's leases, newest first, limit at most.
func (s *Store) LeaseEvents(ctx context.Context, id donation.ID, limit int) ([]donation.Event, error) {
	return s.events(ctx, `WHERE donation = ? AND kind LIKE 'lease.%' ORDER BY seq DESC LIMIT ?`, id, limit)
}
