// This file changes what a donation is: it ends, is retried, its budget is refilled, its workdir goes. Each is
// one statement whose WHERE names the state it starts from; if that changes nothing, the caller has lost.

package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Fail implements donation.Store; a generation of 0 or less means any. What was never supervised can't be
// given up, for there is no status that a retry could go back to.
func (s *Store) Fail(ctx context.Context, id donation.ID, from []donation.Status, generation int64, message string, gaveUp bool) error {
	legal, reason := donation.From(donation.Failed), donation.ReasonAbandoned
	if gaveUp {
		legal, reason = donation.Supervised, donation.ReasonGiveUp
	}
	from = slices.DeleteFunc(slices.Clone(from), func(s donation.Status) bool { return !slices.Contains(legal, s) })
	if len(from) == 0 {
		return donation.Errorf(donation.CodeInvalidState, "donation %s can be failed (%s) from one of %v only", id, reason, legal)
	}
	return s.writer.do(ctx, "end a donation with an error", func(w *writeTx) error {
		query, args, err := sqlx.In(`
			UPDATE donations SET status = 'error', message = ?, gave_up = ?, status_before = iif(?, status, ''), retry_now = 0, updated_at = ?
			WHERE id = ? AND status IN (?) AND (? <= 0 OR generation = ?)`,
			message, gaveUp, gaveUp, micros(w.now), id, from, generation, generation)
		if err != nil {
			return err
		}
		if err := w.must(id, query, args...); err != nil {
			return err
		}
		if err := w.event(id, "", eventOf(donation.Failed), message); err != nil {
			return err
		}
		return w.intendStopOfLive(id, reason)
	})
}

// Terminate implements donation.Store.
func (s *Store) Terminate(ctx context.Context, id donation.ID) (donation.Record, error) {
	return s.change(ctx, "terminate a donation", id, func(w *writeTx) error {
		var name string
		moved, err := w.returning(`
			UPDATE donations SET status = 'terminated', message = '', gave_up = 0, status_before = '', retry_now = 0, updated_at = ?
			WHERE id = ? AND status <> 'terminated' RETURNING name`, []any{micros(w.now), id}, &name)
		if err != nil || !moved {
			return err // what isn't there is found out by reading the record
		}
		if err := w.event(id, "", eventOf(donation.Terminated), ""); err != nil {
			return err
		}
		return w.intendStopOfLive(id, donation.ReasonTerminate)
	})
}

// Expire implements donation.Store.
func (s *Store) Expire(ctx context.Context, id donation.ID, before time.Time, message string) error {
	return s.writer.do(ctx, "end an unseeded donation", func(w *writeTx) error {
		if err := w.must(id, `
			UPDATE donations SET status = 'terminated', message = ?, retry_now = 0, updated_at = ?
			WHERE id = ? AND status = 'awaiting_seed' AND updated_at <= ?`, message, micros(w.now), id, micros(before)); err != nil {
			return err
		}
		if err := w.event(id, "", eventOf(donation.Terminated), message); err != nil {
			return err
		}
		return w.intendStopOfLive(id, donation.ReasonTerminate)
	})
}

// Seeded implements donation.Store.
func (s *Store) Seeded(ctx context.Context, id donation.ID, generation int64, peers int) error {
	return s.writer.do(ctx, "record an accepted seed", func(w *writeTx) error {
		n, err := w.exec(`
			UPDATE donations SET status = 'seeded', message = '', updated_at = ?
			WHERE id = ? AND generation = ? AND status = 'awaiting_seed'`, micros(w.now), id, generation)
		if err != nil {
			return err
		}
		kind := eventOf(donation.Seeded)
		if n == 0 {
			var again bool
			if _, err := w.get(`SELECT status = 'seeded' AND generation = ? FROM donations WHERE id = ?`, []any{generation, id}, &again); err != nil {
				return err
			}
			if !again {
				return w.conflict(id)
			}
			kind = "donation.reseeded"
		}
		return w.event(id, "", kind, fmt.Sprintf("%d peers added", peers))
	})
}

// Refill implements donation.Store.
func (s *Store) Refill(ctx context.Context, id donation.ID, generation int64) error {
	return s.writer.do(ctx, "refill the attempts of a donation", func(w *writeTx) error {
		var attempts int
		found, err := w.get(`SELECT attempts FROM donations WHERE id = ? AND generation = ? AND status IN ('awaiting_seed', 'seeded')`,
			[]any{id, generation}, &attempts)
		switch {
		case err != nil:
			return err
		case !found:
			return w.conflict(id)
		case attempts == 0:
			return nil
		}
		if err := w.must(id, `
			UPDATE donations SET attempts = 0, last_attempt = NULL
			WHERE id = ? AND generation = ? AND status IN ('awaiting_seed', 'seeded')`, id, generation); err != nil {
			return err
		}
		return w.event(id, "", "donation.refilled", fmt.Sprintf("%d attempts forgotten", attempts))
	})
}

// Retry implements donation.Store.
func (s *Store) Retry(ctx context.Context, id donation.ID) (donation.Record, error) {
	return s.change(ctx, "retry a donation", id, func(w *writeTx) error {
		var back donation.Status
		revived, err := w.returning(`
			UPDATE donations SET status = status_before, status_before = '', gave_up = 0, message = '',
				attempts = 0, last_attempt = NULL, retry_now = 0, updated_at = ?
			WHERE id = ? AND status = 'error' AND gave_up = 1 RETURNING status`, []any{micros(w.now), id}, &back)
		if err != nil {
			return err
		}
		if revived {
			return w.event(id, "", "donation.retried", "back to "+string(back))
		}
		hurried, err := w.exec(`UPDATE donations SET retry_now = 1 WHERE id = ? AND status IN ('awaiting_seed', 'seeded') AND retry_now = 0`, id)
		if err != nil {
			return err
		}
		if hurried > 0 {
			return w.event(id, "", "donation.retried", "the next attempt comes without waiting")
		}
		var status donation.Status
		found, err := w.get(`SELECT status FROM donations WHERE id = ?`, []any{id}, &status)
		if err != nil || !found || status.IsSupervised() {
			return err
		}
		return donation.Errorf(donation.CodeInvalidState,
			"donation %s is %s, and only an error that came from a give-up can be retried; donate again instead", id, status)
	})
}

// Reclaimed implements donation.Store. What a give-up ended isn't reclaimed: retry needs workdir and ports.
func (s *Store) Reclaimed(ctx context.Context, id donation.ID) error {
	return s.writer.do(ctx, "note a reclaimed donation", func(w *writeTx) error {
		var had bool
		found, err := w.get(`SELECT has_workdir FROM donations
			WHERE id = ? AND (status = 'terminated' OR (status = 'error' AND gave_up = 0))`, []any{id}, &had)
		switch {
		case err != nil:
			return err
		case !found:
			return w.conflict(id)
		}
		freed, err := w.exec(`DELETE FROM ports WHERE donation = ?`, id)
		if err != nil || (freed == 0 && !had) {
			return err // the second time there is nothing to tell
		}
		if err := w.must(id, `UPDATE donations SET has_workdir = 0
			WHERE id = ? AND (status = 'terminated' OR (status = 'error' AND gave_up = 0))`, id); err != nil {
			return err
		}
		return w.event(id, "", "donation.reclaimed", fmt.Sprintf("%d ports freed", freed))
	})
}

// change runs fn and returns the record as it is afterwards, read in the same transaction.
func (s *Store) change(ctx context.Context, op string, id donation.ID, fn func(*writeTx) error) (donation.Record, error) {
	var rec donation.Record
	err := s.writer.do(ctx, op, func(w *writeTx) (err error) {
		if err := fn(w); err != nil {
			return err
		}
		rec, err = readRecord(w.ctx, w.stmts, id)
		return err
	})
	if err != nil {
		return donation.Record{}, err
	}
	return rec, nil
}

// must runs a compare-and-set of donation id; one that changes nothing is a conflict.
func (w *writeTx) must(id donation.ID, query string, args ...any) error {
	n, err := w.exec(query, args...)
	if err != nil {
		return err
	}
	if n == 0 {
		return w.conflict(id)
	}
	return nil
}

// conflict tells a record that has moved on from one that isn't there.
func (w *writeTx) conflict(id donation.ID) error {
	var status donation.Status
	var generation int64
	found, err := w.get(`SELECT status, generation FROM donations WHERE id = ?`, []any{id}, &status, &generation)
	switch {
	case err != nil:
		return err
	case !found:
		return notFound(id)
	}
	return fmt.Errorf("donation %s is %s at generation %d: %w", id, status, generation, donation.ErrConflict)
}
