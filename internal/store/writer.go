// This file is the group committer: the one goroutine that writes. It takes all changes that wait, runs each
// in a savepoint of one transaction and commits once, so that concurrent callers share an fsync.

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// change is one caller's closure on its way through the committer.
type change struct {
	op string
	fn func(*writeTx) error
	// state goes from queued to begun (by the committer) or abandoned (by the caller), never both.
	state atomic.Int32
	// done is closed when err, crash and wrote are final.
	done  chan struct{}
	err   error
	wrote bool
	// crash is what the closure panicked with and where; it goes on in the caller's goroutine.
	crash string
}

const (
	queued int32 = iota
	begun
	abandoned
)

// committer owns the writer's connection from its start to its end.
type committer struct {
	path string
	// stmts are prepared on the one connection that writes.
	stmts *statements
	// committed is called after each commit that changed something, before its callers are answered.
	committed func()

	// wake has capacity 1: one token says "look at waiting", however many changes arrived.
	wake    chan struct{}
	stopped chan struct{}

	mu      sync.Mutex // guards what follows
	waiting []*change
	closed  bool
}

// startCommitter starts the goroutine; stop ends it.
func startCommitter(conn *sqlx.Conn, path string, committed func()) *committer {
	c := &committer{
		path: path, stmts: newStatements(conn), committed: committed,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	go c.run()
	return c
}

// do runs fn in a transaction and returns when it is durable. If ctx ends while fn still waits for its
// turn, fn isn't run and the error is ctx's; once begun it is carried through whatever ctx says.
func (c *committer) do(ctx context.Context, op string, fn func(*writeTx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ch := &change{op: op, fn: fn, done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return fmt.Errorf("%s: %w", op, ErrClosed)
	}
	c.waiting = append(c.waiting, ch)
	c.mu.Unlock()
	c.poke()
	select {
	case <-ch.done:
	case <-ctx.Done():
		if ch.state.CompareAndSwap(queued, abandoned) {
			return ctx.Err()
		}
		<-ch.done // bounded: the transaction waits for locks no longer than busyTimeout
	}
	if ch.crash != "" {
		panic(fmt.Sprintf("store: %s: %s", op, ch.crash))
	}
	return translate(c.path, op, ch.err)
}

// stop lets what is waiting be written, refuses what comes later, and waits for the goroutine.
func (c *committer) stop() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.poke()
	<-c.stopped
}

func (c *committer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) run() {
	defer close(c.stopped)
	for range c.wake {
		batch, closed := c.take()
		if len(batch) > 0 {
			c.commit(batch)
		}
		if closed { // nothing can have been added since take saw it
			return
		}
	}
}

// take returns the changes that wait now and are still wanted. Nothing is delayed to gather more: while
// one commit syncs, the next batch gathers by itself.
func (c *committer) take() (batch []*change, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.waiting {
		if ch.state.CompareAndSwap(queued, begun) {
			batch = append(batch, ch)
		}
	}
	c.waiting = nil
	return batch, c.closed
}

// commit runs the batch in one transaction and answers every caller. An error of the transaction itself
// is everybody's: whoever has been told yes has it on disk.
func (c *committer) commit(batch []*change) {
	err := c.transact(batch)
	wrote := false
	for _, ch := range batch {
		if err != nil {
			ch.err = err
		}
		wrote = wrote || (ch.err == nil && ch.wrote)
	}
	if wrote {
		c.committed()
	}
	for _, ch := range batch {
		close(ch.done)
	}
}

func (c *committer) transact(batch []*change) error {
	// No caller's context: it must not end the others' transaction. Locks are waited for at most busyTimeout.
	ctx := context.Background()
	if err := c.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	err := c.runAll(ctx, batch)
	if err == nil {
		err = c.exec(ctx, `COMMIT`)
	}
	if err != nil {
		_ = c.exec(ctx, `ROLLBACK`) // fails if SQLite has rolled back by itself; either way it is over
	}
	return err
}

func (c *committer) runAll(ctx context.Context, batch []*change) error {
	for _, ch := range batch {
		if err := c.runOne(ctx, ch); err != nil {
			return err
		}
	}
	return nil
}

// runOne runs one change in its savepoint. The error is that of a transaction that is no more (SQLite
// ends it by itself on a full disk, for one); the change's own is in ch.err and undoes that change only.
func (c *committer) runOne(ctx context.Context, ch *change) error {
	if err := c.exec(ctx, `SAVEPOINT one`); err != nil {
		return fmt.Errorf("begin a savepoint: %w", err)
	}
	w := &writeTx{ctx: ctx, stmts: c.stmts, now: time.Now()}
	ch.call(w)
	ch.wrote = w.wrote
	if ch.err != nil || ch.crash != "" {
		if err := c.exec(ctx, `ROLLBACK TO one`); err != nil {
			return fmt.Errorf("the transaction was ended: %w", cmp.Or(ch.err, err))
		}
	}
	if err := c.exec(ctx, `RELEASE one`); err != nil {
		return fmt.Errorf("release a savepoint: %w", err)
	}
	return nil
}

func (c *committer) exec(ctx context.Context, query string) error {
	stmt, err := c.stmts.get(ctx, query)
	if err != nil {
		return err
	}
	_, err = stmt.ExecContext(ctx)
	return err
}

// call runs the closure; a panic becomes the change's, with the stack of where it happened.
func (ch *change) call(w *writeTx) {
	defer func() {
		if p := recover(); p != nil {
			ch.crash = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	ch.err = ch.fn(w)
}

// writeTx is what a change works with: the transaction's prepared statements and one timestamp.
type writeTx struct {
	ctx   context.Context
	stmts *statements
	// now is the one timestamp of this change.
	now time.Time
	// wrote is true once a statement has changed a row.
	wrote bool
}

// exec runs a statement and returns how many rows it changed.
func (w *writeTx) exec(query string, args ...any) (int64, error) {
	stmt, err := w.stmts.get(w.ctx, query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(w.ctx, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	w.wrote = w.wrote || n > 0
	return n, err
}

// get scans the one row of a query; found is false if there is none.
func (w *writeTx) get(query string, args []any, dest ...any) (found bool, err error) {
	stmt, err := w.stmts.get(w.ctx, query)
	if err != nil {
		return false, err
	}
	err = stmt.QueryRowxContext(w.ctx, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// returning is get for a statement that changes the row it returns.
func (w *writeTx) returning(query string, args []any, dest ...any) (found bool, err error) {
	found, err = w.get(query, args, dest...)
	w.wrote = w.wrote || found
	return found, err
}
