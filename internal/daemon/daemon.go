// Package daemon wires everything together: it opens, starts and stops the parts in order, keeps the
// configuration, and is the backend of the admin surface. It decides nothing about nodes.
//
// This file holds Run and the order of its steps.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/store"
)

// ConfigError says that the configuration can't be read or has mistakes; *config.Error lists them.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with it.
func (e *ConfigError) Unwrap() error { return e.Err }

// LockedError says that another daemon holds the state directory.
type LockedError = store.LockedError

// The values of Options.GuardMode.
const (
	// GuardAuto: the daemon starts a guard when none holds the lock.
	GuardAuto = "auto"
	// GuardExternal: somebody else does, such as systemd.
	GuardExternal = "external"
)

// Options say where a daemon lives. All paths are absolute.
type Options struct {
	// StateDir holds the database and its lock, RuntimeDir the sockets, NodesDir what nodes write.
	StateDir, NodesDir, RuntimeDir string
	// ConfigPath is the configuration file. If ConfigExplicit it must exist; "" means the defaults.
	ConfigPath     string
	ConfigExplicit bool
	// GuardMode is GuardAuto or GuardExternal; GuardSocket is where the guard listens.
	GuardMode   string
	GuardSocket string
	// Drain makes the end of Run's context, or of its terminal, stop every node in order first. Without it they live on.
	Drain bool
	// Version is shown to clients and in the log.
	Version string
	// Log takes what the daemon has to say; Level, if not nil, follows the configuration's log.level.
	Log   *zap.Logger
	Level *zap.AtomicLevel
}

// caretakerRetry is how often a caretaker looks whether its fault is mended.
const caretakerRetry = 2 * time.Second

// daemon is one run.
type daemon struct {
	opts     Options
	log      *zap.Logger
	started  time.Time
	settings *settings
	link     *link
	endpoint *api.Endpoint
	// reload has a token when somebody asked for the configuration to be read again, drain when every node is to be
	// stopped; capacity 1 each.
	reload chan os.Signal
	drain  chan struct{}
	// hungUp tells whether the token in reload means that the terminal has gone.
	hungUp func() bool

	mu sync.Mutex
	// mode, faults and engine change together, and changed is closed then; guarded by mu.
	mode    mode
	faults  []api.Fault
	engine  *engine
	changed chan struct{}
}

// mode is what the daemon can do now.
type mode string

const (
	starting  mode = "starting"
	running   mode = "running"
	caretaker mode = "caretaker"
	draining  mode = "draining"
	stopping  mode = "stopping"
)

// Run is the daemon: it returns nil once ctx has ended and everything is closed; nodes live on. If it can't
// start, and no node is alive that would be left alone, the error says why: a *LockedError for a second daemon
// on the state directory, a *ConfigError, a *store.VersionError or store.ErrCorrupt for the database. If nodes are alive it stays as their caretaker until that is mended.
func Run(ctx context.Context, o Options) (err error) {
	lock, err := store.Lock(o.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	d := &daemon{opts: o, log: o.Log, started: time.Now(), mode: starting, changed: make(chan struct{}), reload: make(chan os.Signal, 1), drain: make(chan struct{}, 1)}
	d.settings = newSettings(o)
	d.link = newLink(d)
	d.hungUp = hangUps()
	signal.Notify(d.reload, syscall.SIGHUP)
	defer signal.Stop(d.reload)

	if d.endpoint, err = api.Open(filepath.Join(o.RuntimeDir, "admin.sock"), api.NewServer(backend{d}, o.Log), o.Log); err != nil {
		return fmt.Errorf("open the admin socket: %w", err)
	}
	defer d.link.close()
	err = d.live(ctx)
	// Nobody can ask for more; what is being waited for has been told so by now.
	return errors.Join(err, d.endpoint.Close(context.WithoutCancel(ctx)))
}

// live is everything between the opening and the closing of the admin socket.
func (d *daemon) live(ctx context.Context) error {
	e, err := d.assemble(ctx)
	if e == nil {
		d.set(stopping, nil)
		return err
	}
	d.link.tell(e)
	d.link.start()
	e.start()
	// A client that comes right after the start finds a daemon that can do what it is asked for.
	d.link.awaitFirst(ctx)
	d.set(running, e)
	d.log.Info("running", zap.String("version", d.opts.Version), zap.Int("pid", os.Getpid()), zap.String("state_dir", d.opts.StateDir))
	e.note(ctx, "daemon.started", fmt.Sprintf("version %s, pid %d", d.opts.Version, os.Getpid()))

	for {
		select {
		case <-d.reload:
			if d.hungUp() {
				d.log.Info("the terminal has gone")
				return d.quit(ctx, e)
			}
			d.reloadSettings(e)
		case <-d.drain:
			d.drainNodes(ctx, e)
			return d.leave(e)
		case <-ctx.Done():
			return d.quit(ctx, e)
		}
	}
}

// quit leaves the way that the owner wants a told end to be.
func (d *daemon) quit(ctx context.Context, e *engine) error {
	if d.opts.Drain {
		d.drainNodes(context.WithoutCancel(ctx), e)
	}
	return d.leave(e)
}

// leave ends the work. Nodes that run live on, and their leases are left as they are.
func (d *daemon) leave(e *engine) error {
	nodes := d.link.alive()
	d.log.Info("stopping", zap.Int("nodes_that_live_on", nodes))
	d.set(stopping, nil)
	ctx := context.Background()
	e.note(ctx, "daemon.stopped", fmt.Sprintf("%d nodes live on", nodes))
	d.link.leases.save(ctx)
	d.link.tell(nil)
	return e.close()
}

// assemble builds the engine. While that can't be done and nodes are alive it is their caretaker and tries
// again; nil if ctx ended or the terminal went meanwhile, or with the error if no node needs it.
func (d *daemon) assemble(ctx context.Context) (*engine, error) {
	said := ""
	for {
		e, fault := d.tryAssemble(ctx)
		if fault == nil {
			return e, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if said == "" && !d.link.holdsNodes(ctx) {
			return nil, fault.err
		}
		d.setFaults(caretaker, fault.asFault())
		if said != fault.err.Error() {
			said = fault.err.Error()
			d.log.Error("caretaker: nodes are kept, nothing is decided", zap.String("fault", fault.code), zap.Error(fault.err))
		}
		timer := time.NewTimer(caretakerRetry)
		select {
		case <-timer.C:
		case <-d.reload:
			if d.hungUp() {
				return nil, nil
			}
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// fault is what keeps the daemon from its work.
type fault struct {
	code string
	err  error
}

func (f *fault) asFault() api.Fault {
	return api.Fault{Code: f.code, Message: f.err.Error()}
}

// tryAssemble reads the configuration and opens the database.
func (d *daemon) tryAssemble(ctx context.Context) (*engine, *fault) {
	if err := d.settings.load(); err != nil {
		return nil, &fault{"configuration", &ConfigError{err}}
	}
	ports := d.settings.current().Ports.Range
	s, err := store.Open(ctx, d.opts.StateDir, store.Options{PortFirst: ports.First, PortLast: ports.Last})
	if err != nil {
		return nil, &fault{"database", err}
	}
	return newEngine(d, s), nil
}

// reloadSettings takes over a changed configuration, or keeps the old one and says what is wrong with the new.
func (d *daemon) reloadSettings(e *engine) {
	before := d.settings.current()
	if err := d.settings.load(); err != nil {
		d.log.Error("configuration not taken over, the former holds", zap.Error(err))
		d.setFaults(running, api.Fault{Code: "configuration", Message: fmt.Sprintf(
			"the changed configuration isn't in force, the former one is: %v", err)})
		return
	}
	d.setFaults(running)
	now := d.settings.current()
	d.log.Info("configuration taken over", zap.Strings("templates", now.TemplateNames()))
	if now.Supervision != before.Supervision || now.Ports != before.Ports {
		d.log.Warn("changes of [supervision] and [ports] take effect when the daemon starts again; nodes don't notice that")
	}
	d.link.leases.addAll()
	e.sup.Sweep()
}

func (d *daemon) set(m mode, e *engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine = e
	d.turn(m, nil)
}

func (d *daemon) setFaults(m mode, faults ...api.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn(m, faults)
}

// turn changes mode and faults and wakes who waits for that; mu is held.
func (d *daemon) turn(m mode, faults []api.Fault) {
	d.mode, d.faults = m, faults
	close(d.changed)
	d.changed = make(chan struct{})
}

// look returns the mode with its faults, and the engine, nil if there is none.
func (d *daemon) look() (mode, []api.Fault, *engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode, d.faults, d.engine
}

// settle waits for the end of the start, or of ctx.
func (d *daemon) settle(ctx context.Context) {
	for {
		d.mu.Lock()
		m, changed := d.mode, d.changed
		d.mu.Unlock()
		if m != starting {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
