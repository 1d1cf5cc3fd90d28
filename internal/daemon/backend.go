// This file is the admin surface's backend: what a client asks for, handed to the engine while there is one.

package daemon

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/orchestrator/process"
)

// backend implements api.Backend.
type backend struct{ d *daemon }

var _ api.Backend = backend{}

// engine returns the engine, or why there is none. It waits for the end of the start.
func (b backend) engine(ctx context.Context) (*engine, error) {
	b.d.settle(ctx)
	m, faults, e := b.d.look()
	switch {
	case e != nil:
		return e, nil
	case m == caretaker:
		var why []string
		for _, f := range faults {
			why = append(why, f.Message)
		}
		return nil, donation.Errorf(donation.CodeUnavailable,
			"the daemon is a caretaker: it keeps the nodes that run and decides nothing until this is mended: %s", strings.Join(why, "; "))
	default:
		return nil, donation.Errorf(donation.CodeUnavailable, "the daemon is %s; ask again in a moment", m)
	}
}

// find returns the engine and the id that ref names.
func (b backend) find(ctx context.Context, ref string) (*engine, donation.ID, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return nil, "", err
	}
	id, err := e.store.Resolve(ctx, ref)
	return e, id, err
}

// Overview implements api.Backend.
func (b backend) Overview(ctx context.Context) api.Overview {
	m, faults, e := b.d.look()
	o := api.Overview{
		Version: b.d.opts.Version, PID: os.Getpid(), StartedAt: b.d.started,
		StateDir: b.d.opts.StateDir, NodesDir: b.nodesDir(), Mode: string(m),
		Faults: append([]api.Fault{}, faults...), Counts: map[donation.Status]int{},
		Templates: b.d.settings.current().TemplateNames(),
	}
	var trouble string
	if o.Guard, trouble = b.d.link.state(ctx); trouble != "" {
		o.Faults = append(o.Faults, api.Fault{Code: "guard_" + o.Guard.State, Message: trouble})
	}
	o.Faults = append(o.Faults, b.leaseFaults()...)
	if e == nil {
		return o
	}
	counts, err := e.store.Counts(ctx)
	if err != nil {
		o.Faults = append(o.Faults, api.Fault{Code: "database", Message: err.Error()})
		return o
	}
	o.Counts = counts
	for _, s := range b.strays(ctx, e) {
		o.Faults = append(o.Faults, s.fault())
	}
	return o
}

// leaseFaults are the templates whose nodes can't be started because the guard allows no such lease.
func (b backend) leaseFaults() []api.Fault {
	hello, ok := b.d.link.orch.Hello()
	if !ok {
		return nil
	}
	cfg := b.d.settings.current()
	refused := map[string][]string{}
	for _, name := range cfg.TemplateNames() {
		if err := process.CheckTTL(cfg.TTLOf(name), hello.MaxTTL); err != nil {
			refused[err.Error()] = append(refused[err.Error()], name)
		}
	}
	var faults []api.Fault
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		faults = append(faults, api.Fault{Code: "lease", Message: fmt.Sprintf("no node can be started from %s: %s", strings.Join(refused[why], ", "), why)})
	}
	return faults
}

// nodesDir is the guard's own as soon as it has said so.
func (b backend) nodesDir() string {
	if h, ok := b.d.link.orch.Hello(); ok {
		return h.NodesDir
	}
	return b.d.opts.NodesDir
}

// Donations implements api.Backend.
func (b backend) Donations(ctx context.Context, all bool) ([]api.View, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return nil, err
	}
	var f donation.Filter
	if !all {
		f.Statuses = []donation.Status{donation.Provisioning, donation.AwaitingSeed, donation.Seeded, donation.Failed}
		f.Unsettled = true
	}
	recs, err := e.store.List(ctx, f)
	if err != nil && len(recs) == 0 {
		return nil, err
	}
	if err != nil {
		e.log.Error("list incomplete", zap.Error(err), zap.Int("read", len(recs)))
	}
	views := make([]api.View, 0, len(recs))
	for _, rec := range recs {
		v, err := b.view(ctx, e, rec)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

// Donation implements api.Backend.
func (b backend) Donation(ctx context.Context, ref string) (api.View, error) {
	e, id, err := b.find(ctx, ref)
	if err != nil {
		return api.View{}, err
	}
	return b.detail(ctx, e, id)
}

// Donate implements api.Backend.
func (b backend) Donate(ctx context.Context, r donation.Request) (api.View, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return api.View{}, err
	}
	rec, err := e.svc.Provision(ctx, r)
	if err != nil {
		return api.View{}, b.explain(err)
	}
	return b.detail(ctx, e, rec.ID)
}

// Terminate implements api.Backend. A full id that is on no record, but of which the guard holds a process,
// ends that.
func (b backend) Terminate(ctx context.Context, ref string, force bool) (api.View, error) {
	e, id, err := b.find(ctx, ref)
	if donation.CodeOf(err) == donation.CodeNotFound && e != nil {
		if s, ok := b.stray(ref); ok {
			return b.terminateStray(ctx, s, force)
		}
	}
	if err != nil {
		return api.View{}, err
	}
	if _, err := e.svc.Terminate(ctx, id, force); err != nil {
		return api.View{}, b.explain(err)
	}
	return b.detail(ctx, e, id)
}

// Restart implements api.Backend.
func (b backend) Restart(ctx context.Context, ref string) (api.View, error) {
	e, id, err := b.find(ctx, ref)
	if err != nil {
		return api.View{}, err
	}
	if _, err := e.svc.Restart(ctx, id); err != nil {
		return api.View{}, b.explain(err)
	}
	return b.detail(ctx, e, id)
}

// Retry implements api.Backend. One that runs is refused: its next death must not find a wait ended in advance.
func (b backend) Retry(ctx context.Context, ref string) (api.View, error) {
	e, id, err := b.find(ctx, ref)
	if err != nil {
		return api.View{}, err
	}
	rec, err := e.store.Get(ctx, id)
	if err != nil {
		return api.View{}, err
	}
	if v := viewOf(rec, b.d.link.orch.Observe(id), alive); v.Running && v.StopSince == nil && rec.Status.IsSupervised() {
		return api.View{}, donation.Errorf(donation.CodeInvalidState,
			"%s runs (pid %d), so there is nothing to try again; 'cadre-hostd restart %s' starts it anew", id, v.PID, id)
	}
	if _, err := e.svc.Retry(ctx, id); err != nil {
		return api.View{}, err
	}
	return b.detail(ctx, e, id)
}

// Seed implements api.Backend.
func (b backend) Seed(ctx context.Context, ref string, seed []byte) (donation.SeedResult, error) {
	e, id, err := b.find(ctx, ref)
	if err != nil {
		return donation.SeedResult{}, err
	}
	return e.svc.Seed(ctx, id, seed)
}

// Peer implements api.Backend.
func (b backend) Peer(ctx context.Context, ref string) (donation.Peer, error) {
	e, id, err := b.find(ctx, ref)
	if err != nil {
		return donation.Peer{}, err
	}
	return e.svc.Peer(ctx, id)
}

// Drain implements api.Backend. Nothing new is begun once it has returned.
func (b backend) Drain(ctx context.Context) error {
	e, err := b.engine(ctx)
	if err != nil {
		return err
	}
	e.svc.Refuse()
	b.d.setFaults(draining)
	post(b.d.drain)
	return nil
}

// explain adds what is wrong with the guard to an error that it may be the reason of.
func (b backend) explain(err error) error {
	code := donation.CodeOf(err)
	trouble := b.d.link.knownTrouble()
	if trouble == "" || code != donation.CodeUnavailable && code != donation.CodeStillStopping {
		return err
	}
	return &donation.Error{Code: code, Message: fmt.Sprintf("%v; %s", err, trouble), Err: err}
}

// Logs implements api.Backend.
func (b backend) Logs(ctx context.Context, ref string, lines int, follow bool, w io.Writer) error {
	e, id, err := b.find(ctx, ref)
	if err != nil {
		return err
	}
	rec, err := e.store.Get(ctx, id)
	if err != nil {
		return err
	}
	if !rec.HasWorkdir {
		return donation.Errorf(donation.CodeInvalidState, "%s has no output any more: it is %s, and its log was deleted with its workdir; 'cadre-hostd events %s' tells what happened", id, rec.Status, id)
	}
	out := output{path: b.logPath(id), ended: func() bool {
		rec, err := e.store.Get(ctx, id)
		return err == nil && !rec.HasWorkdir
	}}
	return out.copy(ctx, w, lines, follow)
}

// Events implements api.Backend.
func (b backend) Events(ctx context.Context, ref string, after int64, limit int) ([]donation.Event, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return nil, err
	}
	var id donation.ID
	if ref != "" {
		if id, err = e.store.Resolve(ctx, ref); err != nil {
			return nil, err
		}
	}
	return e.store.Events(ctx, id, after, limit)
}

// LastSeq implements api.Backend.
func (b backend) LastSeq(ctx context.Context) (int64, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return 0, err
	}
	return e.store.LastSeq(ctx)
}

// Changed implements api.Backend. While there is no engine the next change is that there is one.
func (b backend) Changed() <-chan struct{} {
	b.d.mu.Lock()
	e, changed := b.d.engine, b.d.changed
	b.d.mu.Unlock()
	if e != nil {
		return e.store.Changed()
	}
	return changed
}
