// This file owns the connection to the guard: it watches the guard's stream, keeps the view up to date, and
// connects again whenever the stream ends.

package process

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// The pause before the guard is tried again: doubled from the first to the last, which keeps a restart of the
// guard unnoticed and a guard that is away cheap.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// errSilent is what a guard that takes a connection and says nothing gets.
var errSilent = errors.New("the guard takes connections but doesn't answer (is it stopped?)")

// Run keeps the connection until ctx ends, and returns its error.
func (o *Orchestrator) Run(ctx context.Context) error {
	defer o.guard.Close()
	defer o.renewals.close()
	pause := firstPause
	for {
		err := o.connectOnce(ctx)
		was := o.view.disconnect(err)
		if was && ctx.Err() == nil {
			pause = firstPause
			o.opts.Logger.Warn("guard connection lost", zap.Error(err))
			o.opts.OnDisconnect()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !was && pause == firstPause {
			o.opts.Logger.Info("guard not reached", zap.Error(err))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, lastPause)
	}
}

// Err returns why there is no connection to the guard; nil while there is one.
func (o *Orchestrator) Err() error { return o.view.trouble() }

// connectOnce runs one connection from its beginning to its end, and returns what ended it.
func (o *Orchestrator) connectOnce(ctx context.Context) error {
	if o.opts.Ensure != nil {
		if err := o.opts.Ensure(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The guard's first line must come as soon as any answer; after that, silence is all there is to say.
	silent := time.AfterFunc(o.opts.Config().Guard.CallTimeout.D(), func() { cancel(errSilent) })
	defer silent.Stop()
	err := o.guard.Watch(ctx, func(m guard.Message) error {
		switch {
		case ctx.Err() != nil: // silence won, or Run is leaving
			return context.Cause(ctx)
		case m.Hello != nil:
			if !silent.Stop() {
				return errSilent
			}
			o.greet(*m.Hello, m.List)
		case m.Process != nil:
			o.view.update(*m.Process)
			o.opts.OnChange(donation.ID(m.Process.Donation))
		}
		return nil
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// greet begins a connection with what the guard holds.
func (o *Orchestrator) greet(hello guard.Hello, list []guard.Process) {
	o.view.connect(hello, list)
	o.opts.Logger.Info("guard connected", zap.String("instance", hello.Instance), zap.Int("pid", hello.PID), zap.Int("processes", len(list)))
	o.opts.OnConnect()
}
