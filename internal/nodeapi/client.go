// This file holds the client of a node's HTTP contract. A node belongs to somebody else: nothing it
// answers is trusted to be small, quick or well formed.

package nodeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
	"unicode"
)

const (
	// DefaultTimeout bounds a request whose context has no deadline of its own.
	DefaultTimeout = 10 * time.Second
	// maxReason bounds what is passed on of a node's reason, in characters.
	maxReason = 500
)

// ErrUnauthorized is returned when the node refused the seed token (401): the host's credential is wrong.
// It says nothing about the seed.
var ErrUnauthorized = errors.New("the node refused the seed token")

// Client asks one node. The zero HTTP is right for a node on this machine.
type Client struct {
	// Base is where the node serves, such as "http://127.0.0.1:10000".
	Base string
	// HTTP sends the requests; nil is a client without proxy, redirects and kept connections.
	HTTP *http.Client
}

// plain is what a Client without HTTP uses: a node is where its port is, and nowhere else.
var plain = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Health returns nil if the node says that it is healthy.
func (c *Client) Health(ctx context.Context) error {
	a, err := c.do(ctx, http.MethodGet, "/health", nil, nil)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return a.unexpected()
	}
	return nil
}

// Status returns what the node says of itself, read fresh.
func (c *Client) Status(ctx context.Context) (Status, error) {
	a, err := c.do(ctx, http.MethodGet, "/status", nil, nil)
	if err != nil {
		return Status{}, err
	}
	if a.status != http.StatusOK {
		return Status{}, a.unexpected()
	}
	var s Status
	if err := json.Unmarshal(a.body, &s); err != nil {
		return Status{}, fmt.Errorf("the node's /status can't be read: %w", err)
	}
	return s, nil
}

// Seed presents a seed document. A rejection is a result, with the node's reason in Error and never an empty
// one; an error means that the seed was not judged, and is ErrUnauthorized if the token was refused.
func (c *Client) Seed(ctx context.Context, token string, seed []byte) (SeedResult, error) {
	body, err := json.Marshal(SeedRequest{Seed: encode(seed)})
	if err != nil {
		return SeedResult{}, fmt.Errorf("encode the seed: %w", err)
	}
	if len(body) > MaxBody {
		return SeedResult{}, fmt.Errorf("the seed makes a request of %d bytes; a node takes at most %d", len(body), MaxBody)
	}
	header := http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	a, err := c.do(ctx, http.MethodPost, "/seed", header, body)
	if err != nil {
		return SeedResult{}, err
	}
	return a.seedResult()
}

// reply is what a node has answered.
type reply struct {
	path   string
	status int
	body   []byte
}

// seedResult reads the answer to a seed. The reference node rejects with 200; a node that says the same with
// 400, 413 or 422 is understood too.
func (a reply) seedResult() (SeedResult, error) {
	switch a.status {
	case http.StatusUnauthorized:
		return SeedResult{}, ErrUnauthorized
	case http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
	default:
		return SeedResult{}, a.unexpected()
	}
	var r SeedResult
	if err := json.Unmarshal(a.body, &r); err != nil {
		return SeedResult{}, fmt.Errorf("the node's /seed answered %d %s with what can't be read: %w", a.status, http.StatusText(a.status), err)
	}
	if r.Success {
		if a.status != http.StatusOK || r.PeersAdded < 0 {
			return SeedResult{}, fmt.Errorf("the node's /seed contradicts itself: %d %s, success, %d peers added", a.status, http.StatusText(a.status), r.PeersAdded)
		}
		return SeedResult{Success: true, PeersAdded: r.PeersAdded}, nil
	}
	reason := clean(r.Error)
	if reason == "" {
		reason = "the node gave no reason"
	}
	return SeedResult{Error: reason}, nil
}

func (a reply) unexpected() error {
	return fmt.Errorf("the node's %s answered %d %s", a.path, a.status, http.StatusText(a.status))
}

// clean makes a node's words fit for a log and a terminal.
func clean(text string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.TrimSpace(text) {
		if n++; n > maxReason {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}

// do sends one request and reads at most MaxBody bytes of the answer; more is an error.
func (c *Client) do(ctx context.Context, method, path string, header http.Header, body []byte) (reply, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return reply{}, fmt.Errorf("ask the node: %w", err)
	}
	maps.Copy(req.Header, header)
	client := c.HTTP
	if client == nil {
		client = plain
	}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, fmt.Errorf("ask the node: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if err != nil {
		return reply{}, fmt.Errorf("read the node's answer to %s: %w", path, err)
	}
	if len(answer) > MaxBody {
		return reply{}, fmt.Errorf("the node's answer to %s is larger than %d bytes", path, MaxBody)
	}
	return reply{path: path, status: resp.StatusCode, body: answer}, nil
}
