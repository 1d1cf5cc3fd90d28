// This file tests the group committer: shared commits, isolation of errors and panics, cancellation, the end.

package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// hold occupies the committer until the returned function is called, so that what is written meanwhile
// becomes one batch.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	var g errgroup.Group
	g.Go(func() error {
		return s.writer.do(context.Background(), "hold", func(*writeTx) error {
			close(held)
			<-free
			return nil
		})
	})
	<-held
	return func() {
		close(free)
		noError(t, g.Wait())
	}
}

// queue starts fn's and returns when all of them wait for the committer.
func queue(t *testing.T, s *Store, ctx context.Context, fns ...func(*writeTx) error) (results []error, wait func()) {
	t.Helper()
	results = make([]error, len(fns))
	var wg sync.WaitGroup
	for i, fn := range fns {
		wg.Go(func() { results[i] = s.writer.do(ctx, "queued", fn) })
		poll(t, func() bool {
			s.writer.mu.Lock()
			defer s.writer.mu.Unlock()
			return len(s.writer.waiting) == i+1
		})
	}
	return results, wg.Wait
}

func note(kind string) func(*writeTx) error {
	return func(w *writeTx) error { return w.event("don_x", "", kind, "") }
}

func TestGroupCommitIsolatesAFailingChange(t *testing.T) {
	s := openTest(t)
	release := hold(t, s)
	wrong := errors.New("wrong")
	var stamps []time.Time
	results, wait := queue(
		t, s, t.Context(), note("first"),
		func(w *writeTx) error { return errors.Join(note("undone")(w), wrong) },
		func(w *writeTx) error {
			_, err := w.exec(`INSERT INTO ports (port, donation, name) VALUES (99999, 'x', 'y')`) // against a CHECK
			return err
		},
		func(w *writeTx) error {
			stamps = append(stamps, w.now)
			return note("last")(w)
		},
	)
	release()
	wait()
	if results[0] != nil || !errors.Is(results[1], wrong) || results[2] == nil || results[3] != nil {
		t.Errorf("results = %v", results)
	}
	wantSame(t, "what was written", kinds(t, s, "don_x"), []string{"first", "last"})
	events, err := s.Events(t.Context(), "don_x", 0, 0)
	noError(t, err)
	if !events[1].At.Equal(stamps[0].Truncate(time.Microsecond)) {
		t.Errorf("the event is of %s, its change of %s", events[1].At, stamps[0])
	}
}

func TestWaitingChangesShareACommit(t *testing.T) {
	s := openTest(t)
	release := hold(t, s)
	first := s.Changed()
	commits := 0
	s.writer.committed = func() { commits++; s.announce() } // the committer's goroutine alone calls it
	fns := make([]func(*writeTx) error, 100)
	for i := range fns {
		fns[i] = note("n")
	}
	_, wait := queue(t, s, t.Context(), fns...)
	release()
	wait()
	<-first
	if commits != 1 {
		t.Errorf("100 waiting changes took %d commits, want 1", commits)
	}
	wantSame(t, "how many were written", len(kinds(t, s, "don_x")), 100)
}

func TestPanicOfAChangeReachesItsCallerAlone(t *testing.T) {
	s := openTest(t)
	release := hold(t, s)
	var caught any
	results, wait := queue(t, s, t.Context(), note("before"))
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { caught = recover() }()
		_ = s.writer.do(context.Background(), "stumble", func(w *writeTx) error {
			_ = note("undone")(w)
			panic("ouch")
		})
	})
	release()
	wait()
	wg.Wait()
	noError(t, results[0])
	msg, _ := caught.(string)
	for _, want := range []string{"stumble", "ouch", "writer_test.go"} {
		if !strings.Contains(msg, want) {
			t.Errorf("the panic %q lacks %q", msg, want)
		}
	}
	noError(t, s.Note(t.Context(), donation.Event{Donation: "don_x", Kind: "after"}))
	wantSame(t, "what was written", kinds(t, s, "don_x"), []string{"before", "after"})
}

func TestFailedTransactionIsEverybodysError(t *testing.T) {
	s := openTest(t)
	release := hold(t, s)
	results, wait := queue(
		t, s, t.Context(), note("first"),
		func(w *writeTx) error { // SQLite ends a transaction by itself in the same way, on a full disk for one
			_, err := w.exec(`INSERT OR ROLLBACK INTO ports (port, donation, name) VALUES (99999, 'x', 'y')`)
			return err
		},
		note("last"),
	)
	release()
	wait()
	for i, err := range results {
		if err == nil {
			t.Errorf("change %d was told that it is durable", i)
		}
	}
	noError(t, s.Note(t.Context(), donation.Event{Donation: "don_x", Kind: "after"}))
	wantSame(t, "what was written", kinds(t, s, "don_x"), []string{"after"})
}

func TestF47_CancelledWhileQueuedIsNotRunAndWhileRunningIsCarriedThrough(t *testing.T) {
	s := openTest(t)
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	results, wait := queue(t, s, ctx, note("never"))
	cancel()
	wait()
	if !errors.Is(results[0], context.Canceled) {
		t.Errorf("a queued one: %v, want its context's error", results[0])
	}
	release()

	ctx, cancel = context.WithCancel(t.Context())
	noError(t, s.writer.do(ctx, "cancelled inside", func(w *writeTx) error {
		cancel()
		return note("written")(w)
	}))
	if err := s.writer.do(ctx, "cancelled before", note("never")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	wantSame(t, "what was written", kinds(t, s, "don_x"), []string{"written"})
}

func TestF47_RandomCancellationsLeaveNoTransactionOpen(t *testing.T) {
	s := openTest(t)
	var mu sync.Mutex
	told := map[string]bool{}
	var g errgroup.Group
	g.SetLimit(16)
	for range 300 {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(400))*time.Microsecond)
			defer cancel()
			d := newDonation("a")
			_, err := s.Create(ctx, d)
			_, _ = s.Get(ctx, d.ID) // readers are cancelled too
			mu.Lock()
			defer mu.Unlock()
			told[string(d.ID)] = err == nil
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		})
	}
	noError(t, g.Wait())
	recs, err := s.List(t.Context(), donation.Filter{})
	noError(t, err)
	found := map[string]bool{}
	for _, r := range recs {
		found[string(r.ID)] = true
	}
	for id, ok := range told {
		if ok != found[id] {
			t.Errorf("%s: told %v, found %v", id, ok, found[id])
		}
	}
	provision(t, s)
	_, err = raw(t, s).Exec(`BEGIN EXCLUSIVE; ROLLBACK`) // nobody holds a transaction
	noError(t, err)
}

func TestCloseWritesWhatWaits(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), testOptions)
	noError(t, err)
	release := hold(t, s)
	results, wait := queue(t, s, t.Context(), note("waiting"))
	var closing errgroup.Group
	closing.Go(s.Close)
	release()
	wait()
	noError(t, closing.Wait())
	noError(t, results[0])
}

func TestStoreLivesInABubble(t *testing.T) {
	// Other packages test their timers under synctest, with a real store: its goroutines must let time pass.
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), dir, testOptions)
		noError(t, err)
		defer func() { noError(t, s.Close()) }()
		rec := in(t, s, donation.Seeded)
		changed := s.Changed()
		time.Sleep(time.Hour) // the bubble's hour
		synctest.Wait()
		got, err := s.Terminate(t.Context(), rec.ID)
		noError(t, err)
		<-changed
		if d := got.UpdatedAt.Sub(got.CreatedAt); d != time.Hour {
			t.Errorf("terminated %s after its creation, want the bubble's hour", d)
		}
	})
}
