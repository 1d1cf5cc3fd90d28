// This file creates, reads and finds donations. What changes one afterwards is in changes.go and spawns.go.

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Create implements donation.Store.
func (s *Store) Create(ctx context.Context, d donation.NewDonation) (donation.Record, error) {
	inputs, err := json.Marshal(d.Request)
	if err != nil {
		return donation.Record{}, fmt.Errorf("create donation %s: encode its request: %w", d.ID, err)
	}
	var rec donation.Record
	err = s.writer.do(ctx, "create a donation", func(w *writeTx) (err error) {
		if err := w.nameIsFree(d.Request.Name); err != nil {
			return err
		}
		uid, err := w.allocateUID(d.UIDs)
		if err != nil {
			return err
		}
		now := micros(w.now)
		if _, err := w.exec(`INSERT INTO donations (id, name, inputs, status, generation, uid, created_at, updated_at)
			VALUES (?, ?, ?, ?, 1, ?, ?, ?)`, d.ID, d.Request.Name, string(inputs), donation.Provisioning, uid, now, now); err != nil {
			return err
		}
		if err := w.allocatePorts(s.ports, d); err != nil {
			return err
		}
		if err := w.event(d.ID, "", eventOf(donation.Provisioning), "template "+d.Request.Template); err != nil {
			return err
		}
		if err := w.insertSpawn(d.ID, 1, d.Spawn); err != nil {
			return err
		}
		rec, err = readRecord(w.ctx, w.stmts, d.ID)
		return err
	})
	if err != nil {
		return donation.Record{}, err
	}
	return rec, nil
}

func (w *writeTx) nameIsFree(name string) error {
	if name == "" {
		return nil
	}
	var holder string
	taken, err := w.get(`SELECT id FROM donations WHERE name = ? AND name <> '' AND status <> 'terminated'`, []any{name}, &holder)
	if err != nil {
		return err
	}
	if taken {
		return donation.Errorf(donation.CodeNameTaken, "the name %q belongs to donation %s; choose another name, or terminate that one first", name, holder)
	}
	return nil
}

// Get implements donation.Store.
func (s *Store) Get(ctx context.Context, id donation.ID) (donation.Record, error) {
	rec, err := readRecord(ctx, s.stmts, id)
	if err != nil {
		return donation.Record{}, translate(s.path, "read a donation", err)
	}
	return rec, nil
}

// unsettled selects, beside the statuses, whatever still has something to be done for.
const unsettled = ` WHERE d.seq IN (
	SELECT seq FROM donations WHERE status IN (?)
	UNION SELECT x.seq FROM spawns JOIN donations x ON x.id = spawns.donation WHERE spawns.state IN ('starting', 'running')
	UNION SELECT seq FROM donations WHERE has_workdir = 1 AND gave_up = 0 AND status IN ('error', 'terminated'))`

// List implements donation.Store.
func (s *Store) List(ctx context.Context, f donation.Filter) ([]donation.Record, error) {
	query, args := selectRecords, []any(nil)
	if len(f.Statuses) > 0 {
		where := ` WHERE d.status IN (?)`
		if f.Unsettled {
			where = unsettled
		}
		var err error
		if query, args, err = sqlx.In(query+where, f.Statuses); err != nil {
			return nil, fmt.Errorf("list donations: %w", err)
		}
	}
	rows, err := s.query(ctx, query+` ORDER BY d.seq`, args...)
	if err != nil {
		return nil, translate(s.path, "list donations", err)
	}
	records, err := collect(rows, (*recordRow).record)
	return records, translate(s.path, "list donations", err)
}

// Counts returns how many donations there are in each status; a status without any is left out.
func (s *Store) Counts(ctx context.Context) (map[donation.Status]int, error) {
	rows, err := s.query(ctx, `SELECT status, count(*) AS n FROM donations GROUP BY status`)
	if err != nil {
		return nil, translate(s.path, "count donations", err)
	}
	type count struct {
		Status donation.Status `db:"status"`
		N      int             `db:"n"`
	}
	counts, err := collect(rows, func(c *count) (count, error) { return *c, nil })
	if err != nil {
		return nil, translate(s.path, "count donations", err)
	}
	byStatus := make(map[donation.Status]int, len(counts))
	for _, c := range counts {
		byStatus[c.Status] = c.N
	}
	return byStatus, nil
}

func (s *Store) query(ctx context.Context, query string, args ...any) (*sqlx.Rows, error) {
	stmt, err := s.stmts.get(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryxContext(ctx, args...)
}

// maxCandidates is how many donations an ambiguous reference names before it says "and others".
const maxCandidates = 4

// hit is a donation that a reference may mean; the lowest rank wins.
type hit struct {
	ID   string `db:"id"`
	Rank int    `db:"rank"`
}

// Resolve implements donation.Store. A full id goes first, then a name, then prefixes, then the name of one that
// has ended: who ends a donation by its name wants to look at it, or end it harder, by the same.
func (s *Store) Resolve(ctx context.Context, ref string) (donation.ID, error) {
	if ref == "" {
		return "", donation.Errorf(donation.CodeNotFound, "no donation is named; give an id, a name or the beginning of an id")
	}
	prefix := strings.ToLower(ref)
	if !strings.HasPrefix(prefix, "don_") {
		prefix = "don_" + prefix
	}
	// ~ sorts after everything that an id is made of.
	rows, err := s.query(ctx, `
		SELECT id, 0 AS rank FROM donations WHERE id = ?
		UNION ALL SELECT id, 1 FROM donations WHERE name = ? AND name <> '' AND status <> 'terminated'
		UNION ALL SELECT * FROM (SELECT id, 2 FROM donations WHERE id >= ? AND id < ? || '~' LIMIT ?)
		ORDER BY rank, id`, prefix, ref, prefix, prefix, maxCandidates+1)
	if err != nil {
		return "", translate(s.path, "find a donation", err)
	}
	hits, err := collect(rows, func(h *hit) (hit, error) { return *h, nil })
	if err != nil {
		return "", translate(s.path, "find a donation", err)
	}
	switch {
	case len(hits) == 0:
		return s.resolveEnded(ctx, ref)
	case hits[0].Rank < 2 || len(hits) == 1:
		return donation.ID(hits[0].ID), nil
	}
	var names []string
	for _, h := range hits[:min(len(hits), maxCandidates)] {
		names = append(names, h.ID)
	}
	if len(hits) > maxCandidates {
		names = append(names, "and others")
	}
	return "", donation.Errorf(donation.CodeAmbiguous, "%q is the beginning of several donations' ids: %s; give more of it", ref, strings.Join(names, ", "))
}

// resolveEnded finds the last donation of a name that nothing else is meant by. It has no index: only a reference
// that is about to be refused comes here.
func (s *Store) resolveEnded(ctx context.Context, name string) (donation.ID, error) {
	rows, err := s.query(ctx, `SELECT id, 3 AS rank FROM donations WHERE name = ? AND status = 'terminated' ORDER BY seq DESC LIMIT 1`, name)
	if err != nil {
		return "", translate(s.path, "find a donation", err)
	}
	hits, err := collect(rows, func(h *hit) (hit, error) { return *h, nil })
	if err != nil {
		return "", translate(s.path, "find a donation", err)
	}
	if len(hits) == 0 {
		return "", donation.Errorf(donation.CodeNotFound, "there is no donation %q (no id, name or beginning of an id); `cadre-hostd status` lists them", name)
	}
	return donation.ID(hits[0].ID), nil
}
