// This file holds what the client makes of a request that brought no answer, and of one that was refused.

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Why a request brought no answer. A user does something different about each.
var (
	// ErrNotRunning: there is no socket, nobody listens on it, or the daemon left in the middle.
	ErrNotRunning = errors.New("the daemon is not running")
	// ErrNoAnswer: somebody listens, but didn't answer in time.
	ErrNoAnswer = errors.New("the daemon does not answer")
	// ErrPermission: the socket is not for this user.
	ErrPermission = errors.New("permission denied")
)

// explain turns a transport's error into one of the three above, or the caller's own cancellation.
func (c *Client) explain(ctx context.Context, err error) error {
	var netErr net.Error
	var dial *net.OpError
	var request *url.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil, errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, unix.EAGAIN):
		return c.noAnswer(err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: uid %d may not use %s; run this as the user that cadre-hostd runs as, or as root",
			ErrPermission, os.Geteuid(), c.socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: there is no socket at %s; start it with 'cadre-hostd run', or name its directory with --runtime-dir or --state-dir",
			ErrNotRunning, c.socket)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens on %s any more; start it with 'cadre-hostd run'", ErrNotRunning, c.socket)
	case errors.Is(err, unix.EINVAL) && len(c.socket) > maxSocketPath:
		return fmt.Errorf("%w: the socket path %s is longer than the %d bytes that Linux allows; choose a shorter --runtime-dir",
			ErrNotRunning, c.socket, maxSocketPath)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("connect to cadre-hostd: %w", err)
	case errors.As(err, &request), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
		// However net/http puts it: a connection that was there has ended.
		return fmt.Errorf("%w any more: it closed the connection on %s without an answer; see its log", ErrNotRunning, c.socket)
	default:
		return fmt.Errorf("ask cadre-hostd at %s: %w", c.socket, err)
	}
}

// noAnswer describes a wait that was too long.
func (c *Client) noAnswer(err error) error {
	return fmt.Errorf("%w: somebody listens on %s but gave no answer in time; is it stopped or overloaded? "+
		"--timeout waits longer (%w)", ErrNoAnswer, c.socket, deadline(err))
}

// deadline reduces the transport's wrapping of a time-out to its kind.
func deadline(err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return unix.EAGAIN
	}
	return context.DeadlineExceeded
}

// cutOff explains the end of a stream that should have gone on.
func (c *Client) cutOff(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return c.explain(ctx, err)
}

// problemIn returns the error that an answer holds, nil for a success.
func problemIn(resp *http.Response) error {
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	defer resp.Body.Close()
	var p Problem
	err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&p)
	if err != nil || p.Code == "" {
		return donation.Errorf(donation.CodeInternal, "the daemon answered %s without saying why; see its log", resp.Status)
	}
	return &donation.Error{Code: p.Code, Message: p.Detail}
}
