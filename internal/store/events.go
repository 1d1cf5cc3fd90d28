// This file keeps the append-only log of what happened and why. No token is ever in it.

package store

import (
	"context"
	"database/sql"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// eventOf is the kind of the event that tells of a donation's new status.
func eventOf(s donation.Status) string { return "donation." + string(s) }

// event appends to the log, in the transaction of what it tells of.
func (w *writeTx) event(id donation.ID, spawn donation.SpawnID, kind, detail string) error {
	return w.append(donation.Event{At: w.now, Donation: id, Spawn: spawn, Kind: kind, Detail: detail})
}

func (w *writeTx) append(e donation.Event) error {
	_, err := w.exec(`INSERT INTO events (at, donation, spawn, kind, detail) VALUES (?, ?, ?, ?, ?)`,
		micros(e.At), e.Donation, e.Spawn, e.Kind, e.Detail)
	return err
}

// Note implements donation.Store; an event without a time happened now.
func (s *Store) Note(ctx context.Context, e donation.Event) error {
	return s.writer.do(ctx, "note an event", func(w *writeTx) error {
		if e.At.IsZero() {
			e.At = w.now
		}
		return w.append(e)
	})
}

// Events implements donation.Store; a limit of 0 or less is none.
func (s *Store) Events(ctx context.Context, id donation.ID, after int64, limit int) ([]donation.Event, error) {
	if limit <= 0 {
		limit = -1
	}
	if id != "" {
		return s.events(ctx, `WHERE donation = ? AND seq > ? ORDER BY seq LIMIT ?`, id, after, limit)
	}
	return s.events(ctx, `WHERE seq > ? ORDER BY seq LIMIT ?`, after, limit)
}

// events reads those that the clause selects.
func (s *Store) events(ctx context.Context, clause string, args ...any) ([]donation.Event, error) {
	rows, err := s.query(ctx, `SELECT seq, at, donation, spawn, kind, detail FROM events `+clause, args...)
	if err != nil {
		return nil, translate(s.path, "read the events", err)
	}
	type row struct {
		Seq      int64            `db:"seq"`
		At       sql.NullInt64    `db:"at"`
		Donation donation.ID      `db:"donation"`
		Spawn    donation.SpawnID `db:"spawn"`
		Kind     string           `db:"kind"`
		Detail   string           `db:"detail"`
	}
	events, err := collect(rows, func(r *row) (donation.Event, error) {
		return donation.Event{Seq: r.Seq, At: fromMicros(r.At), Donation: r.Donation, Spawn: r.Spawn, Kind: r.Kind, Detail: r.Detail}, nil
	})
	return events, translate(s.path, "read the events", err)
}

// LastSeq implements donation.Store.
func (s *Store) LastSeq(ctx context.Context) (int64, error) {
	stmt, err := s.stmts.get(ctx, `SELECT coalesce(max(seq), 0) FROM events`)
	if err != nil {
		return 0, translate(s.path, "read the events", err)
	}
	var seq int64
	if err := stmt.GetContext(ctx, &seq); err != nil {
		return 0, translate(s.path, "read the events", err)
	}
	return seq, nil
}
