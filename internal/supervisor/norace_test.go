//go:build !race

// This file has the numbers of race_test.go for tests without the race detector.

package supervisor

const (
	histories = "300"
	longest   = 30
)
