// This file takes over what an earlier guard left: spool and kernel must agree on who is who.

package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// What an exit says that no guard saw.
const (
	lostWhileRunning  = "the guard was lost"
	lostWhileStarting = "the guard was lost while starting it"
)

// adopt goes through the spool. Nobody is connected yet. It fails if this guard is short of descriptors or memory, which
// says nothing about the nodes: they are left as they are, to a guard that can follow them.
func (g *Guard) adopt(ctx context.Context) error {
	records, err := g.spool.load()
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := g.adoptOne(ctx, r); err != nil {
			return fmt.Errorf("taking over %s of %s, one of %d (raise LimitNOFILE; a guard needs up to four descriptors a node): %w",
				r.Spawn, r.Donation, len(records), err)
		}
	}
	g.clearStrays(ctx)
	return nil
}

// scarce reports whether an error says that this process is short of something.
func scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// strayWait bounds the clearing of one stray's tree.
const strayWait = 2 * time.Second

// clearStrays kills what runs in this guard's cgroups without being in its spool, which somebody must have wiped.
// Nobody could stop it, and its donation would be started a second time beside it.
func (g *Guard) clearStrays(ctx context.Context) {
	if g.groups.parent == "" {
		return
	}
	entries, err := os.ReadDir(g.groups.parent)
	if err != nil {
		g.log.Warn("the cgroups of earlier nodes can't be listed", zap.Error(err))
		return
	}
	for _, e := range entries {
		if g.table.procs[e.Name()] != nil || !e.IsDir() || !validID(e.Name()) {
			continue // nobody else has the table yet
		}
		dir := filepath.Join(g.groups.parent, e.Name())
		g.log.Warn("a node that isn't in the spool is killed", zap.String("spawn", e.Name()))
		alive := true
		for wait, begun := sweepFirst, time.Now(); alive && time.Since(begun) < strayWait; wait = nextSweep(wait) {
			if alive, err = (cgroupTree{dir: dir}).sweep(); alive && pause(ctx, wait) != nil {
				return
			}
		}
		if err := errors.Join(err, removeCgroup(dir)); err != nil {
			g.log.Error("a node that isn't in the spool is left", zap.String("spawn", e.Name()), zap.Error(err))
		}
	}
}

func (g *Guard) adoptOne(ctx context.Context, r record) error {
	p := newProcess(r.Spawn, r.Donation)
	p.record = r
	p.group = g.groups.reopen(r.Cgroup, r.CgroupV1)
	close(p.started)
	p.view = Process{
		Spawn: r.Spawn, Donation: r.Donation, State: StateRunning, BootID: r.BootID, PID: r.PID, StartTime: r.StartTime,
		StartedAt: r.StartedAt, Adopted: true, Notified: r.Notified, StopReason: r.StopReason, StopSince: r.StopSince,
	}
	t := g.table
	t.mu.Lock()
	t.procs[r.Spawn] = p
	if r.Exit != nil {
		p.view.State, p.view.Exit = StateExited, r.Exit
		t.mu.Unlock()
		g.report(p, "cgroup left behind", p.group.remove())
		return nil
	}
	if other, ok := t.live[r.Donation]; ok {
		// Can't be: a guard starts no second one. Both are followed; starts stay refused until one is gone.
		g.log.Error("two live spawns of one donation", p.fields(zap.String("other", other.view.Spawn))...)
	}
	t.live[r.Donation] = p
	p.tree = g.treeOf(p)
	t.mu.Unlock()

	pidfd, err := -1, errGone
	if r.PID != 0 {
		pidfd, err = openProcess(r.PID, r.StartTime)
	}
	switch {
	case scarce(err):
		return err
	case err != nil:
		g.adoptDead(p, err)
		return nil
	}
	t.mu.Lock()
	p.pidfd = pidfd
	p.lease.begin(time.Now(), r.TTL) // for how long nobody renewed it isn't known: one TTL from now
	t.mu.Unlock()
	return g.adoptAlive(ctx, p)
}

// adoptDead clears what is left of a spawn whose process is gone or never was. Its exit is unknown.
func (g *Guard) adoptDead(p *process, err error) {
	if !errors.Is(err, errGone) {
		g.log.Error("a node can't be identified; taken for gone", p.fields(zap.Error(err))...)
	}
	p.lostMessage = lostWhileRunning
	if p.record.PID == 0 {
		p.lostMessage = lostWhileStarting
	}
	if s, ok := p.tree.(*sessionTree); ok {
		s.leaderReaped(0) // since when isn't known, so its session's number proves nothing
	}
	g.log.Info("node was gone", p.fields(zap.String("message", p.lostMessage))...)
	g.mainEnded(p, &outcome{}, time.Now())
}

// adoptAlive follows a process that another guard started.
func (g *Guard) adoptAlive(ctx context.Context, p *process) error {
	p.lostMessage = lostWhileRunning
	r := p.record
	watch, err := watchable(p.pidfd)
	if err != nil {
		return err
	}
	log, err := g.dirs.reopenLog(r.Donation, r.LogMax)
	if scarce(err) {
		watch.Close()
		return err
	}
	if err != nil {
		g.log.Warn("the log of an adopted node isn't bounded", p.fields(zap.Error(err))...)
	} else {
		p.log = log
		g.logs.add(log)
	}
	if r.Notify {
		if p.notify, err = listenNotify(r.Spawn, fromNode(r.UID, r.Cgroup), func() { g.notified(p) }); err != nil {
			g.log.Warn("an adopted node can't notify", p.fields(zap.Error(err))...)
		}
	}
	g.log.Info("node adopted", p.fields(zap.Int("pid", r.PID))...)
	g.tasks.Go(func() { g.followAdopted(ctx, p, watch) })
	if r.StopSince.IsZero() {
		return nil
	}
	// A stop was under way: it goes on, with what is left of its grace.
	g.table.mu.Lock()
	g.table.move(p, StateStopping)
	g.table.mu.Unlock()
	g.signalStop(p, graceLeft(r.Grace, r.KillAt, time.Now()))
	return nil
}
