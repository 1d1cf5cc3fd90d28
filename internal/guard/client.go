// This file is the daemon's side of the protocol.

package guard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// ErrUnreachable says that no answer came: no guard, a guard that is silent, or a connection that broke. Whether
// a request was carried out is unknown then.
var ErrUnreachable = errors.New("the guard can't be reached")

// Client speaks to a guard. Its methods may be called by many goroutines at once; each is bounded by its context
// only. They return a *Error for what the guard refused, and ErrUnreachable when there was no answer.
type Client struct {
	http   *http.Client
	socket string
}

// NewClient returns a client of the guard behind the socket. It connects when it is first used.
func NewClient(socket string) *Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialSocket(ctx, socket)
		},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
	return &Client{http: &http.Client{Transport: transport}, socket: socket}
}

// Close closes the connections that aren't in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Hello asks who the guard is. A guard that speaks another protocol is a *Error with CodeInvalid.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var h Hello
	if err := c.call(ctx, http.MethodGet, "hello", nil, &h); err != nil {
		return Hello{}, err
	}
	return h, checkProtocol(h)
}

// Start starts a spawn or finds it started: idempotent by the spawn's id.
func (c *Client) Start(ctx context.Context, req StartRequest) (Process, error) {
	var p Process
	err := c.call(ctx, http.MethodPost, "start", req, &p)
	return p, err
}

// Stop begins a stop; the exit comes on the stream.
func (c *Client) Stop(ctx context.Context, req StopRequest) (StopResponse, error) {
	var resp StopResponse
	err := c.call(ctx, http.MethodPost, "stop", req, &resp)
	return resp, err
}

// Ack says that these spawns' exits are on record.
func (c *Client) Ack(ctx context.Context, spawns ...string) error {
	return c.call(ctx, http.MethodPost, "ack", AckRequest{Spawns: spawns}, &struct{}{})
}

// Reclaim deletes a donation's directory.
func (c *Client) Reclaim(ctx context.Context, donation string) error {
	return c.call(ctx, http.MethodPost, "reclaim", ReclaimRequest{Donation: donation}, &struct{}{})
}

// Renew lets nodes run on for one TTL each from now. It returns the spawns that are gone.
func (c *Client) Renew(ctx context.Context, leases ...Lease) (gone []string, err error) {
	var resp RenewResponse
	err = c.call(ctx, http.MethodPost, "renew", RenewRequest{Leases: leases}, &resp)
	return resp.Gone, err
}

// Ready asks whether a file in a running spawn's workdir has a content.
func (c *Client) Ready(ctx context.Context, req ReadyRequest) (bool, error) {
	var resp ReadyResponse
	err := c.call(ctx, http.MethodPost, "ready", req, &resp)
	return resp.Ready, err
}

// Watch calls fn with every message of the stream, the full list first, until fn returns an error (which it
// returns), ctx ends, or the stream does (ErrUnreachable). fn holds up the stream while it runs.
func (c *Client) Watch(ctx context.Context, fn func(Message) error) error {
	resp, err := c.do(ctx, http.MethodGet, "watch", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(bufio.NewReaderSize(resp.Body, 64<<10))
	for first := true; ; first = false {
		var m Message
		if err := dec.Decode(&m); err != nil {
			return c.unreachable(ctx, err)
		}
		if first {
			if m.Hello == nil {
				return c.unreachable(ctx, errors.New("the stream doesn't begin with hello"))
			}
			if err := checkProtocol(*m.Hello); err != nil {
				return err
			}
		}
		if err := fn(m); err != nil {
			return err
		}
	}
}

func checkProtocol(h Hello) error {
	if h.Protocol == Protocol {
		return nil
	}
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf(
		"the guard (pid %d, version %s) speaks protocol %d and this program %d; install the same version of both, then hand over with SIGUSR1",
		h.PID, h.Version, h.Protocol, Protocol)}
}

func (c *Client) call(ctx context.Context, method, name string, req, resp any) error {
	var body io.Reader
	if req != nil {
		b, err := json.Marshal(req)
		if err != nil {
			return fmt.Errorf("guard %s: %w", name, err)
		}
		body = bytes.NewReader(b)
	}
	r, err := c.do(ctx, method, name, body)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(resp); err != nil {
		return c.unreachable(ctx, err)
	}
	// To the end, so that the connection can be used again.
	_, _ = io.Copy(io.Discard, r.Body)
	return nil
}

// do sends a request and returns the answer if it is a good one.
func (c *Client) do(ctx context.Context, method, name string, body io.Reader) (*http.Response, error) {
	url := fmt.Sprintf("http://guard/v%d/%s", Protocol, name)
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w", name, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e Error
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&e); err != nil || e.Code == "" {
		return nil, c.unreachable(ctx, fmt.Errorf("unexpected answer %s", resp.Status))
	}
	return nil, &e
}

// unreachable wraps what kept an answer from coming. The context's own end stays visible to errors.Is.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return fmt.Errorf("%w (%s): %w", ErrUnreachable, c.socket, err)
}
