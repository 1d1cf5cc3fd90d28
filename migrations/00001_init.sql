-- The first schema. Every time is an INTEGER of microseconds since the epoch in UTC; NULL is "not yet" or
-- "never". The lists in the CHECKs are the statuses and states of internal/donation/status.go.

-- +goose Up

-- One row a loan. seq is the order of creation, whatever the clock says.
CREATE TABLE donations (
    seq           INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    -- name is in inputs too; here it can be unique, and survives inputs that can't be read.
    name          TEXT    NOT NULL DEFAULT '',
    -- inputs is the request as JSON: all that a spawn is given besides its own row. Deliberately without
    -- a json_valid check: a damaged one must be reported as such, not make the row unwritable.
    inputs        TEXT    NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('provisioning', 'awaiting_seed', 'seeded', 'error', 'terminated')),
    message       TEXT    NOT NULL DEFAULT '',
    gave_up       INTEGER NOT NULL DEFAULT 0 CHECK (gave_up IN (0, 1)),
    -- status_before is what a give-up replaced and retry goes back to.
    status_before TEXT    NOT NULL DEFAULT '' CHECK (status_before IN ('', 'awaiting_seed', 'seeded')),
    attempts      INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    last_attempt  INTEGER,
    retry_now     INTEGER NOT NULL DEFAULT 0 CHECK (retry_now IN (0, 1)),
    -- generation counts spawns; the latest spawn is the one that has it.
    generation    INTEGER NOT NULL CHECK (generation >= 1),
    uid           INTEGER NOT NULL DEFAULT 0 CHECK (uid BETWEEN 0 AND 4294967295),
    has_workdir   INTEGER NOT NULL DEFAULT 1 CHECK (has_workdir IN (0, 1)),
    created_at    INTEGER NOT NULL,
    -- updated_at moves with the status only: it is the clock of the reap of unseeded donations.
    updated_at    INTEGER NOT NULL,
    CHECK (gave_up = (status_before <> '')),
    CHECK (gave_up = 0 OR status = 'error')
) STRICT;

CREATE INDEX donations_by_status ON donations (status);
CREATE UNIQUE INDEX donations_by_live_name ON donations (name) WHERE name <> '' AND status <> 'terminated';
-- The users that can't be handed out again, and the ended donations that something is left of.
CREATE INDEX donations_by_held_uid ON donations (uid) WHERE uid <> 0 AND (has_workdir = 1 OR status <> 'terminated');
CREATE INDEX donations_to_reclaim ON donations (seq) WHERE has_workdir = 1 AND gave_up = 0 AND status IN ('error', 'terminated');

-- One row a spawn: all that the child is given, and what became of it.
CREATE TABLE spawns (
    id            TEXT    NOT NULL PRIMARY KEY,
    donation      TEXT    NOT NULL REFERENCES donations (id),
    generation    INTEGER NOT NULL CHECK (generation >= 1),
    state         TEXT    NOT NULL CHECK (state IN ('starting', 'running', 'exited', 'failed', 'lost')),
    seed_token    TEXT    NOT NULL,
    startup_token TEXT    NOT NULL,
    template_hash TEXT    NOT NULL,
    -- guard is the instance that the start was meant for.
    guard         TEXT    NOT NULL,
    -- The identity of the process: a pid alone never is one.
    boot_id       TEXT    NOT NULL DEFAULT '',
    pid           INTEGER NOT NULL DEFAULT 0,
    start_time    INTEGER NOT NULL DEFAULT 0,
    begun_at      INTEGER NOT NULL,
    started_at    INTEGER,
    ready_at      INTEGER,
    ended_at      INTEGER,
    -- stop_reason is the intended stop, recorded before the child is signalled.
    stop_reason   TEXT    NOT NULL DEFAULT '',
    exit_reason   TEXT    NOT NULL DEFAULT '',
    exit_known    INTEGER NOT NULL DEFAULT 0 CHECK (exit_known IN (0, 1)),
    exit_code     INTEGER NOT NULL DEFAULT 0,
    exit_signal   INTEGER NOT NULL DEFAULT 0,
    exit_oom      INTEGER NOT NULL DEFAULT 0 CHECK (exit_oom IN (0, 1)),
    exit_message  TEXT    NOT NULL DEFAULT '',
    cpu_ns        INTEGER NOT NULL DEFAULT 0,
    max_rss       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (donation, generation),
    CHECK ((state IN ('starting', 'running')) = (ended_at IS NULL)),
    CHECK (state NOT IN ('starting', 'running') OR exit_reason = '')
) STRICT;

-- At most one spawn of a donation is on record as not ended: two live copies can't even be written down.
CREATE UNIQUE INDEX spawns_live ON spawns (donation) WHERE state IN ('starting', 'running');

-- The sticky ports. A port belongs to one donation at a time.
CREATE TABLE ports (
    port     INTEGER PRIMARY KEY CHECK (port BETWEEN 1 AND 65535),
    donation TEXT    NOT NULL REFERENCES donations (id),
    name     TEXT    NOT NULL,
    UNIQUE (donation, name)
) STRICT;

-- The append-only log: every change of state with its reason. It refers to donations and spawns by id
-- without a foreign key, because it may outlive them. AUTOINCREMENT: a number is never used twice.
CREATE TABLE events (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    donation TEXT    NOT NULL DEFAULT '',
    spawn    TEXT    NOT NULL DEFAULT '',
    kind     TEXT    NOT NULL,
    detail   TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX events_by_donation ON events (donation, seq);

-- +goose StatementBegin
CREATE TRIGGER events_are_append_only BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'events are append-only');
END;
-- +goose StatementEnd

-- Numbers that outlive the rows they were given to.
CREATE TABLE counters (
    name  TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;

-- last_uid is the user that was handed out last.
INSERT INTO counters (name, value) VALUES ('last_uid', 0);
