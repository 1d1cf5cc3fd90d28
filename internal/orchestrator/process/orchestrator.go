// Package process runs nodes as processes of this machine, through the guard. It implements
// donation.Orchestrator and decides nothing: it renders, asks the guard, and keeps in memory what the guard
// says of its processes.
package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
	"github.com/serfab/cadre-hostd/internal/orchestrator"
)

// client is what is asked of the guard; *guard.Client answers.
type client interface {
	Hello(ctx context.Context) (guard.Hello, error)
	Start(ctx context.Context, req guard.StartRequest) (guard.Process, error)
	Stop(ctx context.Context, req guard.StopRequest) (guard.StopResponse, error)
	Ack(ctx context.Context, spawns ...string) error
	Reclaim(ctx context.Context, donation string) error
	Renew(ctx context.Context, leases ...guard.Lease) (gone []string, err error)
	Ready(ctx context.Context, req guard.ReadyRequest) (bool, error)
	Watch(ctx context.Context, each func(guard.Message) error) error
	Close()
}

// Options are an Orchestrator's surroundings.
type Options struct {
	// Socket is the guard's.
	Socket string
	// Config returns the configuration as it is now; a reload may swap it between two calls.
	Config func() *config.Config
	Logger *zap.Logger
	// Ensure, if set, makes sure that there is a guard; it is called before each attempt to connect. An error
	// ends the attempt.
	Ensure func(context.Context) error
	// OnChange is told of each process that the guard says has changed, OnConnect of a connection once its
	// first list is in the view, OnDisconnect of its end. They run on the goroutine that reads the guard's
	// stream and must return soon; nil is allowed.
	OnChange     func(donation.ID)
	OnConnect    func()
	OnDisconnect func()
}

// Orchestrator implements donation.Orchestrator on a guard. Run must be running for it to know anything.
type Orchestrator struct {
	opts  Options
	guard client
	view  *view
	// renewals are those that wait for the next request.
	renewals renewer
}

var _ donation.Orchestrator = (*Orchestrator)(nil)

// New returns an Orchestrator that isn't connected yet.
func New(opts Options) *Orchestrator {
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.OnChange == nil {
		opts.OnChange = func(donation.ID) {}
	}
	if opts.OnConnect == nil {
		opts.OnConnect = func() {}
	}
	if opts.OnDisconnect == nil {
		opts.OnDisconnect = func() {}
	}
	return &Orchestrator{opts: opts, guard: guard.NewClient(opts.Socket), view: newView()}
}

// Start implements donation.Orchestrator. An answer counts only within one connection of the stream: if that
// broke meanwhile, the error is indefinite and the same spawn is asked for again, so that nobody learns
// of a process that Observe doesn't show.
func (o *Orchestrator) Start(ctx context.Context, l donation.Launch) (donation.Process, error) {
	hello, ok := o.view.hello()
	if !ok {
		return donation.Process{}, fmt.Errorf("start %s: %w", l.Spawn.ID, donation.ErrDisconnected)
	}
	req, err := o.request(l, hello)
	if err != nil {
		// It may run already, started before the template was spoilt; then that is the answer.
		if p, ok := o.view.find(l.Donation, l.Spawn.ID); ok {
			return toProcess(p), nil
		}
		return donation.Process{}, notRespawnable(err)
	}
	ticket := o.view.beginStart()
	defer o.view.endStart()
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	p, err := o.guard.Start(ctx, req)
	if err != nil {
		return donation.Process{}, startError(l.Spawn.ID, err)
	}
	if !o.view.started(ticket, p) {
		return donation.Process{}, fmt.Errorf("start %s: the connection was lost meanwhile: %w", l.Spawn.ID, donation.ErrDisconnected)
	}
	return toProcess(heard(p)), nil
}

// startError says in the domain's terms whether anything was started.
func startError(spawn donation.SpawnID, err error) error {
	var refusal *guard.Error
	if !errors.As(err, &refusal) {
		return fmt.Errorf("start %s: %w", spawn, unanswered{err})
	}
	switch refusal.Code {
	case guard.CodeBusy:
		return fmt.Errorf("start %s: %w: %w", spawn, donation.ErrBusy, refusal)
	case guard.CodeTransient, guard.CodeStopping:
		return fmt.Errorf("start %s: %w: %w", spawn, donation.ErrTransient, refusal)
	case guard.CodeFailed, guard.CodeRefused, guard.CodeInvalid:
		return &donation.StartError{Message: refusal.Message}
	default:
		// A code of a newer guard: nobody here knows what it says about the spawn.
		return fmt.Errorf("start %s: %w", spawn, refusal)
	}
}

// unanswered is what came instead of the guard's answer; it is donation.ErrDisconnected in the guard client's
// words.
type unanswered struct{ error }

func (u unanswered) Is(target error) bool { return target == donation.ErrDisconnected }

func (u unanswered) Unwrap() error { return u.error }

// Stop implements donation.Orchestrator.
func (o *Orchestrator) Stop(ctx context.Context, spawn donation.SpawnID, reason donation.Reason, force bool) error {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	_, err := o.guard.Stop(ctx, guard.StopRequest{Spawn: string(spawn), Reason: string(reason), Force: force})
	return callError("stop "+string(spawn), err)
}

// Ack implements donation.Orchestrator.
func (o *Orchestrator) Ack(ctx context.Context, spawns ...donation.SpawnID) error {
	if len(spawns) == 0 {
		return nil
	}
	ids := make([]string, len(spawns))
	for i, s := range spawns {
		ids[i] = string(s)
	}
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	return callError("acknowledge exits", o.guard.Ack(ctx, ids...))
}

// Reclaim implements donation.Orchestrator.
func (o *Orchestrator) Reclaim(ctx context.Context, id donation.ID) error {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	err := o.guard.Reclaim(ctx, string(id))
	var refusal *guard.Error
	if errors.As(err, &refusal) && refusal.Code == guard.CodeBusy {
		return fmt.Errorf("reclaim %s: %w: %w", id, donation.ErrBusy, refusal)
	}
	return callError("reclaim "+string(id), err)
}

// callError names the call, and tells a guard's refusal from no answer.
func callError(what string, err error) error {
	var refusal *guard.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return fmt.Errorf("%s: %w", what, err)
	default:
		return fmt.Errorf("%s: %w", what, unanswered{err})
	}
}

// bounded gives one call to the guard the configured time.
func (o *Orchestrator) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := o.opts.Config().Guard.CallTimeout.D()
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// Observe implements donation.Orchestrator.
func (o *Orchestrator) Observe(id donation.ID) donation.Observation { return o.view.observe(id) }

// Processes returns every process that the guard holds, of whatever donation; nil while disconnected.
func (o *Orchestrator) Processes() []donation.Process { return o.view.processes() }

// Hello returns what the connected guard says of itself; false while disconnected.
func (o *Orchestrator) Hello() (guard.Hello, bool) { return o.view.hello() }

// Ping asks the guard for a sign of life now, within the configured time for a call. The stream staying open is
// none: a stopped guard keeps it.
func (o *Orchestrator) Ping(ctx context.Context) error {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	_, err := o.guard.Hello(ctx)
	return callError("ask the guard", err)
}

// LogPath returns where the donation's node writes its output; empty if no guard has been seen yet.
func (o *Orchestrator) LogPath(id donation.ID) string {
	if h := o.view.lastHello(); h.NodesDir != "" {
		return guard.NodeLog(h.NodesDir, string(id))
	}
	return ""
}

// UIDs implements donation.Orchestrator.
func (o *Orchestrator) UIDs() donation.UIDRange {
	if h, ok := o.view.hello(); ok && h.Root {
		return donation.UIDRange{Min: h.UIDMin, Max: h.UIDMax}
	}
	return donation.UIDRange{}
}

// PortFree implements donation.Orchestrator.
func (o *Orchestrator) PortFree(port int) bool { return orchestrator.PortFree(port) }

// readyTimeout bounds one look at a node's own port: a node that takes longer to answer isn't ready.
const readyTimeout = time.Second
