// This file takes up the provisions that a daemon left behind when it died between the record and the answer.

package donation

import (
	"context"
	"time"
)

// Resume goes on with every provision that nobody works on: the same spawn is sent again until the guard's answer
// is definite. Those that are older than the provisioning time-out are left to ReapStale. It returns at once
// with the rows that can't be read joined in the error; it is called when a daemon starts, before any Provision.
func (s *Service) Resume(ctx context.Context, now time.Time) error {
	recs, err := s.store.List(ctx, Filter{Statuses: []Status{Provisioning}})
	for _, rec := range recs {
		if rec.Spawn == nil || now.Sub(rec.UpdatedAt) >= s.opts.ProvisioningTimeout || !s.enter(rec.ID) {
			continue
		}
		go func() {
			defer s.leave(rec.ID)
			// Its outcome is on record; the one who asked has gone with the former daemon.
			_ = s.resume(rec)
		}()
	}
	return err
}

func (s *Service) resume(rec Record) error {
	if rec.Spawn.State.Ended() {
		// The refusal is on record, what follows from it isn't yet.
		return s.failProvision(rec, &StartError{Message: rec.Spawn.Exit.String()})
	}
	plan, err := s.orch.Plan(rec.Request.Template)
	if err != nil {
		return s.failProvision(rec, &StartError{Message: err.Error()})
	}
	return s.provision(s.base, rec, plan)
}
