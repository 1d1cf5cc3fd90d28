// This file holds the link to the guard: who starts one, whether it answers, and whom its news concern.

package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
	"github.com/serfab/cadre-hostd/internal/orchestrator/process"
	"github.com/serfab/cadre-hostd/internal/supervisor"
)

const (
	// signOfLife is how long a guard may take to answer before it counts as silent.
	signOfLife = time.Second
	// guardCheck is how often the guard is asked for a sign of life.
	guardCheck = time.Second
	// guardStart is how long a guard may take from its start to its first answer.
	guardStart = 10 * time.Second
	// self is this very binary, also after an upgrade has replaced the file it was started from.
	self = "/proc/self/exe"
)

// The values of api.GuardState.State.
const (
	guardConnected = "connected"
	guardSilent    = "silent"
	guardAbsent    = "absent"
)

// link owns the connection to the guard, from start to close.
type link struct {
	d    *daemon
	orch *process.Orchestrator
	// dir is the guard's runtime directory.
	dir string
	// told is who hears of changes; nil before there is an engine.
	told   atomic.Pointer[supervisor.Supervisor]
	leases *leases

	begin   sync.Once
	cancel  context.CancelFunc
	running sync.WaitGroup
	// renewing ends before running does, while renewals can still be answered.
	endLeases context.CancelFunc
	renewing  sync.WaitGroup
	// connected has a token after a connection, failed after a guard that could not be started; capacity 1 each.
	connected, failed chan struct{}

	mu sync.Mutex
	// last is the guard's state at the last check, trouble what to say about it; guarded by mu.
	last    string
	trouble string
}

func newLink(d *daemon) *link {
	l := &link{d: d, dir: filepath.Dir(d.opts.GuardSocket), connected: make(chan struct{}, 1), failed: make(chan struct{}, 1), last: guardConnected}
	l.leases = newLeases(l)
	l.orch = process.New(process.Options{
		Socket: d.opts.GuardSocket,
		Config: func() *config.Config { return d.settings.current() },
		Logger: d.log,
		Ensure: l.ensure,
		OnChange: func(id donation.ID) {
			l.leases.add(id)
			if sup := l.told.Load(); sup != nil {
				sup.Add(id)
			}
		},
		OnConnect: func() {
			l.leases.addAll()
			if sup := l.told.Load(); sup != nil {
				sup.Sweep()
			}
			post(l.connected)
		},
	})
	return l
}

// post leaves a token unless there is one.
func post(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tell names the engine that hears of changes from now on; its supervisor sweeps when it starts, so nothing is
// missed. With nil nobody hears of any.
func (l *link) tell(e *engine) {
	if e == nil {
		l.told.Store(nil)
	} else {
		l.told.Store(e.sup)
	}
	l.leases.tell(e)
}

// start begins to connect and to check; once.
func (l *link) start() {
	l.begin.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		l.cancel = cancel
		l.running.Go(func() { _ = l.orch.Run(ctx) }) // its error is that of ctx
		l.running.Go(func() { l.watch(ctx) })
		renewals, endLeases := context.WithCancel(ctx)
		l.endLeases = endLeases
		l.renewing.Go(func() { l.leases.run(renewals) })
	})
}

// close ends the connection. The guard lives on.
func (l *link) close() {
	l.begin.Do(func() {}) // a link that never started won't
	if l.cancel != nil {
		l.endLeases()
		l.renewing.Wait()
		l.cancel()
	}
	l.running.Wait()
}

// ensure makes sure that a guard runs, if that is the daemon's to do. One that holds its lock is never
// replaced, whether it answers or not.
func (l *link) ensure(ctx context.Context) error {
	if l.d.opts.GuardMode != GuardAuto {
		return nil
	}
	if _, held, err := guard.Holder(l.dir); held || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, guardStart, fmt.Errorf("no answer within %s", guardStart))
	defer cancel()
	hello, err := guard.SpawnDetached(ctx, l.dir, self, []string{
		"guard", "--runtime-dir", l.dir, "--nodes-dir", l.d.opts.NodesDir, "--exit-when-idle", "--log-format", "json",
	})
	if err != nil {
		post(l.failed)
		return err
	}
	l.d.log.Info("guard started", zap.Int("pid", hello.PID), zap.String("instance", hello.Instance), zap.String("log", guard.LogPath(l.dir)))
	return nil
}

// holdsNodes reports whether nodes are alive that would be left alone if the daemon left now. A guard that
// can't be asked counts as one that holds some.
func (l *link) holdsNodes(ctx context.Context) bool {
	if _, held, err := guard.Holder(l.dir); err == nil && !held && !guard.Spooled(l.dir) {
		return false
	}
	l.start()
	timer := time.NewTimer(l.d.settings.current().Guard.CallTimeout.D())
	defer timer.Stop()
	select {
	case <-l.connected:
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
	for _, p := range l.orch.Processes() {
		if p.State != donation.ProcessExited {
			return true
		}
	}
	return false
}

// awaitFirst waits for the first connection, as long as there is hope for one soon.
func (l *link) awaitFirst(ctx context.Context) {
	patience := guardStart
	if _, held, _ := guard.Holder(l.dir); held || l.d.opts.GuardMode != GuardAuto {
		patience = signOfLife
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.connected:
	case <-l.failed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// state asks for a sign of life and says what is wrong, "" if nothing is.
func (l *link) state(ctx context.Context) (api.GuardState, string) {
	ctx, cancel := context.WithTimeoutCause(ctx, signOfLife, fmt.Errorf("no answer within %s", signOfLife))
	defer cancel()
	hello, connected := l.orch.Hello()
	err := l.orch.Ping(ctx)
	if connected {
		st := api.GuardState{
			State: guardConnected, PID: hello.PID, Instance: hello.Instance, Version: hello.Version,
			Tracking: hello.Tracking, Root: hello.Root, Processes: l.alive(),
		}
		if err != nil {
			st.State = guardSilent
			return st, silence(hello.PID, err)
		}
		return st, ""
	}
	pid, held, holderErr := guard.Holder(l.dir)
	switch {
	case held && err == nil:
		return api.GuardState{State: guardConnected, PID: pid}, "" // the stream is about to follow
	case held:
		return api.GuardState{State: guardSilent, PID: pid}, silence(pid, err)
	}
	return api.GuardState{State: guardAbsent}, l.absence(errors.Join(l.orch.Err(), holderErr))
}

func (l *link) alive() int {
	n := 0
	for _, p := range l.orch.Processes() {
		if p.State != donation.ProcessExited {
			n++
		}
	}
	return n
}

func silence(pid int, err error) string {
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		return refusal.Error()
	}
	return fmt.Sprintf("the guard (pid %d) holds its lock but doesn't answer, so no node can be started or stopped; none is lost. "+
		"If it is stopped, continue it (kill -CONT %d); no other is started beside it", pid, pid)
}

func (l *link) absence(err error) string {
	remedy := "it is started again by itself; what keeps it from that is in " + guard.LogPath(l.dir)
	if l.d.opts.GuardMode == GuardExternal {
		remedy = "start it where it is kept (for example: systemctl start cadre-hostd-guard)"
	}
	return fmt.Sprintf("no guard runs, so nothing can be started or stopped and no death is seen; nodes that run live on: %s (%v)", remedy, err)
}

// watch checks the guard and logs when its state changes.
func (l *link) watch(ctx context.Context) {
	ticker := time.NewTicker(guardCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.check(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (l *link) check(ctx context.Context) {
	st, trouble := l.state(ctx)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	changed := st.State != l.last
	l.last, l.trouble = st.State, trouble
	l.mu.Unlock()
	switch {
	case changed && trouble != "":
		l.d.log.Error("guard "+st.State, zap.Int("pid", st.PID), zap.String("trouble", trouble))
	case changed:
		l.d.log.Info("guard answers", zap.Int("pid", st.PID))
	}
}

// knownTrouble is what the last check found, "" if nothing.
func (l *link) knownTrouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}
