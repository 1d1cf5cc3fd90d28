// This file is about strays: processes that the guard holds and that are on no record, because the database was
// lost or is an old copy. They are shown and can be terminated by id. Nobody renews their leases (leases.go).

package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

// stray is a donation that only the guard knows.
type stray struct {
	id        donation.ID
	processes []donation.Process
}

func (s stray) fault() api.Fault {
	var pids []string
	end := "It has no lease, so it runs on"
	for _, p := range s.processes {
		if p.State == donation.ProcessExited {
			continue
		}
		pids = append(pids, fmt.Sprint(p.Identity.PID))
		if p.TTL > 0 {
			end = "It isn't renewed, so it ends with its lease"
		}
	}
	state := "runs (pid " + strings.Join(pids, ", ") + ")"
	if len(pids) == 0 {
		state, end = "has ended", "Its files are still there"
	}
	return api.Fault{Code: "stray", Message: fmt.Sprintf(
		"%s %s but is on no record: the database was lost, or is an old copy. %s; 'cadre-hostd terminate %s' ends it and deletes what it wrote",
		s.id, state, end, s.id)}
}

// strays returns the donations that the guard holds processes of and that are on no record.
func (b backend) strays(ctx context.Context, e *engine) []stray {
	asked := map[donation.ID]bool{}
	var found []stray
	for _, p := range b.d.link.orch.Processes() {
		if asked[p.Donation] {
			continue
		}
		asked[p.Donation] = true
		// One whose record can't be read is no stray.
		if _, err := e.store.Get(ctx, p.Donation); donation.CodeOf(err) == donation.CodeNotFound {
			s, _ := b.stray(string(p.Donation))
			found = append(found, s)
		}
	}
	return found
}

// stray returns what the guard holds of one donation.
func (b backend) stray(id string) (stray, bool) {
	s := stray{id: donation.ID(id)}
	s.processes = b.d.link.orch.Observe(s.id).Processes
	return s, len(s.processes) > 0
}

// strayPoll is how often the end of a stray is looked for: it is on no record, so no event tells of it.
const strayPoll = 20 * time.Millisecond

// terminateStray stops what the guard holds of a donation, waits for its end, and deletes its workdir.
func (b backend) terminateStray(ctx context.Context, s stray, force bool) (api.View, error) {
	orch := b.d.link.orch
	for _, p := range s.processes {
		if err := orch.Stop(ctx, p.Spawn, donation.ReasonTerminate, force); err != nil {
			return api.View{}, b.explain(donation.Errorf(donation.CodeUnavailable, "%s could not be stopped: %w", s.id, err))
		}
	}
	ticker := time.NewTicker(strayPoll)
	defer ticker.Stop()
	for !b.ended(s.id) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return api.View{}, b.explain(donation.Errorf(donation.CodeStillStopping, "%s is still stopping (--force kills it at once)", s.id))
		}
	}
	if err := orch.Reclaim(ctx, s.id); err != nil {
		return api.View{}, b.explain(donation.Errorf(donation.CodeUnavailable, "%s has ended but its workdir could not be deleted: %w", s.id, err))
	}
	var spawns []donation.SpawnID
	for _, p := range orch.Observe(s.id).Processes {
		spawns = append(spawns, p.Spawn)
	}
	if err := orch.Ack(ctx, spawns...); err != nil {
		return api.View{}, b.explain(donation.Errorf(donation.CodeUnavailable, "%s has ended but the guard could not be told to forget it: %w", s.id, err))
	}
	return api.View{ID: s.id, Status: donation.Terminated, Ports: map[string]int{}}, nil
}

// ended reports whether the guard holds no living process of the donation.
func (b backend) ended(id donation.ID) bool {
	seen := b.d.link.orch.Observe(id)
	for _, p := range seen.Processes {
		if p.State != donation.ProcessExited {
			return false
		}
	}
	return seen.Connected
}
