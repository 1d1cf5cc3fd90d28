// This file is the guard's life: it sets itself up in order, serves, and leaves the way it was asked to.

package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Bounds of the guard's own life.
const (
	// idleLinger is how long an idle guard stays, idleFirst how long it waits for its first client.
	idleLinger = time.Second
	idleFirst  = 30 * time.Second
	// stopMargin is what a stop of all nodes may take beyond the longest grace.
	stopMargin = 10 * time.Second
	// ackLinger is how long a guard that has stopped all its nodes waits for the exits to be acknowledged. Those that
	// aren't stay in the spool.
	ackLinger = time.Second
	// socketCheck is how often the guard looks whether its socket is still where clients look for it.
	socketCheck = 2 * time.Second
	// shutDownWait is how long requests in flight and watchers may take to end.
	shutDownWait = time.Second
	// slots is how many goroutines at most do slow file system work, for starts and for ends each: a bound on threads.
	slots = 4
)

// StopReason is the reason of the stops that come from the guard being told to end.
const StopReason = "guard-stop"

// Guard is one guard process. Lock order: reap, process.spooling, table.mu; logBound.mu is taken last.
type Guard struct {
	cfg    Config
	log    *zap.Logger
	hello  Hello
	groups *cgroups
	dirs   *workdirs
	spool  *spool
	logs   *logBound
	scan   scanner
	forker *forker
	table  *table

	devNull *os.File
	// reap is held while a child is waited for, and from a fork until the child runs.
	reap sync.Mutex
	// reapAgain (capacity 1) asks for another drain: a parked zombie hid other children.
	reapAgain            chan struct{}
	startSlots, endSlots chan struct{}

	// life ends when the guard leaves: what it was doing is left to the next one. closing is closed a moment
	// before, to end the streams.
	life    context.Context
	closing chan struct{}
	// tasks are all goroutines that end with life; starting are the starts in flight.
	tasks    sync.WaitGroup
	starting sync.WaitGroup
	requests atomic.Int64
	served   atomic.Bool
}

// Run runs a guard until it is told to leave. The end of ctx, SIGTERM and SIGINT stop all nodes in order first;
// SIGUSR1 hands over, leaving them running. It returns a *HeldError if there is a guard already.
//
// It changes the whole process (umask, signals, subreaper) and never changes it back.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return fmt.Errorf("guard configuration: %w", err)
	}
	if err := prepareRuntimeDir(cfg); err != nil {
		return err
	}
	dirs, err := openWorkdirs(cfg)
	if err != nil {
		return err
	}
	signals := prepareProcess(cfg.Logger)
	defer signals.stop()

	instance := newID() + newID()
	lock, err := takeLock(ctx, cfg, instance)
	if err != nil {
		return err
	}
	g, err := newGuard(cfg, dirs, instance)
	if err != nil {
		return errors.Join(err, lock.release())
	}
	return errors.Join(g.run(ctx, signals), lock.release())
}

// prepareRuntimeDir makes the runtime directory, or checks that it is nobody else's.
func prepareRuntimeDir(cfg Config) error {
	mode := os.FileMode(0o700)
	if os.Getuid() == 0 && cfg.PeerUID > 0 {
		mode = 0o711 // the peer must get to the socket
	}
	if err := os.MkdirAll(filepath.Dir(cfg.RuntimeDir), 0o755); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	if err := os.Mkdir(cfg.RuntimeDir, mode); err == nil {
		if err := os.Chmod(cfg.RuntimeDir, mode); err != nil {
			return fmt.Errorf("runtime directory: %w", err)
		}
	}
	if err := privateDir(cfg.RuntimeDir); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	return nil
}

func newGuard(cfg Config, dirs *workdirs, instance string) (*Guard, error) {
	groups, err := findCgroups(cfg)
	if err != nil {
		return nil, err
	}
	sp, err := openSpool(cfg)
	if err != nil {
		return nil, err
	}
	devNull, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	g := &Guard{
		cfg: cfg, log: cfg.Logger, groups: groups, dirs: dirs, spool: sp, devNull: devNull,
		logs: newLogBound(dirs, cfg.Logger), table: newTable(cfg.Logger), closing: make(chan struct{}),
		reapAgain: make(chan struct{}, 1), startSlots: make(chan struct{}, slots), endSlots: make(chan struct{}, slots),
		hello: Hello{
			Instance: instance, Version: cfg.Version, Protocol: Protocol, PID: os.Getpid(), BootID: bootID(), NodesDir: cfg.NodesDir,
			Root: dirs.root, UIDMin: cfg.UIDMin, UIDMax: cfg.UIDMax, Tracking: groups.tracking(), Controllers: groups.controllers(),
			MaxTTL: cfg.MaxTTL,
		},
	}
	if g.forker, err = newForker(cfg.Logger, &g.reap); err != nil {
		devNull.Close()
		return nil, err
	}
	return g, nil
}

// run serves until the guard is to leave, and leaves.
func (g *Guard) run(ctx context.Context, signals *signalSet) error {
	life, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	g.life = life
	g.tasks.Go(func() { g.reapLoop(life, signals.children) })
	g.tasks.Go(func() { g.logs.run(life) })
	g.tasks.Go(func() { g.enforceLeases(life) })
	err := g.adopt(life)
	if err == nil {
		err = g.serve(ctx, signals)
	}
	g.abandon(leave)
	return err
}

// serve answers until a reason to leave comes.
func (g *Guard) serve(ctx context.Context, signals *signalSet) error {
	listener, err := listen(g.cfg)
	if err != nil {
		return err
	}
	server := g.newServer()
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	accept := func(l *peerListener) {
		serving.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				select {
				case failed <- err:
				default: // a listener that was replaced
				}
			}
		})
	}
	accept(listener)
	g.log.Info("guard is ready", zap.String("instance", g.hello.Instance), zap.String("tracking", g.hello.Tracking),
		zap.Strings("controllers", g.hello.Controllers), zap.String("socket", listener.path))

	idle := g.idle()
	look := time.NewTicker(socketCheck)
	defer look.Stop()
	why := "idle"
	for leaving := false; !leaving; {
		select {
		case <-idle:
			leaving = g.close()
		case <-signals.handOver:
			why, leaving = "hand-over", true
		case <-signals.stopAll:
			why, leaving = StopReason, true
		case <-ctx.Done():
			why, leaving = StopReason, true
		case err = <-failed:
			why, leaving = "the socket failed", true
		case <-look.C:
			if !listener.inPlace() {
				listener = g.rebind(listener, accept)
			}
		}
	}
	g.log.Info("guard is leaving", zap.String("reason", why))
	if why == StopReason {
		g.stopAll()
	}
	g.table.mu.Lock()
	g.table.leaving, g.table.closed = true, true
	g.table.mu.Unlock()
	close(g.closing)
	// Starts in flight are short and must not be left half done; nobody can begin one any more.
	g.starting.Wait()
	err = errors.Join(err, listener.unlink(), shutDown(server))
	serving.Wait()
	return err
}

// shutDown lets the requests in flight end, for a moment.
func shutDown(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutDownWait)
	defer cancel()
	if server.Shutdown(ctx) == nil {
		return nil
	}
	return server.Close()
}

// rebind makes the socket again that somebody has removed, and closes the one that can't be reached any more.
func (g *Guard) rebind(old *peerListener, accept func(*peerListener)) *peerListener {
	l, err := listen(g.cfg)
	if err != nil {
		g.log.Error("the socket is gone and can't be made again", zap.Error(err))
		return old
	}
	g.log.Warn("the socket was gone; made again", zap.String("socket", l.path))
	accept(l)
	old.Close()
	return l
}

// stopAll stops every node and waits for their ends, but not for those that can't be killed.
func (g *Guard) stopAll() {
	t := g.table
	t.mu.Lock()
	t.leaving = true
	wait := stopMargin
	var spawns []string
	for spawn, p := range t.procs {
		spawns = append(spawns, spawn)
		wait = max(wait, p.record.Grace+stopMargin)
	}
	t.mu.Unlock()
	for _, spawn := range spawns {
		g.stop(StopRequest{Spawn: spawn, Reason: StopReason})
	}
	if !g.waitUntil(wait, func(_, alive int) bool { return alive == 0 }) {
		_, alive := t.counts()
		g.log.Error("nodes are left behind: they can't be killed", zap.Int("nodes", alive))
	}
	if t.watched() {
		g.waitUntil(ackLinger, func(known, _ int) bool { return known == 0 })
	}
}

// waitUntil waits for a condition on the numbers of known and live processes, for d at most.
func (g *Guard) waitUntil(d time.Duration, cond func(known, alive int) bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		changed := g.table.changed()
		if cond(g.table.counts()) {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return cond(g.table.counts())
		}
	}
}

// abandon ends all goroutines and leaves the rest to the next guard.
func (g *Guard) abandon(leave context.CancelFunc) {
	t := g.table
	t.mu.Lock()
	t.leaving, t.closed = true, true
	var notify []*notifySocket
	for _, p := range t.procs {
		if p.grace != nil {
			p.grace.Stop()
		}
		if p.notify != nil {
			notify = append(notify, p.notify)
		}
	}
	t.mu.Unlock()
	leave()
	for _, n := range notify {
		n.close()
	}
	g.tasks.Wait()
	g.forker.close()
	g.groups.removeParents()
	g.devNull.Close()
}
