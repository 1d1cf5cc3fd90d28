// This file starts spawns: checks the request, prepares the ground, forks, and undoes everything if it fails.

package guard

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// How long a start waits for a freshly written executable that some other process still has open for writing.
const (
	busyTextWait = 50 * time.Millisecond
	busyTextStep = time.Millisecond
)

// start starts a spawn, or gives the answer that it has been given.
func (g *Guard) start(ctx context.Context, req StartRequest) (Process, error) {
	path, err := g.check(req)
	if err != nil {
		return Process{}, err
	}
	if !g.hello.Root {
		req.UID = 0 // its own user, which takes no change
	}
	p, mine, err := g.claim(req)
	if err != nil {
		return Process{}, err
	}
	if mine {
		// Not the request's context: a client that goes away must not leave half a start behind.
		err := g.launch(p, req, path)
		g.settle(p, err)
		g.starting.Done()
	}
	select {
	case <-p.started:
	case <-ctx.Done():
		return Process{}, context.Cause(ctx)
	}
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	if p.startErr != nil {
		return Process{}, p.startErr
	}
	return p.snapshot(), nil
}

// claim finds the spawn, or makes it and says that it is the caller's to launch.
func (g *Guard) claim(req StartRequest) (p *process, mine bool, err error) {
	t := g.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if answer, ok := t.answers[req.Spawn]; ok {
		return nil, false, answer
	}
	if p, ok := t.procs[req.Spawn]; ok {
		return p, false, nil
	}
	if t.leaving {
		return nil, false, &Error{Code: CodeStopping, Message: "the guard is leaving and starts nothing more"}
	}
	if other, ok := t.live[req.Donation]; ok {
		return nil, false, &Error{Code: CodeBusy, Message: fmt.Sprintf("%s of %s is still alive (%s)", other.view.Spawn, req.Donation, other.view.State)}
	}
	if t.reclaiming[req.Donation] {
		return nil, false, &Error{Code: CodeBusy, Message: fmt.Sprintf("the directory of %s is being deleted", req.Donation)}
	}
	p = newProcess(req.Spawn, req.Donation)
	t.procs[req.Spawn], t.live[req.Donation] = p, p
	g.starting.Add(1)
	return p, true, nil
}

// settle gives a launch's answer to all who wait for it, and carries out a stop that came meanwhile.
func (g *Guard) settle(p *process, err error) {
	t := g.table
	t.mu.Lock()
	if err != nil {
		p.startErr = startError(err)
		delete(t.procs, p.view.Spawn)
		delete(t.live, p.view.Donation)
		if p.startErr.Code == CodeFailed {
			t.remember(p.view.Spawn, p.startErr)
		}
		t.move(p, StateForgotten)
	}
	pending := p.pending
	close(p.started)
	t.mu.Unlock()
	if pending != nil && err == nil {
		g.stop(*pending)
	}
}

// launch does the work of a start.
func (g *Guard) launch(p *process, req StartRequest, path string) (err error) {
	g.startSlots <- struct{}{}
	defer func() { <-g.startSlots }()

	group := g.groups.plan(req.Spawn, req.Limits)
	g.table.mu.Lock()
	p.record = record{
		Spawn: req.Spawn, Donation: req.Donation, BootID: bootID(), UID: req.UID, Cgroup: group.dir, CgroupV1: group.v1,
		StopSignal: req.StopSignal, Grace: req.Grace, Notify: req.Notify, LogMax: req.LogMax, TTL: req.TTL,
	}
	g.table.mu.Unlock()
	if err := g.persist(p); err != nil {
		return err
	}
	undo := []func(){func() { g.report(p, "spool file left behind", g.spool.remove(req.Spawn)) }}
	defer func() {
		if err != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
		}
	}()

	dir, err := g.dirs.prepare(req.Donation, req.UID)
	if err != nil {
		return err
	}
	defer dir.close()
	if dir.created {
		undo = append(undo, func() { g.report(p, "workdir left behind", g.dirs.reclaim(req.Donation)) })
	}
	for _, f := range req.Files {
		if err := dir.write(f, req.UID, g.hello.Root); err != nil {
			return err
		}
	}
	log, err := g.dirs.openLog(dir.log, req.Donation, req.LogMax, true)
	if err != nil {
		return err
	}
	undo = append(undo, func() { log.file.Close() })
	if err := g.groups.create(group, req.Limits); err != nil {
		return err
	}
	undo = append(undo, func() { g.report(p, "cgroup left behind", group.remove()) })
	var notify *notifySocket
	if req.Notify {
		if notify, err = listenNotify(req.Spawn, fromNode(req.UID, group.dir), func() { g.notified(p) }); err != nil {
			return err
		}
		undo = append(undo, notify.close)
	}
	return g.forkNode(p, req, path, &launchpad{group: group, log: log, notify: notify, work: Workdir(g.cfg.NodesDir, req.Donation)})
}

// launchpad is what has been made ready for a fork.
type launchpad struct {
	group  *nodeCgroup
	log    *nodeLogFile
	notify *notifySocket
	work   string
}

func (g *Guard) forkNode(p *process, req StartRequest, path string, pad *launchpad) error {
	cgroup := -1
	if pad.group.dir != "" {
		fd, err := unix.Open(pad.group.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("the node's cgroup: %w", err)
		}
		defer unix.Close(fd)
		cgroup = fd
	}
	fork := forkRequest{
		path: path, argv: append([]string{argv0(req.Command, path)}, req.Args...), env: environment(req), dir: pad.work,
		stdin: int(g.devNull.Fd()), log: int(pad.log.file.Fd()), cgroup: cgroup, uid: req.UID,
		configure: func(pid, _ int) error { return g.configure(p, req, pad.group, pid) },
		adopt:     func(pid, pidfd int) { g.running(p, pad, pid, pidfd) },
	}
	for deadline := time.Now().Add(busyTextWait); ; {
		err := g.forker.fork(fork)
		if errors.Is(err, unix.ETXTBSY) && time.Now().Before(deadline) {
			if err := pause(g.life, busyTextStep); err == nil {
				continue
			}
		}
		return explain(err, path, req.UID)
	}
}

// configure makes the stopped child what it is to be, and puts its identity on record before it runs.
func (g *Guard) configure(p *process, req StartRequest, group *nodeCgroup, pid int) error {
	st, err := readStat(pid)
	if err != nil {
		return fmt.Errorf("identity of the node: %w", err)
	}
	controllers := g.hello.Controllers
	limits := rlimits(req.Limits, g.hello.Root, slices.Contains(controllers, "memory"), slices.Contains(controllers, "pids"))
	if err := setRlimits(pid, req.UID, limits); err != nil {
		return err
	}
	if err := setOOMScore(pid, req.Limits.OOMScoreAdj); err != nil {
		return err
	}
	if err := group.addPID(pid); err != nil {
		return err
	}
	var self unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &self); err != nil {
		return fmt.Errorf("the guard's own usage: %w", err)
	}
	g.table.mu.Lock()
	p.floorRSS = int64(self.Maxrss)
	p.record.PID, p.record.StartTime, p.record.StartedAt = pid, st.start, time.Now()
	g.table.mu.Unlock()
	return g.persist(p)
}

// running puts the child into the table; from here on its end is seen.
func (g *Guard) running(p *process, pad *launchpad, pid, pidfd int) {
	g.logs.add(pad.log)
	t := g.table
	t.mu.Lock()
	defer t.mu.Unlock()
	p.pidfd, p.group, p.log, p.notify = pidfd, pad.group, pad.log, pad.notify
	p.view.PID, p.view.StartTime, p.view.StartedAt = pid, p.record.StartTime, p.record.StartedAt
	p.tree = g.treeOf(p)
	t.byPID[pid] = p
	p.lease.begin(time.Now(), p.record.TTL)
	t.move(p, StateRunning)
}

// treeOf returns the way to the process's tree. table.mu is held.
func (g *Guard) treeOf(p *process) tree {
	if p.group.dir != "" {
		return cgroupTree{dir: p.group.dir}
	}
	return &sessionTree{
		scan: &g.scan, spawn: p.view.Spawn, uid: p.record.UID, adopted: p.view.Adopted,
		leader: procStat{pid: p.record.PID, start: p.record.StartTime},
	}
}

// argv0 is the name the child sees itself run under.
func argv0(command, path string) string {
	if command == SelfCommand {
		return "cadre-hostd"
	}
	return filepath.Base(path)
}

// environment is exactly the request's, with what the guard itself vouches for.
func environment(req StartRequest) []string {
	env := make([]string, 0, len(req.Env)+3)
	for _, v := range req.Env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case spawnVariable, donationVariable, notifyVariable:
		default:
			env = append(env, v)
		}
	}
	env = append(env, spawnVariable+"="+req.Spawn, donationVariable+"="+req.Donation)
	if req.Notify {
		env = append(env, notifyVariable+"="+notifyAddress(req.Spawn))
	}
	return env
}

// persist writes the process's record as it is now, unless it has been forgotten.
func (g *Guard) persist(p *process) error {
	p.spooling.Lock()
	defer p.spooling.Unlock()
	g.table.mu.Lock()
	r, gone := p.record, p.view.State == StateForgotten
	g.table.mu.Unlock()
	if gone {
		return nil
	}
	return g.spool.write(r)
}
