// This file lets many goroutines want the same thing, and random sequences of calls meet a small model.

package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestS20_OneOfFiftyWinsEachGeneration(t *testing.T) {
	s := openTest(t)
	rec := in(t, s, donation.Seeded)
	for generation := int64(1); generation <= 5; generation++ {
		wins := make(chan donation.SpawnID, 50)
		var g errgroup.Group
		for range cap(wins) {
			g.Go(func() error {
				spawn := newSpawn()
				_, err := s.BeginRespawn(t.Context(), donation.Respawn{ID: rec.ID, Generation: generation, Exit: &crash, Charge: true, Spawn: spawn})
				switch {
				case err == nil:
					wins <- spawn.ID
				case !errors.Is(err, donation.ErrConflict):
					return err
				}
				return nil
			})
		}
		noError(t, g.Wait())
		close(wins)
		if len(wins) != 1 {
			t.Fatalf("generation %d was begun %d times", generation+1, len(wins))
		}
		got := get(t, s, rec.ID)
		if winner := <-wins; got.Spawn.ID != winner || got.Generation != generation+1 || got.Attempts != int(generation) {
			t.Errorf("generation %d, attempts %d, spawn %s (the winner is %s)", got.Generation, got.Attempts, got.Spawn.ID, winner)
		}
	}
}

func TestOneOfFiftyCreatesTheSameDonation(t *testing.T) {
	s := openTest(t)
	d := newDonation("a")
	wins := make(chan struct{}, 50)
	var g errgroup.Group
	for range cap(wins) {
		g.Go(func() error {
			if _, err := s.Create(t.Context(), d); err == nil {
				wins <- struct{}{}
			}
			return nil
		})
	}
	noError(t, g.Wait())
	wantSame(t, "how many won", len(wins), 1)
	wantSame(t, "its events", kinds(t, s, d.ID), []string{"donation.provisioning", "spawn.starting"})
}

func TestS14_AnEndingWinsAgainstEverythingAtOnce(t *testing.T) {
	s := openTest(t)
	for range 20 {
		rec := die(t, s, respawn(t, s, die(t, s, in(t, s, donation.Seeded))))
		var g errgroup.Group
		g.Go(func() error { _, err := s.Terminate(t.Context(), rec.ID); return err })
		for _, change := range []func() error{
			func() error { return s.Refill(t.Context(), rec.ID, rec.Generation) },
			func() error { return s.Fail(t.Context(), rec.ID, donation.Supervised, rec.Generation, "gave up", true) },
			func() error {
				_, err := s.BeginRespawn(t.Context(), donation.Respawn{ID: rec.ID, Generation: rec.Generation, Charge: true, Spawn: newSpawn()})
				return err
			},
			func() error { _, err := s.Retry(t.Context(), rec.ID); return err },
		} {
			g.Go(func() error {
				if err := change(); err != nil && !errors.Is(err, donation.ErrConflict) && donation.CodeOf(err) != donation.CodeInvalidState {
					return err
				}
				return nil
			})
		}
		noError(t, g.Wait())
		got := get(t, s, rec.ID)
		if got.Status != donation.Terminated || got.GaveUp || got.RetryNow {
			t.Errorf("record = %+v", got.Donation)
		}
		if !got.Spawn.State.Ended() && got.Spawn.StopReason == "" {
			t.Error("a live spawn of a terminated donation isn't marked for stopping")
		}
	}
}

// model is what a donation may look like: a dozen lines against the store's SQL.
type model struct {
	status     donation.Status
	before     donation.Status
	attempts   int
	generation int64
	spawn      donation.SpawnState
	// intended: a stop was recorded while the spawn was alive, so its end is never charged.
	intended bool
}

func TestModel_RandomCallsKeepTheInvariants(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "state"))
	rapid.Check(t, func(rt *rapid.T) {
		d := newDonation()
		rec, err := s.Create(t.Context(), d)
		if err != nil {
			rt.Fatal(err)
		}
		m := model{status: donation.Provisioning, generation: 1, spawn: donation.SpawnStarting}
		// Calls are made with what was on record at some moment, so that they are often late.
		stale := rec
		fits := func(err error, ok bool, what string) bool {
			if (err == nil) != ok || (err != nil && !errors.Is(err, donation.ErrConflict) && donation.CodeOf(err) != donation.CodeInvalidState) {
				rt.Fatalf("%s from %+v: %v, want success %v", what, m, err, ok)
			}
			return ok
		}
		rt.Repeat(map[string]func(*rapid.T){
			"look": func(*rapid.T) { stale = rec },
			"begin": func(rt *rapid.T) {
				r := donation.Respawn{ID: d.ID, Generation: stale.Generation, Charge: rapid.Bool().Draw(rt, "charge"), Spawn: newSpawn()}
				if rapid.Bool().Draw(rt, "news") {
					r.Exit = &crash
				}
				_, err := s.BeginRespawn(t.Context(), r)
				if fits(err, m.status.IsSupervised() && stale.Generation == m.generation && (m.spawn.Ended() || r.Exit != nil) && !(r.Charge && m.intended), "begin") {
					m.generation, m.spawn, m.intended = m.generation+1, donation.SpawnStarting, false
					if r.Charge {
						m.attempts++
					}
				}
			},
			"started": func(rt *rapid.T) {
				to := rapid.SampledFrom(donation.Supervised).Draw(rt, "to")
				err := s.SpawnStarted(t.Context(), stale.Spawn.ID, ident, time.Now(), to)
				starting := stale.Spawn.Generation == m.generation && m.spawn == donation.SpawnStarting
				fits(err, starting && !m.status.IsEnding(), "started")
				if starting {
					m.spawn = donation.SpawnRunning
					if m.status == donation.Provisioning {
						m.status = to
					}
				}
			},
			"ended": func(*rapid.T) {
				fits(s.SpawnEnded(t.Context(), stale.Spawn.ID, donation.SpawnExited, crash), true, "ended")
				if stale.Spawn.Generation == m.generation && !m.spawn.Ended() {
					m.spawn = donation.SpawnExited
				}
			},
			"fail": func(rt *rapid.T) {
				gaveUp := rapid.Bool().Draw(rt, "gave up")
				err := s.Fail(t.Context(), d.ID, donation.Live, stale.Generation, "broke", gaveUp)
				may := m.status.IsLive() && (!gaveUp || m.status.IsSupervised())
				if fits(err, may && stale.Generation == m.generation, "fail") {
					m.before = ""
					if gaveUp {
						m.before = m.status
					}
					m.status, m.intended = donation.Failed, m.intended || !m.spawn.Ended()
				}
			},
			"retry": func(*rapid.T) {
				_, err := s.Retry(t.Context(), d.ID)
				if fits(err, m.status.IsSupervised() || m.before != "", "retry") && m.before != "" {
					m.status, m.before, m.attempts = m.before, "", 0
				}
			},
			"refill": func(*rapid.T) {
				if fits(s.Refill(t.Context(), d.ID, stale.Generation), m.status.IsSupervised() && stale.Generation == m.generation, "refill") {
					m.attempts = 0
				}
			},
			"terminate": func(*rapid.T) {
				_, err := s.Terminate(t.Context(), d.ID)
				fits(err, true, "terminate")
				m.status, m.before, m.intended = donation.Terminated, "", m.intended || !m.spawn.Ended()
			},
			"": func(rt *rapid.T) {
				was := rec
				if rec, err = s.Get(t.Context(), d.ID); err != nil {
					rt.Fatal(err)
				}
				got := model{rec.Status, rec.Before, rec.Attempts, rec.Generation, rec.Spawn.State, rec.Spawn.StopReason != ""}
				switch {
				case got != m:
					rt.Fatalf("the record is %+v, the model says %+v", got, m)
				case was.Status == donation.Terminated && rec.Status != donation.Terminated:
					rt.Fatal("a terminated donation came back")
				case rec.Generation < was.Generation:
					rt.Fatal("the generation went back")
				case rec.Status == was.Status && !rec.UpdatedAt.Equal(was.UpdatedAt):
					rt.Fatal("UpdatedAt moved without the status")
				case rec.Status.IsEnding() && !rec.Spawn.State.Ended() && rec.Spawn.StopReason == "":
					rt.Fatal("an ended donation's spawn isn't marked for stopping")
				}
			},
		})
		spawns, err := s.Spawns(t.Context(), d.ID, 0)
		if err != nil {
			rt.Fatal(err)
		}
		live := slices.ContainsFunc(spawns[1:], func(sp donation.Spawn) bool { return !sp.State.Ended() })
		if int64(len(spawns)) != m.generation || live {
			rt.Fatal(fmt.Sprintf("%d spawns at generation %d; an older one is alive: %v", len(spawns), m.generation, live))
		}
	})
}
