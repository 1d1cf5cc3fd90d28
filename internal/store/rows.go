// This file turns rows into records. It is forgiving where a damaged value has a safe meaning (a time, the
// inputs) and returns an error, for that row alone, where it hasn't.

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// spawnColumns are those of spawnRow, of a spawns table called s.
const spawnColumns = `
	s.id AS "spawn.id", s.donation AS "spawn.donation", s.generation AS "spawn.generation", s.state AS "spawn.state",
	s.seed_token AS "spawn.seed_token", s.startup_token AS "spawn.startup_token", s.template_hash AS "spawn.template_hash",
	s.guard AS "spawn.guard", s.boot_id AS "spawn.boot_id", s.pid AS "spawn.pid", s.start_time AS "spawn.start_time",
	s.begun_at AS "spawn.begun_at", s.started_at AS "spawn.started_at", s.ready_at AS "spawn.ready_at", s.ended_at AS "spawn.ended_at",
	s.stop_reason AS "spawn.stop_reason", s.exit_reason AS "spawn.exit_reason", s.exit_known AS "spawn.exit_known",
	s.exit_code AS "spawn.exit_code", s.exit_signal AS "spawn.exit_signal", s.exit_oom AS "spawn.exit_oom",
	s.exit_message AS "spawn.exit_message", s.cpu_ns AS "spawn.cpu_ns", s.max_rss AS "spawn.max_rss"`

// selectRecords reads donations with their latest spawn and their ports in one statement, which sees one
// state of the database. A donation whose spawn is missing is still found.
const selectRecords = `
SELECT d.id, d.name, d.inputs, d.status, d.message, d.gave_up, d.status_before, d.attempts, d.last_attempt, d.retry_now,
	d.generation, d.uid, d.has_workdir, d.created_at, d.updated_at,
	(SELECT json_group_object(p.name, p.port) FROM ports p WHERE p.donation = d.id) AS ports,` + spawnColumns + `
FROM donations d LEFT JOIN spawns s ON s.donation = d.id AND s.generation = d.generation`

// recordRow is a row of selectRecords.
type recordRow struct {
	ID           string        `db:"id"`
	Name         string        `db:"name"`
	Inputs       []byte        `db:"inputs"`
	Status       string        `db:"status"`
	Message      string        `db:"message"`
	GaveUp       bool          `db:"gave_up"`
	StatusBefore string        `db:"status_before"`
	Attempts     int           `db:"attempts"`
	LastAttempt  sql.NullInt64 `db:"last_attempt"`
	RetryNow     bool          `db:"retry_now"`
	Generation   int64         `db:"generation"`
	UID          int64         `db:"uid"`
	HasWorkdir   bool          `db:"has_workdir"`
	CreatedAt    sql.NullInt64 `db:"created_at"`
	UpdatedAt    sql.NullInt64 `db:"updated_at"`
	Ports        []byte        `db:"ports"`
	Spawn        spawnRow      `db:"spawn"`
}

// spawnRow is a spawn; all of it is NULL where a donation has none.
type spawnRow struct {
	ID           sql.NullString `db:"id"`
	Donation     sql.NullString `db:"donation"`
	Generation   sql.NullInt64  `db:"generation"`
	State        sql.NullString `db:"state"`
	SeedToken    sql.NullString `db:"seed_token"`
	StartupToken sql.NullString `db:"startup_token"`
	TemplateHash sql.NullString `db:"template_hash"`
	Guard        sql.NullString `db:"guard"`
	BootID       sql.NullString `db:"boot_id"`
	PID          sql.NullInt64  `db:"pid"`
	StartTime    sql.NullInt64  `db:"start_time"`
	BegunAt      sql.NullInt64  `db:"begun_at"`
	StartedAt    sql.NullInt64  `db:"started_at"`
	ReadyAt      sql.NullInt64  `db:"ready_at"`
	EndedAt      sql.NullInt64  `db:"ended_at"`
	StopReason   sql.NullString `db:"stop_reason"`
	ExitReason   sql.NullString `db:"exit_reason"`
	ExitKnown    sql.NullBool   `db:"exit_known"`
	ExitCode     sql.NullInt64  `db:"exit_code"`
	ExitSignal   sql.NullInt64  `db:"exit_signal"`
	ExitOOM      sql.NullBool   `db:"exit_oom"`
	ExitMessage  sql.NullString `db:"exit_message"`
	CPU          sql.NullInt64  `db:"cpu_ns"`
	MaxRSS       sql.NullInt64  `db:"max_rss"`
}

func (r *recordRow) record() (donation.Record, error) {
	d := donation.Donation{
		ID: donation.ID(r.ID), Status: donation.Status(r.Status), Message: r.Message,
		GaveUp: r.GaveUp, Before: donation.Status(r.StatusBefore),
		Attempts: r.Attempts, LastAttempt: fromMicros(r.LastAttempt), RetryNow: r.RetryNow,
		Generation: r.Generation, UID: uint32(r.UID), HasWorkdir: r.HasWorkdir,
		CreatedAt: fromMicros(r.CreatedAt), UpdatedAt: fromMicros(r.UpdatedAt),
	}
	if !slices.Contains(donation.Statuses(), d.Status) {
		return donation.Record{}, fmt.Errorf("donation %s has the unknown status %q", r.ID, r.Status)
	}
	if r.UID < 0 || r.UID > math.MaxUint32 {
		return donation.Record{}, fmt.Errorf("donation %s has the impossible uid %d", r.ID, r.UID)
	}
	if err := json.Unmarshal(r.Ports, &d.Ports); err != nil {
		return donation.Record{}, fmt.Errorf("donation %s has unreadable ports: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Inputs, &d.Request); err != nil || d.Request.Template == "" {
		d.Request, d.InputsMissing = donation.Request{}, true
	}
	d.Request.Name = r.Name
	rec := donation.Record{Donation: d}
	if r.Spawn.ID.Valid {
		sp, err := r.Spawn.spawn()
		if err != nil {
			return donation.Record{}, fmt.Errorf("donation %s: %w", r.ID, err)
		}
		rec.Spawn = &sp
	}
	return rec, nil
}

// spawnStates are the states that a row may have.
var spawnStates = []donation.SpawnState{
	donation.SpawnStarting, donation.SpawnRunning, donation.SpawnExited, donation.SpawnFailed, donation.SpawnLost,
}

func (r *spawnRow) spawn() (donation.Spawn, error) {
	sp := donation.Spawn{
		ID: donation.SpawnID(r.ID.String), Donation: donation.ID(r.Donation.String), Generation: r.Generation.Int64,
		State:     donation.SpawnState(r.State.String),
		SeedToken: donation.NewSecret(r.SeedToken.String), StartupToken: donation.NewSecret(r.StartupToken.String),
		TemplateHash: r.TemplateHash.String, Guard: r.Guard.String,
		Identity: donation.Identity{BootID: r.BootID.String, PID: int(r.PID.Int64), StartTime: uint64(r.StartTime.Int64)},
		Begun:    fromMicros(r.BegunAt), StartedAt: fromMicros(r.StartedAt), ReadyAt: fromMicros(r.ReadyAt),
		StopReason: donation.Reason(r.StopReason.String),
	}
	if !slices.Contains(spawnStates, sp.State) {
		return donation.Spawn{}, fmt.Errorf("spawn %s has the unknown state %q", sp.ID, sp.State)
	}
	if sp.State.Ended() {
		sp.Exit = &donation.Exit{
			Reason: donation.Reason(r.ExitReason.String), Known: r.ExitKnown.Bool, Code: int(r.ExitCode.Int64),
			Signal: int(r.ExitSignal.Int64), OOM: r.ExitOOM.Bool, CPU: time.Duration(r.CPU.Int64), MaxRSS: r.MaxRSS.Int64,
			At: fromMicros(r.EndedAt), Message: r.ExitMessage.String,
		}
	}
	return sp, nil
}

// readRecord returns one record, CodeNotFound if there is none.
func readRecord(ctx context.Context, stmts *statements, id donation.ID) (donation.Record, error) {
	stmt, err := stmts.get(ctx, selectRecords+` WHERE d.id = ?`)
	if err != nil {
		return donation.Record{}, err
	}
	var row recordRow
	if err := stmt.QueryRowxContext(ctx, id).StructScan(&row); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return donation.Record{}, notFound(id)
		}
		return donation.Record{}, fmt.Errorf("read donation %s: %w", id, err)
	}
	return row.record()
}

// collect reads all rows. One that can't be read is left out and reported in the error, beside the others.
func collect[Row, T any](rows *sqlx.Rows, convert func(*Row) (T, error)) ([]T, error) {
	defer rows.Close()
	var out []T
	var bad []error
	for rows.Next() {
		var row Row
		err := rows.StructScan(&row)
		if err != nil {
			bad = append(bad, fmt.Errorf("a row can't be read: %w", err))
			continue
		}
		v, err := convert(&row)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		out = append(out, v)
	}
	return out, errors.Join(append(bad, rows.Err())...)
}

// micros is a time as it is stored; the zero time is NULL.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// lastMicros is the end of the year 9999; nothing later is a time that anybody meant.
const lastMicros = 253402300799_999999

// fromMicros reads a time; what can't be one (S17) is the zero time.
func fromMicros(n sql.NullInt64) time.Time {
	if !n.Valid || n.Int64 <= 0 || n.Int64 > lastMicros {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}
