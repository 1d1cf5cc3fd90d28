// This file holds what is fixed for the life of a guard: its configuration, the defaults and their checks.

package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
)

// The range that nodes' users come from unless the configuration says otherwise, and the lowest uid that
// it may ever name: what is below belongs to the system on every common distribution.
const (
	DefaultUIDMin = 70000
	DefaultUIDMax = 99999
	systemUIDMax  = 999
)

// Ways of following a node's tree; Hello.Tracking and Config.Tracking.
const (
	// TrackingCgroup: a cgroup2 directory a node. Nothing escapes it.
	TrackingCgroup = "cgroup2"
	// TrackingSession: session, ancestry and environment, for hosts without a writable cgroup2. A process that
	// daemonises, changes its session and clears its environment escapes an adoption.
	TrackingSession = "session"
)

// Config is what a guard may do. It comes from its command line and a file that only root may write
// (LoadLimits), never from a request.
type Config struct {
	// RuntimeDir holds guard.lock, guard.sock and spawns/. It is made if missing; an existing one must
	// belong to the guard's user or root and be writable by nobody else.
	RuntimeDir string
	// NodesDir holds <donation>/work and <donation>/log. A root guard's nodes have users of their own, so
	// every directory above it must be searchable by others.
	NodesDir string
	// CgroupParent is the cgroup2 directory, relative to the mount, under which each node gets one. Empty means a child
	// of the guard's own, named after the runtime directory so that two guards don't share it.
	CgroupParent string
	// Tracking forces TrackingSession if it says so. Empty means cgroup2 where it works, else session.
	Tracking string
	// PeerUID is the user, besides the guard's own, whose connections are answered; negative means nobody else's.
	PeerUID int
	// UIDMin and UIDMax are the users that requests may name, for a root guard. Zero means the defaults. Root
	// and users below 1000 are refused whatever they say.
	UIDMin, UIDMax uint32
	// MaxTTL is the longest lease that may be asked for; 0 means no bound.
	MaxTTL time.Duration
	// Executables are what requests may run: absolute paths, or directories ending in "/". Empty means
	// anything. SelfCommand is always allowed.
	Executables []string
	// ExitWhenIdle makes the guard leave once no client is connected, no process lives and no exit is
	// unacknowledged.
	ExitWhenIdle bool
	// Replace kills a guard that holds the lock, through its pidfd, before taking over.
	Replace bool
	// Version is told to clients.
	Version string
	// Logger takes the guard's own log; nil discards it.
	Logger *zap.Logger
}

// withDefaults returns the configuration with its gaps filled in, or says which value is wrong.
func (c Config) withDefaults() (Config, error) {
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if os.Getuid() == 0 {
		if c.UIDMin == 0 {
			c.UIDMin = DefaultUIDMin
		}
		if c.UIDMax == 0 {
			c.UIDMax = max(DefaultUIDMax, c.UIDMin)
		}
		if c.UIDMin <= systemUIDMax {
			return c, fmt.Errorf("uid_min %d: nodes never run as root or as a user of the system; name 1000 or more", c.UIDMin)
		}
		if c.UIDMax < c.UIDMin {
			return c, fmt.Errorf("uid_max %d is less than uid_min %d", c.UIDMax, c.UIDMin)
		}
	} else {
		c.UIDMin, c.UIDMax = 0, 0
	}
	for _, dir := range []*string{&c.RuntimeDir, &c.NodesDir} {
		if *dir == "" {
			return c, errors.New("the runtime directory and the nodes directory must be named")
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return c, fmt.Errorf("directory %q: %w", *dir, err)
		}
		*dir = abs
	}
	if c.Tracking != "" && c.Tracking != TrackingCgroup && c.Tracking != TrackingSession {
		return c, fmt.Errorf("tracking %q: it is %q, %q or empty", c.Tracking, TrackingCgroup, TrackingSession)
	}
	if c.MaxTTL < 0 {
		return c, fmt.Errorf("max_ttl %s is negative", c.MaxTTL)
	}
	for _, e := range c.Executables {
		if !filepath.IsAbs(e) || filepath.Clean(e) != strings.TrimSuffix(e, "/") {
			return c, fmt.Errorf("executables: %q is neither an absolute path nor a directory ending in \"/\"", e)
		}
	}
	return c, nil
}

// allows reports whether requests may run the executable at path, which is absolute.
func (c Config) allows(path string) bool {
	if len(c.Executables) == 0 {
		return true
	}
	path = filepath.Clean(path)
	for _, e := range c.Executables {
		if path == e || strings.HasSuffix(e, "/") && strings.HasPrefix(path, e) {
			return true
		}
	}
	return false
}

// socketPath, lockPath and spoolDir are where a guard with this runtime directory keeps things.
func socketPath(runtimeDir string) string { return filepath.Join(runtimeDir, "guard.sock") }
func lockPath(runtimeDir string) string   { return filepath.Join(runtimeDir, "guard.lock") }
func spoolDir(runtimeDir string) string   { return filepath.Join(runtimeDir, "spawns") }

// SocketPath returns the socket of the guard whose runtime directory is given.
func SocketPath(runtimeDir string) string { return socketPath(runtimeDir) }

// LogPath returns the log of a guard that SpawnDetached started.
func LogPath(runtimeDir string) string { return filepath.Join(runtimeDir, "guard.log") }

// NodeLog returns the path of a donation's log; the part before it was truncated has ".1" appended.
func NodeLog(nodesDir, donation string) string {
	return filepath.Join(nodesDir, donation, logDirName, logName)
}

// Workdir returns the path of a donation's workdir.
func Workdir(nodesDir, donation string) string { return filepath.Join(nodesDir, donation, workDirName) }

const (
	workDirName = "work"
	logDirName  = "log"
	logName     = "node.log"
)
