// This file holds the effects of the supervisor's decisions: respawn, resend, confirm, settle, give up,
// stop and reclaim. Each one records before it acts, and stands for itself if the daemon dies after it.

package donation

import (
	"context"
	"errors"
	"time"
)

// transientPause is the first pause after a start that was refused for a passing reason; it doubles up to
// the settle interval. Text-file-busy, the commonest, passes within milliseconds.
const transientPause = 10 * time.Millisecond

// Respawn begins a new spawn in one transaction with the old one's exit (if it is news) and, if charge, one
// more attempt; then it starts it. A *BlockedError means that nothing was recorded or charged; ErrConflict
// that the record has moved on.
func (s *Service) Respawn(ctx context.Context, rec Record, exit *Exit, charge bool) error {
	plan, err := s.orch.Plan(rec.Request.Template)
	if err != nil {
		return &BlockedError{Kind: BlockTemplate, Message: err.Error()}
	}
	fresh := newSpawn(plan, s.orch.Observe(rec.ID).Instance)
	trial := LaunchOf(rec)
	trial.Spawn = Spawn{ID: fresh.ID, Donation: rec.ID, SeedToken: fresh.SeedToken, StartupToken: fresh.StartupToken}
	if err := s.orch.Check(ctx, trial); err != nil {
		return err
	}
	old := rec.Spawn.ID
	rec, err = s.store.BeginRespawn(ctx, Respawn{ID: rec.ID, Generation: rec.Generation, Exit: exit, Charge: charge, Spawn: fresh})
	if err != nil {
		return err
	}
	defer s.touched(rec.ID)
	startErr := s.start(ctx, rec)
	if exit != nil {
		// On record since BeginRespawn; if this is lost, the next list of the guard brings it up again.
		startErr = errors.Join(startErr, s.orch.Ack(ctx, old))
	}
	return startErr
}

// Resend sends the start of a starting spawn again; it charges nothing.
func (s *Service) Resend(ctx context.Context, rec Record) error {
	defer s.touched(rec.ID)
	return s.start(ctx, rec)
}

// start asks for the record's latest spawn and records a definite answer.
func (s *Service) start(ctx context.Context, rec Record) error {
	p, err := s.orch.Start(ctx, LaunchOf(rec))
	var refused *StartError
	switch {
	case errors.As(err, &refused):
		exit := Exit{Reason: ReasonStartFailed, At: time.Now(), Message: refused.Message}
		return s.store.SpawnEnded(ctx, rec.Spawn.ID, SpawnFailed, exit)
	case err != nil:
		return err
	}
	return s.store.SpawnStarted(ctx, rec.Spawn.ID, p.Identity, p.StartedAt, "")
}

// Confirm records the process of a starting spawn whose answer was lost.
func (s *Service) Confirm(ctx context.Context, id ID, p Process) error {
	defer s.touched(id)
	return s.store.SpawnStarted(ctx, p.Spawn, p.Identity, p.StartedAt, "")
}

// Ready records that the readiness condition of the donation's running spawn held.
func (s *Service) Ready(ctx context.Context, id ID, spawn SpawnID) error {
	defer s.touched(id)
	return s.store.SpawnReady(ctx, spawn, time.Now())
}

// Settle records how a spawn ended and lets the guard forget it.
func (s *Service) Settle(ctx context.Context, id ID, spawn SpawnID, state SpawnState, exit Exit) error {
	defer s.touched(id)
	if err := s.store.SpawnEnded(ctx, spawn, state, exit); err != nil && CodeOf(err) != CodeNotFound {
		return err
	}
	return s.orch.Ack(ctx, spawn)
}

// GiveUp ends a supervised donation after too many attempts. It is the record alone: what still runs is
// stopped by the next decision, which finds the ending.
func (s *Service) GiveUp(ctx context.Context, rec Record, message string) error {
	defer s.touched(rec.ID)
	return s.store.Fail(ctx, rec.ID, Supervised, rec.Generation, message, true)
}

// Stop begins an orderly stop. The intention is on record already.
func (s *Service) Stop(ctx context.Context, spawn SpawnID, reason Reason) error {
	return s.orch.Stop(ctx, spawn, reason, false)
}

// IntendDrain records that a spawn is to be stopped because its host means to rest.
func (s *Service) IntendDrain(ctx context.Context, spawn SpawnID) error {
	return s.store.IntendStop(ctx, spawn, ReasonDrain)
}

// Refill sets the attempts to 0 if nothing has happened since the record was read.
func (s *Service) Refill(ctx context.Context, rec Record) error {
	defer s.touched(rec.ID)
	return s.store.Refill(ctx, rec.ID, rec.Generation)
}

// Reclaim deletes what an ended donation has left, its last exit recorded first if it is news.
func (s *Service) Reclaim(ctx context.Context, rec Record, state SpawnState, exit *Exit) error {
	defer s.touched(rec.ID)
	if exit != nil {
		if err := s.store.SpawnEnded(ctx, rec.Spawn.ID, state, *exit); err != nil {
			return err
		}
	}
	if err := s.reclaim(ctx, rec.ID); err != nil {
		return err
	}
	// The exits are forgotten last: until then a crash finds them and comes here again.
	var spawns []SpawnID
	for _, p := range s.orch.Observe(rec.ID).Processes {
		spawns = append(spawns, p.Spawn)
	}
	if len(spawns) == 0 {
		return nil
	}
	return s.orch.Ack(ctx, spawns...)
}

func (s *Service) reclaim(ctx context.Context, id ID) error {
	if err := s.orch.Reclaim(ctx, id); err != nil {
		return err
	}
	return s.store.Reclaimed(ctx, id)
}
