// This file reaches the nodes themselves, on their ports of this machine.

package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
	"github.com/serfab/cadre-hostd/internal/nodeapi"
	"github.com/serfab/cadre-hostd/internal/orchestrator"
)

var _ donation.Nodes = (*Orchestrator)(nil)

// apiPort is the name of the port that a node serves its contract on (docs/node-contract.md).
const apiPort = "health"

// Seed implements donation.Nodes.
func (o *Orchestrator) Seed(ctx context.Context, l donation.Launch, seed []byte) (donation.SeedResult, error) {
	c, err := o.node(l)
	if err != nil {
		return donation.SeedResult{}, err
	}
	r, err := c.Seed(ctx, l.Spawn.SeedToken.Reveal(), seed)
	if errors.Is(err, nodeapi.ErrUnauthorized) {
		err = fmt.Errorf("%w: %w", donation.ErrSeedToken, err)
	}
	return donation.SeedResult{Accepted: r.Success, PeersAdded: r.PeersAdded, Reason: r.Error}, err
}

// Peer implements donation.Nodes.
func (o *Orchestrator) Peer(ctx context.Context, l donation.Launch) (donation.Peer, error) {
	c, err := o.node(l)
	if err != nil {
		return donation.Peer{}, err
	}
	s, err := c.Status(ctx)
	return donation.Peer{ID: s.PeerID, Addrs: s.Multiaddrs}, err
}

// node returns a client of the launch's own node: its process runs, and it is that user who listens on the port.
func (o *Orchestrator) node(l donation.Launch) (*nodeapi.Client, error) {
	port, ok := l.Ports[apiPort]
	if !ok {
		return nil, fmt.Errorf("template %s has no port called %s, which a node is asked on", l.Request.Template, apiPort)
	}
	hello, ok := o.view.hello()
	if !ok {
		return nil, donation.ErrDisconnected
	}
	if p, ok := o.view.find(l.Donation, l.Spawn.ID); !ok || p.State != guard.StateRunning {
		return nil, errors.New("it doesn't run now")
	}
	_, uid, err := o.spec(l, hello)
	if err != nil {
		return nil, err
	}
	if uid == 0 {
		uid = uint32(os.Getuid()) // a guard without root is this user's
	}
	if err := orchestrator.CheckListener(port, uid); err != nil {
		return nil, err
	}
	return &nodeapi.Client{Base: "http://" + net.JoinHostPort(localhost, strconv.Itoa(port))}, nil
}
