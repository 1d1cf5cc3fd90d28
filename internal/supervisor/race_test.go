//go:build race

// This file tells the tests that the race detector makes SQLite, which is translated C, fifteen times slower.

package supervisor

// histories is how many random ones are lived through unless -rapid.checks says it, longest their steps at most.
const (
	histories = "50"
	longest   = 12
)
