// This file reconciles one donation: look, decide, have it done, look again, until there is nothing left to
// do now.

package supervisor

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// maxSteps bounds the actions of one reconcile. A death with a give-up takes four; more than this means that
// the record and the guard contradict each other, and a pause is better than a busy loop.
const maxSteps = 12

// reconcile brings one donation to where its record wants it.
func (s *Supervisor) reconcile(ctx context.Context, id donation.ID) {
	log := s.opts.Log.With(zap.String("donation", string(id)))
	for range maxSteps {
		if ctx.Err() != nil {
			return
		}
		f, err := s.facts(ctx, id)
		switch {
		case donation.CodeOf(err) == donation.CodeNotFound:
			return
		case err != nil:
			s.later(ctx, id, err)
			return
		}
		act := Decide(f, s.opts.Limits)
		if act.Kind != Hold && act.Kind != Attempt && act.Kind != Resend {
			s.setHold(id, "")
		}
		switch act.Kind {
		case Leave, Wait, Hold:
			s.rest(f, act, log)
			return
		}
		log.Debug("reconcile", zap.String("action", string(act.Kind)), zap.String("status", string(f.Record.Status)), zap.Int("attempts", f.Record.Attempts))
		err = s.do(ctx, f, act, log)
		switch {
		case err == nil:
			if act.Kind == Stop {
				return // its exit is the next trigger
			}
		case errors.Is(err, donation.ErrConflict):
			// The record has moved on: look again.
		default:
			s.later(ctx, id, err)
			return
		}
	}
	log.Error("reconcile does not come to rest")
	s.queue.AddAt(id, time.Now().Add(s.opts.SettleInterval))
}

func (s *Supervisor) facts(ctx context.Context, id donation.ID) (Facts, error) {
	// The order matters: a provision that ends between the two looks makes the donation dirty again, and a
	// process that ends after its record was read does so too.
	f := Facts{InFlight: s.svc.InFlight(id), Draining: s.draining.Load()}
	rec, err := s.store.Get(ctx, id)
	if err != nil {
		return f, err
	}
	f.Record, f.Seen, f.Now = rec, s.orch.Observe(id), time.Now()
	if sp := rec.Spawn; sp != nil && sp.State == donation.SpawnRunning && f.Seen.Connected && sp.Identity.BootID == f.Seen.BootID && !knows(f.Seen, sp.ID) {
		f.OrphanAlive = s.opts.Alive(sp.Identity)
	}
	return f, nil
}

func knows(o donation.Observation, spawn donation.SpawnID) bool {
	for _, p := range o.Processes {
		if p.Spawn == spawn {
			return true
		}
	}
	return false
}

// rest notes what a donation that needs nothing now is waiting for.
func (s *Supervisor) rest(f Facts, act Action, log *zap.Logger) {
	id := f.Record.ID
	switch act.Kind {
	case Wait:
		s.queue.AddAt(id, act.At)
	case Hold:
		if s.setHold(id, act.Message) {
			log.Warn("on hold", zap.String("why", act.Message))
		}
	}
	sp := f.Record.Spawn
	if sp != nil && sp.State == donation.SpawnRunning && sp.ReadyAt.IsZero() && f.Record.Status.IsSupervised() {
		s.ready.watch(donation.LaunchOf(f.Record))
	}
}

// do carries one action out.
func (s *Supervisor) do(ctx context.Context, f Facts, act Action, log *zap.Logger) error {
	rec := f.Record
	switch act.Kind {
	case Confirm:
		for _, p := range f.Seen.Processes {
			if p.Spawn == act.Spawn {
				return s.svc.Confirm(ctx, rec.ID, p)
			}
		}
		return donation.ErrConflict
	case Resend:
		return s.svc.Resend(ctx, rec)
	case Settle:
		log.Info("exited", zap.String("spawn", string(act.Spawn)), zap.String("exit", act.Exit.String()))
		return s.svc.Settle(ctx, rec.ID, act.Spawn, act.State, *act.Exit)
	case Attempt:
		if act.Exit != nil {
			log.Info("exited", zap.String("spawn", string(rec.Spawn.ID)), zap.String("exit", act.Exit.String()))
		}
		return s.attempt(ctx, rec, act, log)
	case GiveUp:
		log.Warn("giving up", zap.String("why", act.Message))
		return s.svc.GiveUp(ctx, rec, act.Message)
	case Stop:
		return s.svc.Stop(ctx, act.Spawn, act.Reason)
	case Drain:
		return s.svc.IntendDrain(ctx, act.Spawn)
	case Refill:
		return s.svc.Refill(ctx, rec)
	case Reclaim:
		return s.svc.Reclaim(ctx, rec, act.State, act.Exit)
	}
	return nil
}

// attempt respawns. If something blocks that without a charge, the exit is recorded alone.
func (s *Supervisor) attempt(ctx context.Context, rec donation.Record, act Action, log *zap.Logger) error {
	err := s.svc.Respawn(ctx, rec, act.Exit, act.Charge)
	var blocked *donation.BlockedError
	if !errors.As(err, &blocked) {
		if err == nil {
			log.Info("respawned", zap.Bool("charged", act.Charge))
		}
		return err
	}
	if act.Exit != nil {
		if err := s.svc.Settle(ctx, rec.ID, rec.Spawn.ID, act.State, *act.Exit); err != nil {
			return err
		}
	}
	return blocked
}

// later plans another look at what could not be done now, and says why once.
func (s *Supervisor) later(ctx context.Context, id donation.ID, err error) {
	if ctx.Err() != nil {
		return // stopping: the next start picks it up
	}
	var blocked *donation.BlockedError
	pause := s.opts.SettleInterval
	switch {
	case errors.As(err, &blocked):
		if s.setHold(id, blocked.Error()) {
			s.opts.Log.Warn("on hold", zap.String("donation", string(id)), zap.String("why", blocked.Error()))
		}
		if blocked.Kind == donation.BlockTemplate {
			return // a change of the configuration, or the sweep, looks again
		}
	case errors.Is(err, donation.ErrBusy):
		s.setHold(id, "waiting for a former process of this donation to end")
	case errors.Is(err, donation.ErrTransient):
		s.setHold(id, err.Error())
		pause = transientPause
	case errors.Is(err, donation.ErrDisconnected):
		// Everything is looked at when the guard is back. But one that was stopped keeps its connection, and
		// nothing tells when it goes on.
	default:
		s.errs.error(id, err)
	}
	s.queue.AddAt(id, time.Now().Add(pause))
}

// transientPause is the pause after a start that was refused for a passing reason, beside the few
// milliseconds that the guard itself waits for a busy text file.
const transientPause = 50 * time.Millisecond
