// This file asks whether a node is ready, in the way that its template says.

package process

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// localhost is where nodes are asked; a node that listens elsewhere only can't use these two kinds.
const localhost = "127.0.0.1"

// Ready implements donation.Orchestrator. A node that doesn't run isn't ready, and a port is looked at only while
// it does: who answers otherwise is a stranger.
func (o *Orchestrator) Ready(ctx context.Context, l donation.Launch) (bool, error) {
	hello, ok := o.view.hello()
	if !ok {
		return false, donation.ErrDisconnected
	}
	p, ok := o.view.find(l.Donation, l.Spawn.ID)
	if !ok || p.State != guard.StateRunning {
		return false, nil
	}
	spec, _, err := o.spec(l, hello)
	if err != nil {
		return false, err
	}
	switch r := spec.Ready; {
	case r.File != "":
		ctx, cancel := o.bounded(ctx)
		defer cancel()
		ready, err := o.guard.Ready(ctx, guard.ReadyRequest{Spawn: string(l.Spawn.ID), Path: r.File, Content: r.Content})
		return ready, callError("ask whether "+string(l.Spawn.ID)+" is ready", err)
	case r.HTTPPath != "":
		return answers200(ctx, r.HTTPPort, r.HTTPPath), nil
	case r.TCPPort != 0:
		return accepts(ctx, r.TCPPort), nil
	case r.Notify:
		return p.Notified, nil
	default:
		return true, nil
	}
}

// answers200 reports whether a GET on the local port answers 200 in time. Redirects aren't followed: they lead
// to where nobody asked for.
func answers200(ctx context.Context, port int, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(localhost, strconv.Itoa(port))+path, nil)
	if err != nil {
		return false
	}
	// No proxy from this process's environment, and no connection that outlives the look.
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	const enough = 64 << 10 // lets an ordinary answer end in good order
	_, _ = io.CopyN(io.Discard, resp.Body, enough)
	return resp.StatusCode == http.StatusOK
}

// accepts reports whether the local port accepts a connection in time.
func accepts(ctx context.Context, port int) bool {
	d := net.Dialer{Timeout: readyTimeout}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(localhost, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
