// This file drives the measured side from outside, as any client would: a daemon on a scratch directory, its guard, and
// nodes that are killed.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

const (
	// clients is how many donations are asked for at a time.
	clients = 32
	// patience bounds each wait for the daemon; a step that takes longer is a failure, not a measurement.
	patience = 20 * time.Second
	// look is the pause between two looks where there is no event.
	look = 5 * time.Millisecond
)

// settings let a node die as often as the benchmark wants, and run the smallest of programs.
const settings = `
[supervision]
max_attempts = 1000000
backoff_base = "1us"
backoff_cap = "1us"

[log]
level = "warn"

[template.idle]
command = "sleep"
args = ["infinity"]
stop = { grace = "0s" }
`

// host is a daemon with its guard and nodes.
type host struct {
	daemon *exec.Cmd
	ended  chan struct{} // closed once the daemon has been waited for
	log    string
	guard  int
	// guardSocket is where the guard listens.
	guardSocket string
	version     string
	client      *api.Client

	nodes []*node
	next  int // the node whose turn it is to die

	cancel context.CancelFunc // ends the stream of events
	follow sync.WaitGroup
	// running gets each spawn that the daemon has put on record as running.
	running chan donation.Event
}

// node is one donation and the process that it had when last looked at.
type node struct {
	id    donation.ID
	pid   int
	spawn string
}

// startHost starts a daemon in dir, which it makes, and waits for its guard.
func startHost(ctx context.Context, binary, dir string) (_ *host, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	h := &host{log: filepath.Join(dir, "daemon.log"), ended: make(chan struct{}), running: make(chan donation.Event, 4096)}
	log, err := os.Create(h.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	state := filepath.Join(dir, "s")
	h.daemon = exec.Command(binary, "run", "--state-dir", state, "--runtime-dir", filepath.Join(dir, "r"), "--config", config)
	h.daemon.Stdout, h.daemon.Stderr = log, log
	// A process group of its own: Ctrl-C is for the benchmark, which stops the daemon itself.
	h.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := h.daemon.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w; build it with 'make build'", binary, err)
	}
	go func() {
		_ = h.daemon.Wait() // stop asks how it went
		close(h.ended)
	}()
	h.guardSocket = filepath.Join(dir, "r", "guard.sock")
	h.client = api.NewClient(filepath.Join(dir, "r", "admin.sock"))
	defer func() {
		if err != nil {
			err = errors.Join(err, h.stop())
		}
	}()
	if err := h.awaitGuard(ctx); err != nil {
		return nil, err
	}
	h.followEvents()
	return h, nil
}

// awaitGuard waits until the daemon answers and has its guard.
func (h *host) awaitGuard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		o, err := h.client.Overview(ctx)
		if err == nil && o.Guard.State == "connected" && o.Guard.Instance != "" {
			h.guard, h.version = o.Guard.PID, o.Version
			return nil
		}
		select {
		case <-time.After(look):
		case <-h.ended:
			return fmt.Errorf("the daemon ended at its start: %s", h.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("the daemon is not ready: %w (%v): %s", context.Cause(ctx), err, h.lastWords())
		}
	}
}

// lastWords are the end of the daemon's log.
func (h *host) lastWords() string {
	b, err := os.ReadFile(h.log)
	if err != nil {
		return err.Error()
	}
	const enough = 1000
	return string(b[max(0, len(b)-enough):])
}

// followEvents begins to pass on which spawns run.
func (h *host) followEvents() {
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	h.follow.Go(func() {
		defer close(h.running)
		// It ends when stop cancels it or the daemon leaves: the reader sees the channel closed.
		_ = h.client.FollowEvents(ctx, "", 0, patience, func(e donation.Event) error {
			if e.Kind != "spawn.running" {
				return nil
			}
			select {
			case h.running <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
}

// awaitRunning waits for the next spawn of the donation that isn't the one known.
func (h *host) awaitRunning(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case e, ok := <-h.running:
			if !ok {
				return fmt.Errorf("the daemon has left: %s", h.lastWords())
			}
			if e.Donation == n.id && string(e.Spawn) != n.spawn {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%s is not back after its death: %w", n.id, context.Cause(ctx))
		}
	}
}

// grow donates until there are total nodes.
func (h *host) grow(ctx context.Context, total int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	made := make(chan *node)
	turns := make(chan struct{}, clients)
	var asking sync.WaitGroup
	missing := total - len(h.nodes)
	asking.Go(func() {
		for range missing {
			select {
			case turns <- struct{}{}:
			case <-ctx.Done():
				return
			}
			asking.Go(func() {
				defer func() { <-turns }()
				v, err := h.client.Donate(ctx, donation.Request{Template: "idle"})
				if err != nil {
					cancel(fmt.Errorf("donate: %w", err))
					return
				}
				select {
				case made <- &node{id: v.ID, pid: v.PID, spawn: v.Spawn}:
				case <-ctx.Done():
				}
			})
		}
	})
	defer asking.Wait()
	for len(h.nodes) < total {
		select {
		case n := <-made:
			h.nodes = append(h.nodes, n)
		case <-h.running: // old news: these are on record
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// death is one measured death.
type death struct {
	// started is from the signal until the guard had the new process, seen until a client heard that it is on record.
	started, seen time.Duration
}

// kill kills the next node and waits for its successor.
func (h *host) kill(ctx context.Context) (death, error) {
	n := h.nodes[h.next%len(h.nodes)]
	h.next++
	killed := time.Now()
	if err := syscall.Kill(n.pid, syscall.SIGKILL); err != nil {
		return death{}, fmt.Errorf("kill node %d of %s: %w", n.pid, n.id, err)
	}
	if err := h.awaitRunning(ctx, n); err != nil {
		return death{}, err
	}
	d := death{seen: time.Since(killed)}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := h.client.Donation(ctx, string(n.id))
	if err != nil {
		return death{}, fmt.Errorf("look at %s: %w", n.id, err)
	}
	if !v.Running || v.StartedAt == nil || v.PID == n.pid {
		return death{}, fmt.Errorf("%s is on record as running, but its process is not: %s %s", n.id, v.Status, v.Message)
	}
	n.pid, n.spawn = v.PID, v.Spawn
	d.started = v.StartedAt.Sub(killed)
	return d, nil
}

// stop ends daemon, guard and nodes, and says if something is left.
func (h *host) stop() error {
	var errs []error
	if h.cancel != nil {
		h.cancel()
		h.follow.Wait()
	}
	if h.guard == 0 {
		if o, err := h.client.Overview(context.Background()); err == nil {
			h.guard = o.Guard.PID
		}
	}
	h.client.Close()
	// The daemon first: it would start another guard.
	_ = h.daemon.Process.Signal(syscall.SIGTERM)
	if !h.within(h.ended) {
		errs = append(errs, fmt.Errorf("the daemon (pid %d) did not stop and was killed", h.daemon.Process.Pid), h.daemon.Process.Kill())
	}
	if h.guard == 0 {
		return errors.Join(errs...)
	}
	g, err := os.FindProcess(h.guard) // holds a pidfd: nobody else is ever signalled
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	// A guard that is told to end stops its nodes first.
	for deadline := time.Now().Add(patience); g.Signal(syscall.SIGTERM) == nil; {
		if time.Now().After(deadline) {
			return errors.Join(append(errs, fmt.Errorf("the guard (pid %d) is still stopping its nodes", h.guard))...)
		}
		time.Sleep(look)
	}
	return errors.Join(errs...)
}

// within waits for done, as long as patience lasts.
func (h *host) within(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}
