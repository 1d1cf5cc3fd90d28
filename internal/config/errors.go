// This file holds the error that tells everything wrong with a configuration at once, each with its place.

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a configuration.
type Problem struct {
	// File is the path as it was given. Line and Column start at 1; 0 means the file as a whole.
	File         string
	Line, Column int
	// Message says what is wrong and what is allowed.
	Message string
}

// String returns "file:line:column: message".
func (p Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Error is every mistake that Load found, in the order of files and lines.
type Error struct{ Problems []Problem }

// Error returns one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// asError returns nil if there are no problems; it keeps the order of files and sorts within each.
func asError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	order := map[string]int{}
	for _, p := range problems {
		if _, ok := order[p.File]; !ok {
			order[p.File] = len(order)
		}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(order[a.File], order[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	return &Error{Problems: slices.Compact(problems)}
}
