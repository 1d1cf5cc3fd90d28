// This file holds what an admin asks of a donation that exists: terminate, restart, retry.

package donation

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Terminate ends a donation: the record first, then the process, then the workdir and the ports. It returns
// when all of that is done and verified; if ctx ends before, CodeStillStopping says what is still alive,
// and the supervisor carries on. A second one is a quiet no-op.
func (s *Service) Terminate(ctx context.Context, id ID, force bool) (Record, error) {
	rec, err := s.store.Terminate(ctx, id)
	if err != nil {
		return rec, err
	}
	defer s.touched(id) // who else waits looks again, and nobody's waiting is left in the map
	s.opts.Dirty(id)
	if force {
		if err := s.force(ctx, id); err != nil {
			return rec, err
		}
	}
	for {
		changed := s.changed(id)
		if rec, err = s.store.Get(ctx, id); err != nil {
			return rec, err
		}
		if s.settled(rec) {
			return rec, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return rec, &Error{Code: CodeStillStopping, Message: s.stillThere(id), Err: context.Cause(ctx)}
		case <-s.base.Done():
			return rec, context.Cause(s.base)
		}
	}
}

// force kills every process of the donation at once, also in the middle of its grace.
func (s *Service) force(ctx context.Context, id ID) error {
	for _, p := range s.orch.Observe(id).Processes {
		if p.State == ProcessExited {
			continue
		}
		if err := s.orch.Stop(ctx, p.Spawn, ReasonTerminate, true); err != nil {
			return Errorf(CodeUnavailable, "%s is ended on record, but its process could not be killed yet: %w", id, err)
		}
	}
	return nil
}

// settled reports whether an ended donation has nothing left on record.
func (s *Service) settled(rec Record) bool {
	return rec.Status.IsEnding() && !rec.HasWorkdir && (rec.Spawn == nil || rec.Spawn.State.Ended()) && !s.InFlight(rec.ID)
}

func (s *Service) stillThere(id ID) string {
	seen := s.orch.Observe(id)
	if !seen.Connected {
		return fmt.Sprintf("%s is ended on record, but the guard can't be reached to stop its process; that is done as soon as it can", id)
	}
	for _, p := range seen.Processes {
		switch {
		case !p.KillSince.IsZero():
			return fmt.Sprintf("%s is ended on record; kill sent to process %d, still alive since %s", id, p.Identity.PID, p.KillSince.Format(time.RFC3339))
		case p.State != ProcessExited:
			return fmt.Sprintf("%s is ended on record; process %d is still stopping (--force kills it at once)", id, p.Identity.PID)
		}
	}
	return fmt.Sprintf("%s is ended on record; its workdir is still being deleted", id)
}

// Restart stops a running node in order, to be spawned anew at once; it is not a crash and charges nothing.
// CodeInvalidState if the donation isn't supervised or no process runs.
func (s *Service) Restart(ctx context.Context, id ID) (Record, error) {
	rec, err := s.store.Get(ctx, id)
	if err != nil {
		return rec, err
	}
	if !rec.Status.IsSupervised() {
		return rec, Errorf(CodeInvalidState, "%s is %s; only a donation that should be running can be restarted", id, rec.Status)
	}
	if rec.Spawn == nil || rec.Spawn.State != SpawnRunning {
		return rec, Errorf(CodeInvalidState, "%s isn't running; 'cadre-hostd retry %s' starts it without waiting", id, id)
	}
	switch err := s.store.IntendStop(ctx, rec.Spawn.ID, ReasonRestart); {
	case errors.Is(err, ErrConflict):
		return rec, Errorf(CodeInvalidState, "%s has just stopped running; 'cadre-hostd status %s' tells what it does now", id, id)
	case err != nil:
		return rec, err
	}
	defer s.opts.Dirty(id) // sends the signal again, should this one fail
	if err := s.orch.Stop(ctx, rec.Spawn.ID, ReasonRestart, false); err != nil {
		return rec, Errorf(CodeUnavailable, "the restart of %s is on record, and is done as soon as the guard can be reached: %w", id, err)
	}
	return s.store.Get(ctx, id)
}

// Retry revives an error that came from a give-up (attempts 0, status as before), or ends the wait for the
// next attempt of a supervised donation, whose attempts stay. CodeInvalidState for any other.
func (s *Service) Retry(ctx context.Context, id ID) (Record, error) {
	rec, err := s.store.Retry(ctx, id)
	if err != nil {
		return rec, err
	}
	s.opts.Dirty(id)
	return rec, nil
}
