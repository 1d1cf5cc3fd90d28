// This file holds what the scripted guard shows and tells without doing anything.

package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Observe implements donation.Orchestrator.
func (g *guard) Observe(id donation.ID) donation.Observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.connected {
		return donation.Observation{}
	}
	return donation.Observation{Connected: true, Instance: g.instance, BootID: g.bootID, Processes: g.list(id)}
}

// Processes implements Orchestrator.
func (g *guard) Processes() []donation.Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.connected {
		return nil
	}
	return g.list("")
}

// list copies the processes of one donation, or of all. mu is held.
func (g *guard) list(id donation.ID) []donation.Process {
	var all []donation.Process
	for _, p := range g.procs {
		if id == "" || p.Donation == id {
			all = append(all, *p)
		}
	}
	slices.SortFunc(all, func(a, b donation.Process) int { return cmp.Compare(a.Spawn, b.Spawn) })
	return all
}

// Plan implements donation.Orchestrator.
func (g *guard) Plan(template string) (donation.Plan, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.plans[template]
	if !ok {
		return p, donation.Errorf(donation.CodeUnknownTemplate, "template %q isn't configured", template)
	}
	return p, nil
}

// Check implements donation.Orchestrator.
func (g *guard) Check(_ context.Context, l donation.Launch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.away(); err != nil {
		return err
	}
	for name, port := range l.Ports {
		if g.held[port] {
			return &donation.BlockedError{Kind: donation.BlockPort, Message: fmt.Sprintf("port %s is held by another program", name)}
		}
	}
	return nil
}

// Ready implements donation.Orchestrator.
func (g *guard) Ready(ctx context.Context, l donation.Launch) (bool, error) {
	g.mu.Lock()
	f := g.ready
	g.mu.Unlock()
	return f(ctx, l)
}

// UIDs implements donation.Orchestrator.
func (g *guard) UIDs() donation.UIDRange { return donation.UIDRange{} }

// PortFree implements donation.Orchestrator.
func (g *guard) PortFree(int) bool { return true }
