// This file keeps the spawns: how one begins, starts, gets ready, is meant to stop, and ends.

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Spawns implements donation.Store; a limit of 0 or less is none.
func (s *Store) Spawns(ctx context.Context, id donation.ID, limit int) ([]donation.Spawn, error) {
	if limit <= 0 {
		limit = -1
	}
	rows, err := s.query(ctx, `SELECT`+spawnColumns+` FROM spawns s WHERE s.donation = ? ORDER BY s.generation DESC LIMIT ?`, id, limit)
	if err != nil {
		return nil, translate(s.path, "list the spawns of a donation", err)
	}
	type row struct {
		Spawn spawnRow `db:"spawn"`
	}
	spawns, err := collect(rows, func(r *row) (donation.Spawn, error) { return r.Spawn.spawn() })
	if len(spawns) == 0 && err == nil { // only a donation that isn't there has none
		_, err = s.Get(ctx, id)
	}
	return spawns, translate(s.path, "list the spawns of a donation", err)
}

// BeginRespawn implements donation.Store. An Exit that is on record already is not news and is left out.
func (s *Store) BeginRespawn(ctx context.Context, r donation.Respawn) (donation.Record, error) {
	return s.change(ctx, "begin a respawn", r.ID, func(w *writeTx) error {
		var last donation.SpawnID
		var state donation.SpawnState
		found, err := w.get(`
			SELECT s.id, s.state FROM donations d JOIN spawns s ON s.donation = d.id AND s.generation = d.generation
			WHERE d.id = ? AND d.generation = ? AND d.status IN ('awaiting_seed', 'seeded')`, []any{r.ID, r.Generation}, &last, &state)
		switch {
		case err != nil:
			return err
		case !found:
			return w.conflict(r.ID)
		case !state.Ended() && r.Exit == nil:
			return fmt.Errorf("spawn %s of donation %s is still %s: %w", last, r.ID, state, donation.ErrConflict)
		case !state.Ended():
			if _, err := w.endSpawn(last, endStateOf(*r.Exit), *r.Exit); err != nil {
				return err
			}
		}
		if r.Charge {
			if err := w.chargeable(last); err != nil {
				return err
			}
		}
		var attempts int
		moved, err := w.returning(`
			UPDATE donations SET generation = generation + 1, attempts = attempts + ?, last_attempt = iif(?, ?, last_attempt), retry_now = 0, has_workdir = 1
			WHERE id = ? AND generation = ? AND status IN ('awaiting_seed', 'seeded') RETURNING attempts`,
			[]any{r.Charge, r.Charge, micros(w.now), r.ID, r.Generation}, &attempts)
		switch {
		case err != nil:
			return err
		case !moved:
			return w.conflict(r.ID)
		}
		if r.Charge {
			if err := w.event(r.ID, r.Spawn.ID, "donation.attempt", fmt.Sprintf("attempt %d", attempts)); err != nil {
				return err
			}
		}
		return w.insertSpawn(r.ID, r.Generation+1, r.Spawn)
	})
}

// chargeable is a conflict if the spawn's end, as it stands on record now, is none to be charged: a stop that was
// intended after the caller had read the record.
func (w *writeTx) chargeable(spawn donation.SpawnID) error {
	var reason donation.Reason
	if _, err := w.get(`SELECT exit_reason FROM spawns WHERE id = ?`, []any{spawn}, &reason); err != nil {
		return err
	}
	if !reason.Charged() {
		return fmt.Errorf("spawn %s ended by %s, which isn't charged: %w", spawn, reason, donation.ErrConflict)
	}
	return nil
}

// endStateOf is the state that fits an exit which comes without one.
func endStateOf(e donation.Exit) donation.SpawnState {
	switch e.Reason {
	case donation.ReasonStartFailed:
		return donation.SpawnFailed
	case donation.ReasonLost:
		return donation.SpawnLost
	default:
		return donation.SpawnExited
	}
}

func (w *writeTx) insertSpawn(id donation.ID, generation int64, n donation.NewSpawn) error {
	if _, err := w.exec(`INSERT INTO spawns (id, donation, generation, state, seed_token, startup_token, template_hash, guard, begun_at)
		VALUES (?, ?, ?, 'starting', ?, ?, ?, ?, ?)`,
		n.ID, id, generation, n.SeedToken.Reveal(), n.StartupToken.Reveal(), n.TemplateHash, n.Guard, micros(w.now)); err != nil {
		return err
	}
	return w.event(id, n.ID, "spawn.starting", fmt.Sprintf("generation %d", generation))
}

// SpawnStarted implements donation.Store.
func (s *Store) SpawnStarted(ctx context.Context, spawn donation.SpawnID, ident donation.Identity, startedAt time.Time, to donation.Status) error {
	var ended error
	err := s.writer.do(ctx, "record a started spawn", func(w *writeTx) error {
		var id donation.ID
		moved, err := w.returning(`
			UPDATE spawns SET state = 'running', boot_id = ?, pid = ?, start_time = ?, started_at = ?
			WHERE id = ? AND state = 'starting' RETURNING donation`,
			[]any{ident.BootID, ident.PID, int64(ident.StartTime), micros(startedAt), spawn}, &id)
		switch {
		case err != nil:
			return err
		case !moved:
			return w.spawnConflict(spawn)
		}
		if err := w.event(id, spawn, "spawn.running", fmt.Sprintf("process %d", ident.PID)); err != nil {
			return err
		}
		ended, err = w.joinDonation(id, spawn, to)
		return err
	})
	if err != nil {
		return err
	}
	return ended // the process exists, so what was written stays, and the caller is told all the same
}

// joinDonation moves the donation of a spawn that has just started from provisioning to to. If the donation
// has ended instead, the spawn is marked as abandoned and the conflict is returned as ended.
func (w *writeTx) joinDonation(id donation.ID, spawn donation.SpawnID, to donation.Status) (ended, err error) {
	if to != "" {
		n, err := w.exec(`UPDATE donations SET status = ?, message = '', updated_at = ? WHERE id = ? AND status = 'provisioning'`, to, micros(w.now), id)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			return nil, w.event(id, spawn, eventOf(to), "")
		}
	}
	var status donation.Status
	if _, err := w.get(`SELECT status FROM donations WHERE id = ?`, []any{id}, &status); err != nil {
		return nil, err
	}
	if !status.IsEnding() {
		return nil, nil
	}
	if _, err := w.exec(`UPDATE spawns SET stop_reason = ? WHERE id = ?`, donation.ReasonAbandoned, spawn); err != nil {
		return nil, err
	}
	ended = fmt.Errorf("donation %s is %s since spawn %s began: %w", id, status, spawn, donation.ErrConflict)
	return ended, w.event(id, spawn, "spawn.stop-intended", string(donation.ReasonAbandoned))
}

// SpawnReady implements donation.Store.
func (s *Store) SpawnReady(ctx context.Context, spawn donation.SpawnID, at time.Time) error {
	return s.writer.do(ctx, "record a ready spawn", func(w *writeTx) error {
		var id donation.ID
		stamped, err := w.returning(`
			UPDATE spawns SET ready_at = ? WHERE id = ? AND state = 'running' AND ready_at IS NULL RETURNING donation`, []any{micros(at), spawn}, &id)
		if err != nil {
			return err
		}
		if stamped {
			return w.event(id, spawn, "spawn.ready", "")
		}
		var running bool
		found, err := w.get(`SELECT state = 'running' FROM spawns WHERE id = ?`, []any{spawn}, &running)
		if err != nil || (found && running) {
			return err // ready already: the first time stands
		}
		return w.spawnConflict(spawn)
	})
}

// SpawnEnded implements donation.Store. An exit without a time ended now, one without a reason is a crash.
func (s *Store) SpawnEnded(ctx context.Context, spawn donation.SpawnID, state donation.SpawnState, exit donation.Exit) error {
	if !state.Ended() {
		return donation.Errorf(donation.CodeInternal, "spawn %s can't end as %q, which is no end", spawn, state)
	}
	return s.writer.do(ctx, "record the end of a spawn", func(w *writeTx) error {
		ended, err := w.endSpawn(spawn, state, exit)
		if err != nil || ended {
			return err
		}
		var id donation.ID
		found, err := w.get(`SELECT donation FROM spawns WHERE id = ?`, []any{spawn}, &id)
		if err != nil || found {
			return err
		}
		return spawnNotFound(spawn)
	})
}

// endSpawn ends a spawn that hasn't ended; ended is false if there is nothing to end.
func (w *writeTx) endSpawn(spawn donation.SpawnID, state donation.SpawnState, exit donation.Exit) (ended bool, err error) {
	if exit.At.IsZero() {
		exit.At = w.now
	}
	if exit.Reason == "" {
		exit.Reason = donation.ReasonCrash
	}
	var id donation.ID
	ended, err = w.returning(`
		UPDATE spawns SET state = ?, ended_at = ?, exit_reason = iif(? IN ('crash', 'guard-lost') AND stop_reason <> '', stop_reason, ?),
			exit_known = ?, exit_code = ?, exit_signal = ?, exit_oom = ?, exit_message = ?, cpu_ns = ?, max_rss = ?
		WHERE id = ? AND state IN ('starting', 'running') RETURNING donation, exit_reason`,
		[]any{
			state, micros(exit.At), exit.Reason, exit.Reason, exit.Known, exit.Code, exit.Signal, exit.OOM, exit.Message,
			int64(exit.CPU), exit.MaxRSS, spawn,
		}, &id, &exit.Reason)
	if err != nil || !ended {
		return false, err
	}
	return true, w.event(id, spawn, "spawn."+string(state), exit.String())
}

// intend records an intention where none stands, or one that ranks below: an ending is more than a restart or
// a drain.
const intend = `
	UPDATE spawns SET stop_reason = ?1
	WHERE state IN ('starting', 'running')
		AND (stop_reason = '' OR (stop_reason IN ('restart', 'drain') AND ?1 IN ('terminate', 'give-up')))`

// IntendStop implements donation.Store.
func (s *Store) IntendStop(ctx context.Context, spawn donation.SpawnID, reason donation.Reason) error {
	return s.writer.do(ctx, "record an intended stop", func(w *writeTx) error {
		var id donation.ID
		set, err := w.returning(intend+` AND id = ?2 RETURNING donation`, []any{reason, spawn}, &id)
		if err != nil {
			return err
		}
		if set {
			return w.event(id, spawn, "spawn.stop-intended", string(reason))
		}
		var live bool
		found, err := w.get(`SELECT state IN ('starting', 'running') FROM spawns WHERE id = ?`, []any{spawn}, &live)
		if err != nil || (found && live) {
			return err // an earlier intention stands
		}
		return w.spawnConflict(spawn)
	})
}

// intendStopOfLive marks the donation's live spawn, if it has one, under the rule of IntendStop.
func (w *writeTx) intendStopOfLive(id donation.ID, reason donation.Reason) error {
	var spawn donation.SpawnID
	set, err := w.returning(intend+` AND donation = ?2 RETURNING id`, []any{reason, id}, &spawn)
	if err != nil || !set {
		return err
	}
	return w.event(id, spawn, "spawn.stop-intended", string(reason))
}

// spawnConflict tells a spawn that has moved on from one that isn't there.
func (w *writeTx) spawnConflict(spawn donation.SpawnID) error {
	var state donation.SpawnState
	found, err := w.get(`SELECT state FROM spawns WHERE id = ?`, []any{spawn}, &state)
	switch {
	case err != nil:
		return err
	case !found:
		return spawnNotFound(spawn)
	}
	return fmt.Errorf("spawn %s is %s: %w", spawn, state, donation.ErrConflict)
}
