// This file measures what the respawn path and the start of the daemon cost.

package store

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func BenchmarkGet(b *testing.B) {
	s := openTest(b)
	rec := in(b, s, donation.Seeded)
	b.ReportAllocs()
	for b.Loop() {
		get(b, s, rec.ID)
	}
}

func BenchmarkBeginRespawn(b *testing.B) {
	// One durable commit each: the floor is the disk's sync.
	begin := func(s *Store, rec donation.Record) (donation.Record, error) {
		return s.BeginRespawn(context.Background(), donation.Respawn{ID: rec.ID, Generation: rec.Generation, Exit: &crash, Charge: true, Spawn: newSpawn()})
	}
	b.Run("serial", func(b *testing.B) {
		s := openTest(b)
		rec := in(b, s, donation.Seeded)
		var err error
		for b.Loop() {
			if rec, err = begin(s, rec); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("32 at once", func(b *testing.B) {
		s := openTest(b)
		b.SetParallelism(16) // times GOMAXPROCS
		b.RunParallel(func(pb *testing.PB) {
			rec := in(b, s, donation.Seeded)
			var err error
			for pb.Next() {
				if rec, err = begin(s, rec); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkListSupervised10k(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "state")
	s, err := Open(b.Context(), dir, Options{PortFirst: 10000, PortLast: 60000})
	noError(b, err)
	b.Cleanup(func() { noError(b, s.Close()) })
	fillBench(b, s)
	for _, f := range []donation.Filter{{Statuses: donation.Supervised}, {Statuses: donation.Supervised, Unsettled: true}} {
		b.Run(fmt.Sprintf("unsettled=%v", f.Unsettled), func(b *testing.B) {
			for b.Loop() {
				recs, err := s.List(b.Context(), f)
				noError(b, err)
				if len(recs) != 10000 {
					b.Fatalf("%d records", len(recs))
				}
			}
		})
	}
	b.Run("Open", func(b *testing.B) { // quick_check reads all of it
		for b.Loop() {
			again, err := Open(b.Context(), dir, testOptions)
			noError(b, err)
			noError(b, again.Close())
		}
	})
	b.Run("Get", func(b *testing.B) {
		id := donation.ID("don_05000")
		for b.Loop() {
			get(b, s, id)
		}
	})
}

// fillBench writes 10,000 seeded donations with 20 spawns each, in SQL alone: the calls would take minutes.
func fillBench(b *testing.B, s *Store) {
	b.Helper()
	const n = `WITH RECURSIVE n(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n WHERE value < 10000) `
	for _, query := range []string{
		n + `INSERT INTO donations (id, inputs, status, generation, created_at, updated_at)
			SELECT printf('don_%05d', value), '{"template":"reference","owner_keys":["key"]}', 'seeded', 20, 1, 1 FROM n WHERE value >= 1`,
		n + `INSERT INTO spawns (id, donation, generation, state, seed_token, startup_token, template_hash, guard, boot_id, pid, begun_at, started_at, ended_at, exit_reason)
			SELECT d.id || '.' || g.value, d.id, g.value, iif(g.value = 20, 'running', 'exited'), hex(randomblob(22)), hex(randomblob(16)), 'hash', 'guard', 'boot', 1, 1, 1,
				iif(g.value = 20, NULL, 1), iif(g.value = 20, '', 'crash')
			FROM donations d, (SELECT value FROM n WHERE value BETWEEN 1 AND 20) g`,
		n + `INSERT INTO ports (port, donation, name)
			SELECT 10000 + d.seq * 2 + p.value, d.id, iif(p.value = 0, 'http', 'p2p') FROM donations d, (SELECT value FROM n WHERE value < 2) p`,
	} {
		noError(b, s.writer.do(b.Context(), "fill", func(w *writeTx) error {
			_, err := w.exec(query)
			return err
		}))
	}
}
