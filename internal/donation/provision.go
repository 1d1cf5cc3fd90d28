// This file provisions: record, start, record again, and undo all of it when the start fails.

package donation

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cleanupTimeout bounds the recording of a start's answer and the undoing of a failed provision: both depend
// neither on the caller's patience nor on Close.
const cleanupTimeout = 10 * time.Second

// Provision donates a node: it writes the record, starts the process and returns the record once the guard
// has given a definite answer. If ctx ends before, the provision goes on without the caller.
//
// Errors: CodeInvalidRequest, CodeUnknownTemplate, CodeNameTaken, CodePortsExhausted (nothing was written);
// CodeSpawnFailed (the record says error, nothing is left to reclaim); CodeInvalidState (an ending landed
// meanwhile); CodeUnavailable (no guard, or ctx ended).
func (s *Service) Provision(ctx context.Context, req Request) (Record, error) {
	req, err := req.Valid()
	if err != nil {
		return Record{}, err
	}
	plan, err := s.orch.Plan(req.Template)
	if err != nil {
		return Record{}, err
	}
	id := NewID()
	seen := s.orch.Observe(id)
	if !seen.Connected {
		return Record{}, Errorf(CodeUnavailable, "the guard can't be reached, so nothing can be started; 'cadre-hostd status' tells why")
	}
	if !s.enter(id) {
		return Record{}, errStopping
	}
	rec, err := s.store.Create(ctx, NewDonation{
		ID: id, Request: req, PortNames: plan.PortNames, PortFree: s.orch.PortFree, UIDs: s.orch.UIDs(),
		Spawn: newSpawn(plan, seen.Instance),
	})
	if err != nil {
		s.leave(id)
		return Record{}, err
	}
	result := make(chan error, 1) // holds the answer should the caller have left
	go func() {
		defer s.leave(id)
		result <- s.provision(s.base, rec, plan)
	}()
	select {
	case err = <-result:
	case <-ctx.Done():
		return rec, Errorf(CodeUnavailable, "%s is still being started; 'cadre-hostd status %s' tells how it goes", id, id)
	}
	if err != nil {
		return rec, err
	}
	return s.store.Get(ctx, id)
}

func newSpawn(plan Plan, guard string) NewSpawn {
	return NewSpawn{ID: NewSpawnID(), SeedToken: NewSeedToken(), StartupToken: NewStartupToken(), TemplateHash: plan.Hash, Guard: guard}
}

func (s *Service) provision(ctx context.Context, rec Record, plan Plan) error {
	p, err := s.startUntilDefinite(ctx, rec)
	if err != nil {
		var refused *StartError
		if !errors.As(err, &refused) {
			return err
		}
		return s.failProvision(rec, refused)
	}
	to := Seeded
	if plan.NeedsSeed {
		to = AwaitingSeed
	}
	ctx, cancel := s.lastWords()
	defer cancel()
	err = s.store.SpawnStarted(ctx, rec.Spawn.ID, p.Identity, p.StartedAt, to)
	switch {
	case errors.Is(err, ErrConflict):
		// The supervisor, made dirty when this provision leaves, stops and reclaims what the ending says.
		return endedMeanwhile(rec.ID)
	case err != nil:
		return s.undoProvision(rec, err)
	}
	return nil
}

// lastWords is the context of what must be written even while the service is closing.
func (s *Service) lastWords() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.base), cleanupTimeout)
}

func endedMeanwhile(id ID) error {
	return Errorf(CodeInvalidState, "%s was ended while it was being started", id)
}

// startUntilDefinite sends the start until the guard answers for good or ctx ends.
func (s *Service) startUntilDefinite(ctx context.Context, rec Record) (Process, error) {
	for pause := transientPause; ; pause = min(2*pause, s.opts.SettleInterval) {
		p, err := s.orch.Start(ctx, LaunchOf(rec))
		var refused *StartError
		var blocked *BlockedError
		switch {
		case err == nil || errors.As(err, &refused):
			return p, err
		case errors.As(err, &blocked):
			// Nobody is there yet to wait until it can be started.
			return p, &StartError{Message: blocked.Message}
		}
		if now, lookErr := s.store.Get(ctx, rec.ID); lookErr == nil && now.Status.IsEnding() {
			return p, endedMeanwhile(rec.ID)
		}
		if !sleep(ctx, pause) {
			return p, context.Cause(ctx)
		}
	}
}

// failProvision records a definite refusal and leaves nothing behind.
func (s *Service) failProvision(rec Record, refused *StartError) error {
	ctx, cancel := s.lastWords()
	defer cancel()
	exit := Exit{Reason: ReasonStartFailed, At: time.Now(), Message: refused.Message}
	err := s.store.SpawnEnded(ctx, rec.Spawn.ID, SpawnFailed, exit)
	failErr := s.store.Fail(ctx, rec.ID, []Status{Provisioning}, 0, refused.Message, false)
	err = errors.Join(err, ignoreConflict(failErr))
	if err == nil {
		err = s.reclaim(ctx, rec.ID)
	}
	switch {
	case errors.Is(failErr, ErrConflict):
		// The ending that came first stands, and what undoing left is its reclaim's.
		return endedMeanwhile(rec.ID)
	case err != nil:
		// The record still says provisioning or has a workdir: a later reap or sweep finishes this.
		return Errorf(CodeSpawnFailed, "%s could not be started: %s; and undoing it failed: %w", rec.ID, refused.Message, err)
	}
	return Errorf(CodeSpawnFailed, "%s could not be started: %s", rec.ID, refused.Message)
}

// undoProvision stops the child that exists when its record could not be completed (D06).
func (s *Service) undoProvision(rec Record, cause error) error {
	ctx, cancel := s.lastWords()
	defer cancel()
	// If this can't be recorded either, the child is stopped all the same, and the reap of stale provisionings
	// writes the ending.
	err := errors.Join(
		ignoreConflict(s.store.Fail(ctx, rec.ID, []Status{Provisioning}, 0, fmt.Sprintf("the start could not be recorded: %v", cause), false)),
		s.orch.Stop(ctx, rec.Spawn.ID, ReasonAbandoned, true),
	)
	return Errorf(CodeInternal, "%s was started but that could not be recorded, so it was stopped: %w", rec.ID, errors.Join(cause, err))
}

// ReapStale ends what nobody has finished: every provisioning that is older than its time-out and that nobody works
// on, and every donation that has waited for its seed for longer than its own.
func (s *Service) ReapStale(ctx context.Context, now time.Time) error {
	return errors.Join(s.reapStuck(ctx, now), s.reapUnseeded(ctx, now))
}

// reapUnseeded terminates what has waited too long. What is seeded between the list and the write stays.
func (s *Service) reapUnseeded(ctx context.Context, now time.Time) error {
	if s.opts.UnseededTimeout == 0 {
		return nil
	}
	before := now.Add(-s.opts.UnseededTimeout)
	recs, err := s.store.List(ctx, Filter{Statuses: []Status{AwaitingSeed}})
	for _, rec := range recs {
		if rec.UpdatedAt.After(before) {
			continue
		}
		msg := fmt.Sprintf("not seeded within %s", s.opts.UnseededTimeout)
		err = errors.Join(err, ignoreConflict(s.store.Expire(ctx, rec.ID, before, msg)))
		s.touched(rec.ID)
		s.opts.Dirty(rec.ID)
	}
	return err
}

func (s *Service) reapStuck(ctx context.Context, now time.Time) error {
	recs, err := s.store.List(ctx, Filter{Statuses: []Status{Provisioning}})
	for _, rec := range recs {
		if now.Sub(rec.UpdatedAt) < s.opts.ProvisioningTimeout || s.InFlight(rec.ID) {
			continue
		}
		msg := fmt.Sprintf("stuck in provisioning for more than %s; donate again", s.opts.ProvisioningTimeout)
		failErr := s.store.Fail(ctx, rec.ID, []Status{Provisioning}, rec.Generation, msg, false)
		err = errors.Join(err, ignoreConflict(failErr))
		s.touched(rec.ID)
		s.opts.Dirty(rec.ID)
	}
	return err
}

func ignoreConflict(err error) error {
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}
