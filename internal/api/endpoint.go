// This file holds the endpoint: a handler served on the admin socket by goroutines that have an owner,
// ended in order, with a socket that comes back when somebody removes it.

package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// headerTimeout bounds how long a client may take to send a request's head.
	headerTimeout = 10 * time.Second
	// drainTimeout is how long requests in flight may take once the endpoint is told to end.
	drainTimeout = 5 * time.Second
)

// Endpoint serves a handler on a unix socket. Open starts it, Close ends it; Check belongs into the
// daemon's sweep.
type Endpoint struct {
	path   string
	log    *zap.Logger
	server *http.Server
	// leave ends streams; abort ends every request that outlasts the drain.
	leave, abort context.CancelFunc
	served       sync.WaitGroup

	mu     sync.Mutex // guards what follows
	ln     *listener
	closed bool
}

// Open listens on path (see listen) and serves h until Close.
func Open(path string, h http.Handler, log *zap.Logger) (*Endpoint, error) {
	ln, err := listen(path)
	if err != nil {
		return nil, err
	}
	base, abort := context.WithCancel(context.Background())
	leaving, leave := context.WithCancel(base)
	e := &Endpoint{path: path, log: log, ln: ln, leave: leave, abort: abort}
	e.server = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ErrorLog:          zap.NewStdLog(log.Named("http")),
		BaseContext:       func(net.Listener) context.Context { return context.WithValue(base, leavingKey{}, leaving) },
	}
	e.serve(ln)
	return e, nil
}

// serve accepts on ln in a goroutine that Close waits for.
func (e *Endpoint) serve(ln *listener) {
	e.served.Go(func() {
		err := e.server.Serve(ln)
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			e.log.Error("the admin socket ended", zap.String("socket", e.path), zap.Error(err))
		}
	})
}

// Check makes sure that the path still leads to our socket and opens a new one if it doesn't: cleaners of
// temporary directories remove sockets of living daemons. It reports whether it had to. Connections
// that are open stay open.
func (e *Endpoint) Check() (reopened bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.ln.inPlace() {
		return false, nil
	}
	ln, err := listen(e.path)
	if err != nil {
		return false, fmt.Errorf("open the admin socket again, which has vanished: %w", err)
	}
	old := e.ln
	e.ln = ln
	e.serve(ln)
	_ = old.Close() // its goroutine ends; it leaves the new socket alone
	e.log.Warn("the admin socket had vanished and is back", zap.String("socket", e.path))
	return true, nil
}

// Close ends the endpoint in order: no new connections, streams cut, requests in flight given five
// seconds or until ctx ends, then everything closed. It returns when no goroutine of it is left.
func (e *Endpoint) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.leave()
	drain, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	err := e.server.Shutdown(drain)
	e.abort()
	if err != nil {
		err = fmt.Errorf("requests were cut off at the end: %w", errors.Join(err, e.server.Close()))
	}
	e.served.Wait()
	return err
}
