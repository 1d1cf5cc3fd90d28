// This file holds the Go client of the admin surface.

package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// maxAnswer bounds a JSON answer: some ten thousand donations.
const maxAnswer = 64 << 20

// Client asks the daemon behind one socket. Its errors are the daemon's *donation.Error, or wrap
// ErrNotRunning, ErrNoAnswer or ErrPermission, or are the cancellation of the caller's context.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client for the daemon that listens on socket. Nothing is connected yet.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext:            dial,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}}}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Overview returns the daemon's own state.
func (c *Client) Overview(ctx context.Context) (Overview, error) {
	return call[Overview](ctx, c, http.MethodGet, "/v1/overview", nil)
}

// Donations lists all donations that haven't been terminated, or all.
func (c *Client) Donations(ctx context.Context, all bool) ([]View, error) {
	path := "/v1/donations"
	if all {
		path += "?all=true"
	}
	list, err := call[donationList](ctx, c, http.MethodGet, path, nil)
	return list.Donations, err
}

// Donation returns one donation with its history.
func (c *Client) Donation(ctx context.Context, ref string) (View, error) {
	return call[View](ctx, c, http.MethodGet, donationPath(ref, ""), nil)
}

// Donate provisions a donation; it returns once its process runs.
func (c *Client) Donate(ctx context.Context, r donation.Request) (View, error) {
	return call[View](ctx, c, http.MethodPost, "/v1/donations", r)
}

// Terminate ends a donation and returns when its processes are gone. The daemon is told to answer
// (still_stopping) shortly before ctx ends, so that a slow end isn't taken for a silent daemon.
func (c *Client) Terminate(ctx context.Context, ref string, force bool) (View, error) {
	req := TerminateRequest{Force: force}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		req.WaitMillis = max(1, (left - min(left/10, time.Second)).Milliseconds())
	}
	return call[View](ctx, c, http.MethodPost, donationPath(ref, "/terminate"), req)
}

// Restart stops the node, to be started again; it returns once that is on record and begun.
func (c *Client) Restart(ctx context.Context, ref string) (View, error) {
	return call[View](ctx, c, http.MethodPost, donationPath(ref, "/restart"), nil)
}

// Retry revives a donation that was given up, or ends its wait for the next attempt.
func (c *Client) Retry(ctx context.Context, ref string) (View, error) {
	return call[View](ctx, c, http.MethodPost, donationPath(ref, "/retry"), nil)
}

// Seed presents a seed document to the donation's node.
func (c *Client) Seed(ctx context.Context, ref string, seed []byte) (donation.SeedResult, error) {
	return call[donation.SeedResult](ctx, c, http.MethodPut, donationPath(ref, "/seed"), SeedRequest{Seed: seed})
}

// Peer returns how the donation's node is known to its cadre.
func (c *Client) Peer(ctx context.Context, ref string) (donation.Peer, error) {
	return call[donation.Peer](ctx, c, http.MethodGet, donationPath(ref, "/peer"), nil)
}

// Drain has every node stopped in order, and the daemon leave after that. It returns when that has begun.
func (c *Client) Drain(ctx context.Context) (Overview, error) {
	return call[Overview](ctx, c, http.MethodPost, "/v1/drain", nil)
}

// Events returns events after seq, oldest first, at most limit and MaxEvents; ref "" means of all donations.
func (c *Client) Events(ctx context.Context, ref string, after int64, limit int) ([]donation.Event, error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
	if ref != "" {
		q.Set("ref", ref)
	}
	list, err := call[eventList](ctx, c, http.MethodGet, "/v1/events?"+q.Encode(), nil)
	return list.Events, err
}

// FollowEvents calls each with every event after seq as it comes (negative: with those still to come),
// until ctx ends, the daemon leaves, or each returns an error, which is returned as it is. answerWithin
// bounds the wait for the daemon to take the request, not the stream; 0 is no bound.
func (c *Client) FollowEvents(ctx context.Context, ref string, after int64, answerWithin time.Duration, each func(donation.Event) error) error {
	return c.follow(ctx, ref, after, answerWithin, func() {}, each)
}

// Changes calls changed once the daemon has begun to listen and after every event from then on, so that whoever
// looks again at each call has missed nothing. Otherwise it is as FollowEvents.
func (c *Client) Changes(ctx context.Context, ref string, answerWithin time.Duration, changed func()) error {
	return c.follow(ctx, ref, -1, answerWithin, changed, func(donation.Event) error { changed(); return nil })
}

func (c *Client) follow(ctx context.Context, ref string, after int64, answerWithin time.Duration, opened func(), each func(donation.Event) error) error {
	q := url.Values{"follow": {"true"}}
	if after >= 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	if ref != "" {
		q.Set("ref", ref)
	}
	body, cancel, err := c.stream(ctx, "/v1/events?"+q.Encode(), answerWithin)
	if err != nil {
		return err
	}
	defer cancel()
	defer body.Close()
	opened()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e donation.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("the daemon sent an event that can't be read: %w", err)
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return c.cutOff(ctx, lines.Err())
}

// Logs copies the last lines (negative: all) of the node's output to w and, with follow, what comes until
// ctx ends or the output does. answerWithin is as for FollowEvents.
func (c *Client) Logs(ctx context.Context, ref string, lines int, follow bool, answerWithin time.Duration, w io.Writer) error {
	q := url.Values{"lines": {strconv.Itoa(max(lines, -1))}}
	if follow {
		q.Set("follow", "true")
	}
	body, cancel, err := c.stream(ctx, donationPath(ref, "/logs?"+q.Encode()), answerWithin)
	if err != nil {
		return err
	}
	defer cancel()
	defer body.Close()
	out := &outputWriter{w: w}
	_, err = io.Copy(out, body)
	if out.err != nil {
		return fmt.Errorf("write the output: %w", out.err)
	}
	if err != nil || follow && ctx.Err() != nil {
		return c.cutOff(ctx, err)
	}
	return nil
}

// outputWriter tells an error of the destination from one of the source.
type outputWriter struct {
	w   io.Writer
	err error
}

func (o *outputWriter) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	o.err = err
	return n, err
}

// stream sends a GET whose answer may go on for ever. cancel ends it.
func (c *Client) stream(ctx context.Context, path string, answerWithin time.Duration) (io.ReadCloser, context.CancelFunc, error) {
	streamCtx, cancel := context.WithCancel(ctx)
	if answerWithin > 0 {
		timer := time.AfterFunc(answerWithin, cancel)
		defer timer.Stop()
	}
	resp, err := c.send(streamCtx, http.MethodGet, path, nil)
	if err != nil {
		timedOut := streamCtx.Err() != nil && ctx.Err() == nil
		cancel()
		if timedOut {
			return nil, nil, c.noAnswer(context.DeadlineExceeded)
		}
		return nil, nil, c.explain(ctx, err)
	}
	if err := problemIn(resp); err != nil {
		cancel()
		return nil, nil, err
	}
	return resp.Body, cancel, nil
}

// call sends one request and reads its JSON answer.
func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var answer T
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return answer, c.explain(ctx, err)
	}
	defer resp.Body.Close()
	if err := problemIn(resp); err != nil {
		return answer, err
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		return answer, c.explain(ctx, fmt.Errorf("read the daemon's answer: %w", err))
	}
	return answer, nil
}

func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://cadre-hostd"+path, content)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.http.Do(req)
}

// donationPath is the path of one donation; ref is whatever the user typed.
func donationPath(ref, rest string) string { return "/v1/donations/" + url.PathEscape(ref) + rest }
