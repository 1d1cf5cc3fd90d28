// This file holds the two answers that may go on for as long as the client listens: a node's output and
// the event log.

package api

import (
	"context"
	"encoding/json"
	"math"
	"net/http"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

const (
	// defaultLines of a node's output are sent when the client names no number.
	defaultLines = 100
	// MaxEvents is the most events that one answer holds; ask again after the last one for more.
	MaxEvents = 1000
)

// logs sends output as text, flushed as it comes.
func (s *server) logs(w http.ResponseWriter, r *http.Request) {
	lines, err := queryInt(r, "lines", -1, defaultLines)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	follow, err := queryBool(r, "follow")
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ref := r.PathValue("ref")
	ctx, cancel := untilLeaving(r.Context())
	defer cancel()
	out := &flushingWriter{w: w, contentType: "text/plain; charset=utf-8"}
	if follow {
		// The head of the answer goes out at once, so that a client can tell a quiet node from a daemon
		// that doesn't answer; what can be refused is refused before.
		v, err := s.backend.Donation(ctx, ref)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		ref = string(v.ID)
		if v.Workdir != "" { // else there is no output, and Logs says so
			out.begin()
		}
	}
	err = s.backend.Logs(ctx, ref, int(min(lines, math.MaxInt32)), follow, out)
	s.finish(ctx, w, r, out, err)
}

// events sends one page as a JSON document, or, with follow, one event a line for as long as the client
// listens. Without "after", following begins at the newest event and a page at the oldest.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	follow, err := queryBool(r, "follow")
	if err != nil {
		s.fail(w, r, err)
		return
	}
	after, err := queryInt(r, "after", 0, -1)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	limit, err := queryInt(r, "limit", 1, MaxEvents)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	limit = min(limit, MaxEvents)
	ref := r.URL.Query().Get("ref")
	if !follow {
		list, err := s.backend.Events(r.Context(), ref, max(after, 0), int(limit))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if list == nil {
			list = []donation.Event{}
		}
		s.reply(w, http.StatusOK, eventList{list})
		return
	}

	ctx, cancel := untilLeaving(r.Context())
	defer cancel()
	if ref != "" {
		v, err := s.backend.Donation(ctx, ref)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		ref = string(v.ID) // a name may pass to another donation while the stream lasts
	}
	if after < 0 {
		if after, err = s.backend.LastSeq(ctx); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	out := &flushingWriter{w: w, contentType: "application/jsonl"}
	out.begin()
	s.finish(ctx, w, r, out, s.follow(ctx, ref, after, int(limit), out))
}

// follow writes the events after seq as they come, until ctx ends.
func (s *server) follow(ctx context.Context, ref string, seq int64, limit int, out *flushingWriter) error {
	for {
		changed := s.backend.Changed() // before reading, so that nothing falls between
		list, err := s.backend.Events(ctx, ref, seq, limit)
		if err != nil {
			return err
		}
		for _, e := range list {
			line, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if _, err := out.Write(append(line, '\n')); err != nil {
				return err
			}
			seq = e.Seq
		}
		if len(list) == limit {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// finish ends a stream. One that the daemon cuts short is aborted, not ended, so that the client can
// tell it from a complete answer.
func (s *server) finish(ctx context.Context, w http.ResponseWriter, r *http.Request, out *flushingWriter, err error) {
	switch {
	case r.Context().Err() != nil || out.failed: // the client has left
		return
	case err == nil && ctx.Err() == nil:
		out.begin()
		return
	case !out.begun && err != nil:
		s.fail(w, r, err)
		return
	case ctx.Err() == nil:
		s.log.Warn("a stream was cut short", zap.String("path", r.URL.Path), zap.Error(err))
	}
	panic(http.ErrAbortHandler)
}

// flushingWriter sends every write at once. The head of the answer goes with the first.
type flushingWriter struct {
	w           http.ResponseWriter
	contentType string
	begun       bool
	failed      bool
}

func (f *flushingWriter) begin() {
	if f.begun {
		return
	}
	f.begun = true
	f.w.Header().Set("Content-Type", f.contentType)
	f.w.WriteHeader(http.StatusOK)
	f.flush()
}

func (f *flushingWriter) Write(b []byte) (int, error) {
	f.begin()
	n, err := f.w.Write(b)
	if err == nil {
		err = f.flush()
	}
	f.failed = f.failed || err != nil
	return n, err
}

func (f *flushingWriter) flush() error { return http.NewResponseController(f.w).Flush() }

// leavingKey is where Endpoint puts the context that ends when the daemon is about to leave.
type leavingKey struct{}

// untilLeaving returns a context for a stream: it ends with the client or as soon as the daemon is about
// to leave, while other requests are given time to finish.
func untilLeaving(ctx context.Context) (context.Context, context.CancelFunc) {
	leaving, ok := ctx.Value(leavingKey{}).(context.Context)
	ctx, cancel := context.WithCancel(ctx)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(leaving, cancel)
	return ctx, func() { stop(); cancel() }
}
