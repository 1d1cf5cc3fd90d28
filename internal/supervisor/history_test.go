// This file holds the model of the random histories: what the attempts of a donation must be, derived from how
// its processes really ended.

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// history is a donation's life as the events tell it; the guard knows how its processes really ended.
type history struct {
	started   map[donation.SpawnID]time.Time
	truth     map[donation.SpawnID]donation.Exit
	forgotten map[donation.SpawnID]bool

	attempts int
	last     time.Time // of the attempts
	hurried  bool
	current  donation.SpawnID
	running  map[donation.SpawnID]bool // has been, on record
	intended map[donation.SpawnID]bool
	ends     map[donation.SpawnID]string // the kind of the event that tells of the end
	reasons  map[donation.SpawnID]donation.Reason
}

// charged is the rule: an attempt follows from a death that nobody asked for.
func (h *history) charged(s donation.SpawnID) bool {
	end, ended := h.truth[s]
	switch {
	case h.intended[s] || h.ends[s] == "spawn.lost" || !ended:
		return false
	case h.forgotten[s]: // it may have been recorded as either before the reboot
		return h.reasons[s].Charged()
	}
	return end.Reason.Charged()
}

// next is the model: it takes one event, and returns what is wrong with it.
func (h *history) next(e donation.Event) error {
	switch e.Kind {
	case "spawn.starting":
		if prev := h.current; prev != "" && h.charged(prev) {
			if early := h.last.Add(Backoff(h.attempts, modelLimits)).Sub(e.At); h.attempts > 0 && !h.hurried && early > time.Microsecond {
				return fmt.Errorf("attempt %d came %s too early", h.attempts+1, early)
			}
			if h.attempts >= modelLimits.MaxAttempts && !h.hurried {
				return fmt.Errorf("attempt %d of %d", h.attempts+1, modelLimits.MaxAttempts)
			}
			h.attempts++
			h.last = e.At
		}
		h.current, h.hurried = e.Spawn, false
	case "spawn.running":
		h.running[e.Spawn] = true
	case "spawn.stop-intended":
		h.intended[e.Spawn] = true
	case "spawn.exited", "spawn.failed", "spawn.lost":
		h.ends[e.Spawn] = e.Kind
		if end, ended := h.truth[e.Spawn]; e.Kind == "spawn.lost" && h.running[e.Spawn] || e.Kind != "spawn.lost" && !ended {
			return fmt.Errorf("%s is on record as %s, in truth it has ended %v (%t)", e.Spawn, e.Kind, end, ended)
		}
	case "donation.refilled":
		if up := e.At.Sub(h.started[h.current]); up < modelLimits.RefillAfter {
			return fmt.Errorf("refilled after %s", up)
		}
		h.attempts = 0
	case "donation.retried":
		h.hurried = true
		if strings.HasPrefix(e.Detail, "back to") {
			h.attempts = 0
		}
	case "donation.error":
		if strings.HasPrefix(e.Detail, "respawn gave up") && h.attempts < modelLimits.MaxAttempts {
			return fmt.Errorf("given up after %d attempts: %s", h.attempts, e.Detail)
		}
	}
	return nil
}

// checkGuard returns what the guard has seen and may never be: a start that is repeated, or beside another.
func (r *rig) checkGuard() (err error) {
	r.guard.mu.Lock()
	defer r.guard.mu.Unlock()
	for _, v := range r.guard.violations {
		err = errors.Join(err, errors.New(v))
	}
	return err
}

// checkHistories checks every donation's, and that every process that ever was is on record.
func (r *rig) checkHistories() error {
	ids, err := r.donations()
	if err != nil {
		return err
	}
	err = r.checkGuard()
	recorded := map[donation.SpawnID]bool{}
	for _, id := range ids {
		spawns, lookErr := r.db.Spawns(context.Background(), id, 0)
		for _, sp := range spawns {
			recorded[sp.ID] = true
		}
		err = errors.Join(err, lookErr, r.checkAttempts(id, spawns))
	}
	r.guard.mu.Lock()
	defer r.guard.mu.Unlock()
	for _, c := range r.guard.started {
		if !recorded[c.spawn] {
			err = errors.Join(err, fmt.Errorf("%s of %s was started and is on no record", c.spawn, c.donation))
		}
	}
	return err
}

// checkAttempts compares the record with the model.
func (r *rig) checkAttempts(id donation.ID, spawns []donation.Spawn) error {
	ctx := context.Background()
	rec, err := r.db.Get(ctx, id)
	if err != nil {
		return err
	}
	events, err := r.db.Events(ctx, id, 0, 0)
	if err != nil {
		return err
	}
	r.guard.mu.Lock()
	defer r.guard.mu.Unlock()
	h := &history{
		truth: r.guard.truth, forgotten: r.guard.forgotten, started: map[donation.SpawnID]time.Time{},
		running: map[donation.SpawnID]bool{}, intended: map[donation.SpawnID]bool{},
		ends: map[donation.SpawnID]string{}, reasons: map[donation.SpawnID]donation.Reason{},
	}
	for _, c := range r.guard.started {
		h.started[c.spawn] = c.at
	}
	for _, sp := range spawns {
		if sp.Exit != nil {
			h.reasons[sp.ID] = sp.Exit.Reason
		}
	}
	var told []string
	for _, e := range events {
		told = append(told, fmt.Sprintf("%s %s %s %s", e.At.Format("04:05.000"), e.Spawn, e.Kind, e.Detail))
		if err := h.next(e); err != nil {
			return fmt.Errorf("%s: %w\n%s", id, err, strings.Join(told, "\n"))
		}
	}
	if rec.Attempts != h.attempts {
		return fmt.Errorf("%s has %d attempts on record, the model has %d\n%s", id, rec.Attempts, h.attempts, strings.Join(told, "\n"))
	}
	return nil
}
