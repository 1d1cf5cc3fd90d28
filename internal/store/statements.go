// This file keeps prepared statements by their text: parsing one costs more than running it.

package store

import (
	"context"
	"sync"

	"github.com/jmoiron/sqlx"
)

// preparer is a pool or one connection of it.
type preparer interface {
	PreparexContext(ctx context.Context, query string) (*sqlx.Stmt, error)
}

// statements prepares each query at its first use. The texts are few: constants, and lists of statuses
// that differ in length only.
type statements struct {
	on preparer

	mu     sync.Mutex // guards byText
	byText map[string]*sqlx.Stmt
}

func newStatements(on preparer) *statements {
	return &statements{on: on, byText: map[string]*sqlx.Stmt{}}
}

// get returns the prepared query; many goroutines may use it at once if it was prepared on a pool.
func (s *statements) get(ctx context.Context, query string) (*sqlx.Stmt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stmt, ok := s.byText[query]; ok {
		return stmt, nil
	}
	stmt, err := s.on.PreparexContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.byText[query] = stmt
	return stmt, nil
}

func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first error
	for _, stmt := range s.byText {
		if err := stmt.Close(); err != nil && first == nil {
			first = err
		}
	}
	clear(s.byText)
	return first
}
