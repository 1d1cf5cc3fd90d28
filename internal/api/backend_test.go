// This file holds what the package's tests share: a backend that obeys a script, and a daemon's worth of
// server on a real socket.

package api

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// scripted is a Backend whose answers the test writes; a nil function is an error.
type scripted struct {
	overview  func() Overview
	donations func(all bool) ([]View, error)
	donation  func(ctx context.Context, ref string) (View, error)
	donate    func(donation.Request) (View, error)
	terminate func(ctx context.Context, ref string, force bool) (View, error)
	logs      func(ctx context.Context, ref string, lines int, follow bool, w io.Writer) error
	drain     func() error
	seed      func(seed []byte) (donation.SeedResult, error)

	mu      sync.Mutex // guards what follows
	list    []donation.Event
	changed chan struct{}
}

var errNoScript = errors.New("the test's script says nothing of this")

func (s *scripted) Overview(context.Context) Overview { return s.overview() }

func (s *scripted) Donations(_ context.Context, all bool) ([]View, error) {
	if s.donations == nil {
		return nil, errNoScript
	}
	return s.donations(all)
}

func (s *scripted) Donation(ctx context.Context, ref string) (View, error) {
	if s.donation == nil {
		return View{}, errNoScript
	}
	return s.donation(ctx, ref)
}

func (s *scripted) Donate(_ context.Context, r donation.Request) (View, error) {
	if s.donate == nil {
		return View{}, errNoScript
	}
	return s.donate(r)
}

func (s *scripted) Terminate(ctx context.Context, ref string, force bool) (View, error) {
	if s.terminate == nil {
		return View{}, errNoScript
	}
	return s.terminate(ctx, ref, force)
}

func (s *scripted) Restart(_ context.Context, ref string) (View, error) {
	return View{ID: donation.ID(ref), Message: "restarted"}, nil
}

func (s *scripted) Retry(_ context.Context, ref string) (View, error) {
	return View{ID: donation.ID(ref), Message: "retried"}, nil
}

func (s *scripted) Logs(ctx context.Context, ref string, lines int, follow bool, w io.Writer) error {
	if s.logs == nil {
		return errNoScript
	}
	return s.logs(ctx, ref, lines, follow, w)
}

func (s *scripted) Events(_ context.Context, ref string, after int64, limit int) ([]donation.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []donation.Event
	for _, e := range s.list {
		if e.Seq > after && (ref == "" || ref == string(e.Donation)) && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, nil
}

func (s *scripted) LastSeq(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.list)), nil
}

func (s *scripted) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// add appends an event of a donation and tells the followers.
func (s *scripted) add(id donation.ID, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, donation.Event{Seq: int64(len(s.list) + 1), Donation: id, Kind: kind})
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// open serves b on a socket of its own until the test ends, and returns a client for it.
func open(t *testing.T, b *scripted) (*Client, *Endpoint) {
	t.Helper()
	return openLogged(t, b, zap.NewNop())
}

func openLogged(t *testing.T, b *scripted, log *zap.Logger) (*Client, *Endpoint) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admin.sock")
	e, err := Open(path, NewServer(b, log), log)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(path)
	t.Cleanup(func() {
		c.Close()
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("close the endpoint: %v", err)
		}
	})
	return c, e
}

func (s *scripted) Drain(context.Context) error {
	if s.drain == nil {
		return errNoScript
	}
	return s.drain()
}

func (s *scripted) Seed(_ context.Context, _ string, seed []byte) (donation.SeedResult, error) {
	if s.seed == nil {
		return donation.SeedResult{}, errNoScript
	}
	return s.seed(seed)
}

func (s *scripted) Peer(_ context.Context, ref string) (donation.Peer, error) {
	return donation.Peer{ID: "peer of " + ref, Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}, nil
}
