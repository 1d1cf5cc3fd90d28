-- Leases: what the daemon last knew of each. The enforcer counts; this is for people, and for the next daemon.

-- +goose Up

CREATE TABLE leases (
    donation   TEXT    NOT NULL PRIMARY KEY REFERENCES donations (id),
    -- spawn is whose lease it is; the donation's next spawn has one of its own.
    spawn      TEXT    NOT NULL,
    ttl_ns     INTEGER NOT NULL CHECK (ttl_ns > 0),
    -- expires_at is the last expiry that the enforcer confirmed.
    expires_at INTEGER NOT NULL,
    renewed_at INTEGER,
    -- failures counts those in a row since renewed_at; last_error is the latest one's.
    failures   INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    last_error TEXT    NOT NULL DEFAULT ''
) STRICT;
