// This file holds the server of the admin surface: its routes, and how bodies and answers are coded.

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// maxBody bounds a request's body in bytes: room for some hundred bootstrap addresses and owner keys.
const maxBody = 64 << 10

// maxSeedBody bounds a seed's, which a node takes up to 256 KiB of.
const maxSeedBody = 512 << 10

// SeedRequest is the body of PUT /v1/donations/{ref}/seed.
type SeedRequest struct {
	// Seed is the seed document, in JSON as base64.
	Seed []byte `json:"seed"`
}

// TerminateRequest is the body of POST /v1/donations/{ref}/terminate; an empty body is its zero value.
type TerminateRequest struct {
	// Force skips the stop signal and its grace.
	Force bool `json:"force"`
	// WaitMillis is how long the caller waits for the tree to be gone, in milliseconds; then the answer
	// is still_stopping. 0 waits as long as the connection lasts.
	WaitMillis int64 `json:"wait_ms,omitempty"`
}

// donationList is the answer to GET /v1/donations.
type donationList struct {
	Donations []View `json:"donations"`
}

// eventList is the answer to GET /v1/events without follow.
type eventList struct {
	Events []donation.Event `json:"events"`
}

// server holds what the handlers need.
type server struct {
	backend Backend
	log     *zap.Logger
}

// NewServer returns the handler of the admin surface.
func NewServer(backend Backend, log *zap.Logger) http.Handler {
	s := &server{backend: backend, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/overview", s.overview)
	mux.HandleFunc("GET /v1/donations", s.list)
	mux.HandleFunc("POST /v1/donations", s.donate)
	mux.HandleFunc("GET /v1/donations/{ref}", s.get)
	mux.HandleFunc("POST /v1/donations/{ref}/terminate", s.terminate)
	mux.HandleFunc("POST /v1/donations/{ref}/restart", s.act(backend.Restart))
	mux.HandleFunc("POST /v1/donations/{ref}/retry", s.act(backend.Retry))
	mux.HandleFunc("PUT /v1/donations/{ref}/seed", s.seed)
	mux.HandleFunc("GET /v1/donations/{ref}/peer", s.peer)
	mux.HandleFunc("GET /v1/donations/{ref}/logs", s.logs)
	mux.HandleFunc("POST /v1/drain", s.drain)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, donation.Errorf(donation.CodeNotFound,
			"%s %s is nothing this daemon knows; are client and daemon of the same version?", r.Method, r.URL.Path))
	})
	return s.recovered(mux)
}

// recovered turns a panic of a handler into a logged 500, so that a mistake in one request never costs
// the daemon. An answer that has begun can only be cut off.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tw := &trackedWriter{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(http.ErrAbortHandler)
			}
			s.log.Error("a request handler panicked", zap.String("method", r.Method), zap.String("path", r.URL.Path),
				zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			if tw.begun {
				panic(http.ErrAbortHandler)
			}
			writeProblem(w, donation.Errorf(donation.CodeInternal,
				"the daemon failed on this request (it is logged and goes on): %v", p))
		}()
		next.ServeHTTP(tw, r)
	})
}

// trackedWriter remembers whether an answer has begun.
type trackedWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *trackedWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *trackedWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (w *trackedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *server) overview(w http.ResponseWriter, r *http.Request) {
	s.reply(w, http.StatusOK, s.backend.Overview(r.Context()))
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	all, err := queryBool(r, "all")
	if err != nil {
		s.fail(w, r, err)
		return
	}
	views, err := s.backend.Donations(r.Context(), all)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if views == nil {
		views = []View{}
	}
	s.reply(w, http.StatusOK, donationList{views})
}

func (s *server) get(w http.ResponseWriter, r *http.Request) {
	s.act(s.backend.Donation)(w, r)
}

func (s *server) donate(w http.ResponseWriter, r *http.Request) {
	var req donation.Request
	if err := decode(w, r, &req); err != nil {
		s.fail(w, r, err)
		return
	}
	v, err := s.backend.Donate(r.Context(), req)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Location", "/v1/donations/"+string(v.ID))
	s.reply(w, http.StatusCreated, v)
}

func (s *server) terminate(w http.ResponseWriter, r *http.Request) {
	var req TerminateRequest
	if err := decode(w, r, &req); err != nil {
		s.fail(w, r, err)
		return
	}
	ctx := r.Context()
	if req.WaitMillis > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.WaitMillis)*time.Millisecond)
		defer cancel()
	}
	v, err := s.backend.Terminate(ctx, r.PathValue("ref"), req.Force)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.reply(w, http.StatusOK, v)
}

func (s *server) seed(w http.ResponseWriter, r *http.Request) {
	var req SeedRequest
	if err := decodeUpTo(w, r, &req, maxSeedBody); err != nil {
		s.fail(w, r, err)
		return
	}
	if len(req.Seed) == 0 {
		s.fail(w, r, donation.Errorf(donation.CodeInvalidRequest, "the request holds no seed"))
		return
	}
	result, err := s.backend.Seed(r.Context(), r.PathValue("ref"), req.Seed)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.reply(w, http.StatusOK, result)
}

func (s *server) peer(w http.ResponseWriter, r *http.Request) {
	peer, err := s.backend.Peer(r.Context(), r.PathValue("ref"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.reply(w, http.StatusOK, peer)
}

func (s *server) drain(w http.ResponseWriter, r *http.Request) {
	if err := decode(w, r, &struct{}{}); err != nil {
		s.fail(w, r, err)
		return
	}
	if err := s.backend.Drain(r.Context()); err != nil {
		s.fail(w, r, err)
		return
	}
	s.reply(w, http.StatusAccepted, s.backend.Overview(r.Context()))
}

// act serves an operation on one donation that needs nothing but its ref.
func (s *server) act(op func(context.Context, string) (View, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := decode(w, r, &struct{}{}); err != nil {
			s.fail(w, r, err)
			return
		}
		v, err := op(r.Context(), r.PathValue("ref"))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.reply(w, http.StatusOK, v)
	}
}

// reply sends v as JSON.
func (s *server) reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.log.Debug("an answer could not be sent", zap.Error(err))
	}
}

// fail sends err as a problem; the daemon's own failures are logged as well, the caller's are not.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if donation.CodeOf(err) == donation.CodeInternal && r.Context().Err() == nil {
		s.log.Error("a request failed", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Error(err))
	}
	writeProblem(w, err)
}

// decode reads a JSON body into v: one document of at most maxBody bytes, no unknown fields. An empty
// body leaves v as it is.
func decode(w http.ResponseWriter, r *http.Request, v any) error { return decodeUpTo(w, r, v, maxBody) }

// decodeUpTo is decode for a body of another size.
func decodeUpTo(w http.ResponseWriter, r *http.Request, v any, limit int64) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("more follows after the first document")
		}
	}
	if tooBig := (*http.MaxBytesError)(nil); errors.As(err, &tooBig) {
		return donation.Errorf(donation.CodeInvalidRequest, "the request's body is larger than %d bytes", tooBig.Limit)
	}
	return donation.Errorf(donation.CodeInvalidRequest, "the request's body can't be read: %w", err)
}

// queryBool reads an optional boolean; a name without a value is true.
func queryBool(r *http.Request, name string) (bool, error) {
	q := r.URL.Query()
	if !q.Has(name) {
		return false, nil
	}
	if q.Get(name) == "" {
		return true, nil
	}
	b, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		return false, badQuery(name, q.Get(name), "true or false")
	}
	return b, nil
}

// queryInt reads an optional integer of at least low.
func queryInt(r *http.Request, name string, low, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low {
		return 0, badQuery(name, text, fmt.Sprintf("a whole number, %d or more", low))
	}
	return n, nil
}

func badQuery(name, value, want string) error {
	return donation.Errorf(donation.CodeInvalidRequest, "the parameter %s=%s must be %s", name, value, want)
}
