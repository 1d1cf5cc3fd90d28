// Package migrations embeds the numbered SQL files that build the database. A file that has been released
// is never changed: what comes later is a file with the next number. There is no way down; a database
// from a newer release is refused instead (package store).
package migrations

import "embed"

// FS holds the migrations, for goose.
//
//go:embed *.sql
var FS embed.FS
