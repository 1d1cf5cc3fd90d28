// This file holds the reference node's life: from its environment to an open port, and to its end in order.

package nodeapi

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The environment of a node.
const (
	startupTokenVar = "CADRE_STARTUP_TOKEN"
	seedTokenVar    = "CADRE_SEED_TOKEN"
	ownerKeysVar    = "CADRE_OWNER_KEYS"
)

// stopTimeout bounds how long requests in flight may take once the node is told to stop: well below the 10 s
// of grace that a template gives by default, so that a stop needs no SIGKILL.
const stopTimeout = 2 * time.Second

// Options are what the reference node is given.
type Options struct {
	// Workdir is where it keeps its identity and its seeds; it must exist.
	Workdir string
	// HealthPort is the port of its HTTP surface; 0 takes any free one.
	HealthPort int
	// StartupTokenFile gets the startup token once the node answers; empty means nobody asked for it.
	StartupTokenFile string
	// Listen is the address to serve on; empty is 127.0.0.1.
	Listen string
	// Env looks up the node's environment, as os.Getenv does: CADRE_STARTUP_TOKEN, CADRE_SEED_TOKEN and
	// CADRE_OWNER_KEYS. nil is an empty one.
	Env func(string) string
	// Log takes a line at the start and one at the end; nil discards them.
	Log io.Writer
}

// complete returns o with every default filled in.
func (o Options) complete() Options {
	if o.Env == nil {
		o.Env = func(string) string { return "" }
	}
	o.Listen = cmp.Or(o.Listen, "127.0.0.1")
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o
}

// phase is how far a node is in its life.
type phase int32

const (
	starting phase = iota
	healthy
	stopping
)

// phases is what /health and /ready answer in each.
var phases = [...]struct {
	code int
	word string
}{
	starting: {http.StatusServiceUnavailable, "starting"},
	healthy:  {http.StatusOK, "healthy"},
	stopping: {http.StatusServiceUnavailable, "stopping"},
}

// node is a running reference node.
type node struct {
	peerID    string
	addr      *net.TCPAddr
	startedAt time.Time
	// seedHash is the SHA-256 of the seed token; the token itself isn't kept.
	seedHash [sha256.Size]byte
	hasSeed  bool
	owners   []ed25519.PublicKey
	log      *log.Logger

	phase              atomic.Int32 // a phase
	accepted, rejected atomic.Int64

	mu   sync.Mutex // guards book, also while it is written
	book *seedBook
}

// hooks are what tests change.
type hooks struct {
	// listening, if set, is called when the port is open and nobody has been told yet.
	listening func(net.Addr)
	grace     time.Duration
}

// Run is the node's life: it returns nil once ctx has ended and the node has stopped in order, within a few
// seconds whatever its clients do. Any error is one of the start, or that the port was lost.
func Run(ctx context.Context, o Options) error {
	return run(ctx, o, hooks{grace: stopTimeout})
}

func run(ctx context.Context, o Options, h hooks) error {
	o = o.complete()
	if o.StartupTokenFile != "" && o.Env(startupTokenVar) == "" {
		return fmt.Errorf("%s is not set, so there is nothing to write to the startup-token file; set it, or name no file", startupTokenVar)
	}
	owners, err := ParseOwnerKeys(o.Env(ownerKeysVar))
	if err != nil {
		return fmt.Errorf("%s: %w", ownerKeysVar, err)
	}
	key, err := loadIdentity(o.Workdir)
	if err != nil {
		return err
	}
	book, err := openSeeds(o.Workdir)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(o.Listen, strconv.Itoa(o.HealthPort)))
	if err != nil {
		return fmt.Errorf("open the health port: %w", err)
	}
	seedToken := o.Env(seedTokenVar)
	n := &node{
		peerID:    PeerID(key.Public().(ed25519.PublicKey)),
		addr:      ln.Addr().(*net.TCPAddr),
		startedAt: time.Now().UTC(),
		seedHash:  sha256.Sum256([]byte(seedToken)),
		hasSeed:   seedToken != "",
		owners:    owners,
		log:       log.New(o.Log, "", 0),
		book:      book,
	}
	return n.serve(ctx, ln, o, h)
}

// serve answers on ln until ctx ends. It closes ln and waits for its server, whatever happens.
func (n *node) serve(ctx context.Context, ln net.Listener, o Options, h hooks) error {
	server := &http.Server{
		Handler:           n.handler(),
		ErrorLog:          n.log,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	if h.listening != nil {
		h.listening(n.addr)
	}

	// The token comes last: whoever sees it may ask at once, and is told that the node is healthy.
	n.phase.Store(int32(healthy))
	if o.StartupTokenFile != "" {
		if err := writeFile(o.StartupTokenFile, []byte(o.Env(startupTokenVar)), os.Rename); err != nil {
			_ = server.Close()
			<-ended
			return fmt.Errorf("write the startup token to %s (its directory must exist and be writable): %w", o.StartupTokenFile, err)
		}
	}
	n.log.Printf("node %s serves on %s", n.peerID, n.addr)

	select {
	case err := <-ended:
		return fmt.Errorf("the health port closed: %w", err)
	case <-ctx.Done():
	}
	n.phase.Store(int32(stopping))
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.grace)
	defer cancel()
	if err := server.Shutdown(stop); err != nil {
		_ = server.Close() // somebody's request is stuck; it doesn't keep a node alive
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the health port closed: %w", err)
	}
	n.log.Printf("node %s stopped", n.peerID)
	return nil
}
