// This file shows a donation as its host sees it: the record, what the guard sees, and what the supervisor
// waits for, in one value.

package daemon

import (
	"context"
	"time"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
	"github.com/serfab/cadre-hostd/internal/supervisor"
)

// historyLimit is how many spawns a view of one donation lists.
const historyLimit = 20

// detail reads a donation and shows it with its history.
func (b backend) detail(ctx context.Context, e *engine, id donation.ID) (api.View, error) {
	rec, err := e.store.Get(ctx, id)
	if err != nil {
		return api.View{}, err
	}
	v, err := b.view(ctx, e, rec)
	if err != nil {
		return api.View{}, err
	}
	spawns, err := e.store.Spawns(ctx, id, historyLimit)
	if err != nil {
		return api.View{}, err
	}
	for _, sp := range spawns {
		v.Spawns = append(v.Spawns, spawnView(sp))
	}
	if v.Lease != nil {
		v.Lease.History, err = e.store.LeaseEvents(ctx, id, historyLimit)
	}
	return v, err
}

// view shows a record.
func (b backend) view(ctx context.Context, e *engine, rec donation.Record) (api.View, error) {
	last, err := lastExit(ctx, e, rec)
	if err != nil {
		return api.View{}, err
	}
	v := viewOf(rec, b.d.link.orch.Observe(rec.ID), alive)
	if !v.Running { // else it is about to be lifted: the guard was faster than the record
		v.Hold = e.sup.Hold(rec.ID)
	}
	v.MaxAttempts = e.limits.MaxAttempts
	v.NextAttempt = nextAttempt(rec, v, e.limits, time.Now())
	v.LastExit = exitView(last)
	if v.Running {
		v.Lease, err = b.leaseView(ctx, e, rec, time.Now())
	}
	if rec.HasWorkdir {
		v.Workdir = guard.Workdir(b.nodesDir(), string(rec.ID))
	}
	return v, err
}

// leaseView shows the lease as the renewals know it, with what an earlier daemon has put on record where they don't
// know yet; nil if there is none.
func (b backend) leaseView(ctx context.Context, e *engine, rec donation.Record, now time.Time) (*api.LeaseView, error) {
	l, ok := b.d.link.leases.of(rec.ID)
	if !ok {
		return nil, nil
	}
	if l.RenewedAt.IsZero() && l.Failures == 0 {
		saved, found, err := e.store.Lease(ctx, rec.ID)
		if err != nil {
			return nil, err
		}
		if found && saved.Spawn == l.Spawn {
			l.RenewedAt, l.Failures, l.LastError = saved.RenewedAt, saved.Failures, saved.LastError
		}
	}
	return &api.LeaseView{
		TTLSeconds: l.TTL.Seconds(), ExpiresAt: l.ExpiresAt, RenewedAt: moment(l.RenewedAt),
		Failures: l.Failures, LastError: l.LastError, Low: l.Low(now),
	}, nil
}

// viewOf combines what is recorded with what is seen. While the guard is away the kernel is asked, through
// isAlive.
func viewOf(rec donation.Record, seen donation.Observation, isAlive func(donation.Identity) bool) api.View {
	v := api.View{
		ID: rec.ID, Name: rec.Request.Name, Template: rec.Request.Template, Status: rec.Status, Message: rec.Message,
		Generation: rec.Generation, Attempts: rec.Attempts, Ports: rec.Ports, UID: rec.UID,
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt,
	}
	if v.Ports == nil {
		v.Ports = map[string]int{}
	}
	sp := rec.Spawn
	if sp == nil {
		return v
	}
	v.Spawn = string(sp.ID)
	identity, since := sp.Identity, sp.StartedAt
	if seen.Connected {
		for _, p := range seen.Processes {
			if p.Spawn != sp.ID {
				continue
			}
			v.Running = p.State == donation.ProcessRunning || p.State == donation.ProcessStopping
			v.StopSince, v.KillSince = moment(p.StopSince), moment(p.KillSince)
			identity, since = p.Identity, p.StartedAt
		}
	} else {
		v.Running = sp.State == donation.SpawnRunning && isAlive(sp.Identity)
	}
	if v.Running {
		v.PID, v.StartedAt = identity.PID, moment(since)
		v.Ready = !sp.ReadyAt.IsZero()
	}
	return v
}

// nextAttempt is when the node is tried again; nil if it runs, is held up, or won't be.
func nextAttempt(rec donation.Record, v api.View, l supervisor.Limits, now time.Time) *time.Time {
	sp := rec.Spawn
	if v.Running || v.Hold != "" || !rec.Status.IsSupervised() || sp == nil || sp.Exit == nil || !sp.Exit.Reason.Charged() {
		return nil
	}
	at := supervisor.NextAttempt(rec.Donation, l, now)
	if rec.Attempts >= l.MaxAttempts || !at.After(now) {
		return nil
	}
	return &at
}

// lastExit is the latest end of any of the donation's spawns as of the record, nil if none had ended. What has
// happened since it was read is left out, so that a view doesn't tell of two moments.
func lastExit(ctx context.Context, e *engine, rec donation.Record) (*donation.Exit, error) {
	switch {
	case rec.Spawn == nil:
		return nil, nil
	case rec.Spawn.Exit != nil || rec.Generation <= 1:
		return rec.Spawn.Exit, nil
	}
	spawns, err := e.store.Spawns(ctx, rec.ID, 3) // one that is newer than the record may have begun
	for _, sp := range spawns {
		if sp.Exit != nil && sp.Generation < rec.Generation {
			return sp.Exit, nil
		}
	}
	return nil, err
}

func spawnView(sp donation.Spawn) api.SpawnView {
	return api.SpawnView{
		ID: sp.ID, Generation: sp.Generation, State: sp.State, PID: sp.Identity.PID,
		Begun: sp.Begun, StartedAt: moment(sp.StartedAt), ReadyAt: moment(sp.ReadyAt), Exit: exitView(sp.Exit),
	}
}

func exitView(x *donation.Exit) *api.ExitView {
	if x == nil {
		return nil
	}
	return &api.ExitView{
		Words: x.String(), Reason: x.Reason, Known: x.Known, Code: x.Code, Signal: x.Signal, OOM: x.OOM,
		CPUSeconds: x.CPU.Seconds(), MaxRSS: x.MaxRSS, At: x.At,
	}
}

// moment is nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
