// This file tests what the database survives: a killed writer, a foreign lock, a full disk.

package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// writeForEver is the second process: it writes from several goroutines until it is killed, and prints the id
// of each donation once it has been told that it is durable.
func writeForEver(dir string) {
	s, err := Open(context.Background(), dir, Options{PortFirst: 10000, PortLast: 60000})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			for {
				d := newDonation("a", "b")
				d.Request.Template = strings.Repeat("x", rand.IntN(5000)+1)
				if _, err := s.Create(context.Background(), d); err != nil {
					return err
				}
				if err := s.SpawnStarted(context.Background(), d.Spawn.ID, ident, time.Now(), donation.Seeded); err != nil {
					return err
				}
				fmt.Println(d.ID)
			}
		})
	}
	fmt.Println("error", g.Wait())
}

func TestF48_KilledWriterNeverCorrupts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		lines := make(chan string)
		end := startWriter(t, dir, lines)
		var durable []donation.ID
		for range rand.IntN(20) + 1 { // killed after a random number of commits, in the middle of others
			line := <-lines
			if !strings.HasPrefix(line, "don_") {
				t.Fatalf("round %d: the writer said %q", round, line)
			}
			durable = append(durable, donation.ID(line))
		}
		end()
		for line := range lines { // what it had told before it died counts too
			if len(line) == len(durable[0]) {
				durable = append(durable, donation.ID(line))
			}
		}
		s, err := Open(t.Context(), dir, testOptions)
		noError(t, err)
		for _, id := range durable {
			if rec := get(t, s, id); rec.Status != donation.Seeded || rec.Spawn.State != donation.SpawnRunning {
				t.Errorf("round %d: %s is %s with its spawn %s after it had been reported as durable", round, id, rec.Status, rec.Spawn.State)
			}
		}
		noError(t, s.Close())
	}
	s := openAt(t, dir)
	var verdict string
	noError(t, raw(t, s).Get(&verdict, `PRAGMA integrity_check`))
	wantSame(t, "integrity_check", verdict, "ok")
	var orphans int
	noError(t, raw(t, s).Get(&orphans, `SELECT count(*) FROM donations d WHERE NOT EXISTS (SELECT 1 FROM spawns s WHERE s.donation = d.id)
		OR (SELECT count(*) FROM ports p WHERE p.donation = d.id) <> 2 OR NOT EXISTS (SELECT 1 FROM events e WHERE e.donation = d.id)`))
	wantSame(t, "donations that are half there", orphans, 0)
}

func TestF43_ForeignLockLosesNoWrite(t *testing.T) {
	s := openTest(t)
	recs := make([]donation.Record, 20)
	for i := range recs {
		recs[i] = in(t, s, donation.Seeded)
	}
	foreign := raw(t, s)
	_, err := foreign.Exec(`BEGIN IMMEDIATE`)
	noError(t, err)
	_, err = foreign.Exec(`INSERT INTO events (at, kind) VALUES (1, 'foreign')`)
	noError(t, err)

	// The committer takes a first change and finds the database locked; the others gather behind it.
	ahead := &change{op: "ahead", fn: note("ahead"), done: make(chan struct{})}
	s.writer.mu.Lock()
	s.writer.waiting = append(s.writer.waiting, ahead)
	s.writer.mu.Unlock()
	s.writer.poke()
	poll(t, func() bool { return ahead.state.Load() == begun })
	var g errgroup.Group
	for _, rec := range recs {
		g.Go(func() error {
			return s.SpawnEnded(context.Background(), rec.Spawn.ID, donation.SpawnExited, crash)
		})
	}
	poll(t, func() bool {
		s.writer.mu.Lock()
		defer s.writer.mu.Unlock()
		return len(s.writer.waiting) == len(recs)
	})
	for range 20 { // readers aren't held up
		get(t, s, recs[0].ID)
		if _, err := s.List(t.Context(), donation.Filter{Statuses: donation.Supervised}); err != nil {
			t.Error(err)
		}
	}
	_, err = foreign.Exec(`COMMIT`)
	noError(t, err)
	<-ahead.done
	noError(t, ahead.err)
	noError(t, g.Wait())
	for _, rec := range recs {
		if got := get(t, s, rec.ID); got.Spawn.State != donation.SpawnExited {
			t.Errorf("the exit of %s was lost: %s", rec.ID, got.Spawn.State)
		}
	}
}

// poll waits for a condition that announces itself in no other way.
func poll(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited 10 s in vain")
		}
	}
}

func TestF44_FullDiskSaysSoAndHealsWithoutARestart(t *testing.T) {
	mnt := tmpfs(t, "size=1536k")
	s := openAt(t, filepath.Join(mnt, "state"))
	first := in(t, s, donation.Seeded)
	filler := filepath.Join(mnt, "filler")
	noError(t, fill(filler))

	var failed error
	for range 500 { // the log has some room of its own before it must grow
		d := newDonation("a")
		d.Request.Template = strings.Repeat("x", 4000)
		if _, failed = s.Create(t.Context(), d); failed != nil {
			break
		}
	}
	wantCode(t, failed, donation.CodeUnavailable)
	wantWords(t, failed, "full", s.Path(), "free some space")
	before, err := s.List(t.Context(), donation.Filter{})
	noError(t, err)
	wantSame(t, "a record read on a full disk", get(t, s, first.ID), first)

	noError(t, os.Remove(filler))
	rec := provision(t, s)
	die(t, s, first)
	after, err := s.List(t.Context(), donation.Filter{})
	noError(t, err)
	if len(after) != len(before)+1 || after[len(after)-1].ID != rec.ID {
		t.Errorf("%d donations before, %d after one more", len(before), len(after))
	}
}

func TestF44_FullDiskAtStartSaysSo(t *testing.T) {
	mnt := tmpfs(t, "size=1536k")
	dir := filepath.Join(mnt, "state")
	noError(t, openAtOnce(t, dir))
	filler := filepath.Join(mnt, "filler")
	noError(t, fill(filler))
	wantWords(t, openAtOnce(t, dir), filepath.Join(dir, DatabaseFile), "full", "free some space")
	other := filepath.Join(mnt, "other")
	wantWords(t, openAtOnce(t, other), other, "full")
	noError(t, os.Remove(filler))
	noError(t, openAtOnce(t, dir))
	noError(t, openAtOnce(t, other))
}

func TestF46_LogShrinksAfterALongForeignReader(t *testing.T) {
	s := openTest(t)
	reader := raw(t, s)
	_, err := reader.Exec(`BEGIN; SELECT count(*) FROM donations`)
	noError(t, err)
	wal := s.Path() + "-wal"
	big := strings.Repeat("x", 64<<10)
	for sizeOf(t, wal) < 2*walLimit { // the reader keeps the log from starting anew
		noError(t, s.Note(t.Context(), donation.Event{Kind: "big", Detail: big}))
	}
	other, err := Open(t.Context(), filepath.Dir(s.Path()), testOptions) // a start isn't held up by the reader
	noError(t, err)
	noError(t, other.Close())
	_, err = reader.Exec(`ROLLBACK`)
	noError(t, err)
	for i := 0; sizeOf(t, wal) > walLimit; i++ {
		if i == 200 {
			t.Fatalf("the log has still %d bytes, the bound is %d", sizeOf(t, wal), walLimit)
		}
		noError(t, s.Note(t.Context(), donation.Event{Kind: "big", Detail: big}))
	}
}

// fill takes all the space that is left.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	chunk := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(chunk)
	}
	return f.Close()
}
