// This file serves the guard's protocol: HTTP/JSON with strict, bounded bodies.

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	maxBody       = 4 << 20
	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// statuses maps a code to its HTTP status.
var statuses = map[Code]int{
	CodeBusy: http.StatusConflict, CodeNotExited: http.StatusConflict, CodeFailed: http.StatusUnprocessableEntity,
	CodeTransient: http.StatusServiceUnavailable, CodeStopping: http.StatusServiceUnavailable,
	CodeRefused: http.StatusForbidden, CodeInvalid: http.StatusBadRequest,
}

func (g *Guard) newServer() *http.Server {
	mux := http.NewServeMux()
	prefix := fmt.Sprintf("/v%d/", Protocol)
	mux.HandleFunc("GET "+prefix+"hello", func(w http.ResponseWriter, _ *http.Request) { respond(w, g.hello, nil) })
	mux.HandleFunc("GET "+prefix+"watch", g.watch)
	mux.HandleFunc("POST "+prefix+"start", handle(func(r *http.Request, req StartRequest) (Process, error) { return g.start(r.Context(), req) }))
	mux.HandleFunc("POST "+prefix+"stop", handle(func(_ *http.Request, req StopRequest) (StopResponse, error) { return g.stop(req), nil }))
	mux.HandleFunc("POST "+prefix+"ack", handle(func(_ *http.Request, req AckRequest) (struct{}, error) { return struct{}{}, g.ack(req) }))
	mux.HandleFunc("POST "+prefix+"reclaim", handle(func(_ *http.Request, req ReclaimRequest) (struct{}, error) { return struct{}{}, g.reclaim(req) }))
	mux.HandleFunc("POST "+prefix+"renew", handle(func(_ *http.Request, req RenewRequest) (RenewResponse, error) { return g.renew(req) }))
	mux.HandleFunc("POST "+prefix+"ready", handle(func(_ *http.Request, req ReadyRequest) (ReadyResponse, error) {
		return ReadyResponse{Ready: g.ready(req)}, nil
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		respond(w, nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("no such call: %s %s (this guard speaks protocol %d)", r.Method, r.URL.Path, Protocol)})
	})
	return &http.Server{
		Handler: g.counted(mux), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ErrorLog: quietLog(g.log),
	}
}

// counted keeps an idle guard from leaving in the middle of a request.
func (g *Guard) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.requests.Add(1)
		g.served.Store(true)
		defer func() {
			g.requests.Add(-1)
			g.table.mu.Lock()
			g.table.wake()
			g.table.mu.Unlock()
		}()
		next.ServeHTTP(w, r)
	})
}

// handle decodes a request, calls do and encodes its answer.
func handle[Req, Resp any](do func(*http.Request, Req) (Resp, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Its error means that there is no deadline to set; the bound of the size stays.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		dec.DisallowUnknownFields()
		var req Req
		err := dec.Decode(&req)
		if err == nil {
			if _, errMore := dec.Token(); !errors.Is(errMore, io.EOF) {
				err = errors.New("something follows the request")
			}
		}
		if err != nil {
			code := CodeInvalid
			if errors.Is(err, os.ErrDeadlineExceeded) {
				code = CodeTransient // what didn't come in time says nothing of what would have come
			}
			respond(w, nil, &Error{Code: code, Message: fmt.Sprintf("request body: %v", err)})
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		resp, err := do(r, req)
		respond(w, resp, err)
	}
}

// respond writes an answer, or an error as one.
func respond(w http.ResponseWriter, body any, err error) {
	status := http.StatusOK
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: CodeTransient, Message: err.Error()}
		}
		status, body = http.StatusInternalServerError, e
		if s, ok := statuses[e.Code]; ok {
			status = s
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away needs no answer.
	_ = json.NewEncoder(w).Encode(body)
}
