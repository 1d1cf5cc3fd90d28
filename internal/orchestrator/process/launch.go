// This file turns a launch into what the guard is asked for, and checks beforehand that it can.

package process

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
	"github.com/serfab/cadre-hostd/internal/orchestrator"
)

// Plan implements donation.Orchestrator.
func (o *Orchestrator) Plan(template string) (donation.Plan, error) {
	t, err := o.template(template)
	if err != nil {
		return donation.Plan{}, err
	}
	return orchestrator.PlanOf(t), nil
}

// template finds a template in the configuration of now.
func (o *Orchestrator) template(name string) (*config.Template, error) {
	cfg := o.opts.Config()
	if t, ok := cfg.Templates[name]; ok {
		return t, nil
	}
	return nil, donation.Errorf(donation.CodeUnknownTemplate,
		"template %q isn't configured; there are: %s (or add [template.%s] to the configuration)",
		name, strings.Join(cfg.TemplateNames(), ", "), name)
}

// Check implements donation.Orchestrator.
func (o *Orchestrator) Check(_ context.Context, l donation.Launch) error {
	hello, ok := o.view.hello()
	if !ok {
		return donation.ErrDisconnected
	}
	if _, err := o.request(l, hello); err != nil {
		return notRespawnable(err)
	}
	if o.view.alive(l.Donation) {
		return nil // its ports are its own; the guard says busy if it must go first
	}
	return orchestrator.CheckPorts(l.Ports)
}

// notRespawnable says that a launch can't be rendered now; nothing was asked of the guard.
func notRespawnable(err error) error {
	return &donation.BlockedError{Kind: donation.BlockTemplate, Message: err.Error()}
}

// request renders a launch for this guard.
func (o *Orchestrator) request(l donation.Launch, hello guard.Hello) (guard.StartRequest, error) {
	spec, uid, err := o.spec(l, hello)
	if err != nil {
		return guard.StartRequest{}, err
	}
	req := guard.StartRequest{
		Spawn:    string(l.Spawn.ID),
		Donation: string(l.Donation),
		UID:      uid,
		Command:  spec.Command,
		Args:     spec.Args,
		Env:      spec.Env,
		Limits: guard.Limits{
			Memory: int64(spec.Limits.Memory), CPU: spec.Limits.CPU,
			Pids: spec.Limits.Pids, NoFile: spec.Limits.NoFile,
		},
		StopSignal: spec.StopSignal,
		Grace:      spec.Grace,
		Notify:     spec.Ready.Notify,
		LogMax:     spec.LogMax,
		TTL:        spec.TTL,
	}
	for _, f := range spec.Files {
		req.Files = append(req.Files, guard.File{Path: f.Path, Content: f.Content, Mode: f.Mode})
	}
	return req, nil
}

// spec renders a launch and says which user it runs as: 0 for the guard's own.
func (o *Orchestrator) spec(l donation.Launch, hello guard.Hello) (orchestrator.Spec, uint32, error) {
	t, err := o.template(l.Request.Template)
	if err != nil {
		return orchestrator.Spec{}, 0, err
	}
	uid := l.UID
	if t.User != "" {
		if uid, err = userOf(t, hello); err != nil {
			return orchestrator.Spec{}, 0, err
		}
	}
	cfg := o.opts.Config()
	spec, err := orchestrator.Render(t, l, uid, guard.Workdir(hello.NodesDir, string(l.Donation)), cfg.Output)
	if err != nil {
		return orchestrator.Spec{}, 0, err
	}
	spec.TTL = cfg.TTLOf(t.Name)
	return spec, uid, CheckTTL(spec.TTL, hello.MaxTTL)
}

// CheckTTL says which of the guard's rules a lease breaks, where longest is its max_ttl; nil if none.
func CheckTTL(ttl, longest time.Duration) error {
	switch {
	case longest == 0 || ttl > 0 && ttl <= longest:
		return nil
	case ttl == 0:
		return fmt.Errorf("lease.ttl is 0, but this guard starts no node without a lease; set it to %s at most, or change the guard's max_ttl", longest)
	default:
		return fmt.Errorf("lease.ttl %s is longer than the %s that this guard allows; lower it, or raise the guard's max_ttl", ttl, longest)
	}
}

// userOf finds the uid of the template's user.
func userOf(t *config.Template, hello guard.Hello) (uint32, error) {
	id := t.User
	if _, err := strconv.ParseUint(id, 10, 32); err != nil {
		u, err := user.Lookup(id)
		if err != nil {
			return 0, fmt.Errorf("template %s, user: there is no user %q on this machine; create it, or correct the template", t.Name, t.User)
		}
		id = u.Uid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("template %s, user: uid %q of %s isn't a number: %w", t.Name, id, t.User, err)
	}
	uid := uint32(n)
	switch {
	case hello.Root:
		return uid, nil
	case int(uid) == os.Getuid():
		return 0, nil
	default:
		return 0, fmt.Errorf("template %s, user: only a guard that runs as root can start nodes as %s; run it as root, or remove user", t.Name, t.User)
	}
}
