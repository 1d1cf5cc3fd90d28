// Package guard is the guard process: parent (and subreaper) of every node. It prepares workdirs, forks and
// execs, reaps, keeps exit statuses until the daemon has stored them, and stops what it is told to stop.
// It decides nothing and knows no database.
//
// This file holds the wire types of its HTTP/JSON protocol, shared by server and client.
package guard

import "time"

// Protocol is the version of the wire protocol; it is the first element of every path ("/v1/start").
const Protocol = 1

// Hello says who the guard is and what it may do. None of it can be changed by a request.
type Hello struct {
	// Instance is a fresh random id for each guard process.
	Instance string `json:"instance"`
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	PID      int    `json:"pid"`
	BootID   string `json:"boot_id"`
	// NodesDir is the absolute directory that holds <donation>/work and <donation>/log.
	NodesDir string `json:"nodes_dir"`
	// Root is true when the guard can give nodes users of their own; then UIDMin..UIDMax is the allowed
	// range and every start must name a uid in it. Otherwise nodes run as the guard's user.
	Root   bool   `json:"root"`
	UIDMin uint32 `json:"uid_min,omitempty"`
	UIDMax uint32 `json:"uid_max,omitempty"`
	// Tracking is how a node's tree is followed: "cgroup2" or "session".
	Tracking string `json:"tracking"`
	// Controllers are the cgroup controllers through which limits are enforced; the rest are rlimits.
	Controllers []string `json:"controllers,omitempty"`
	// MaxTTL is the longest lease that may be asked for; 0 means no bound.
	MaxTTL time.Duration `json:"max_ttl,omitempty"`
}

// StartRequest is POST /v1/start: start this spawn, or tell how far it is. Idempotent by Spawn.
type StartRequest struct {
	Spawn    string `json:"spawn"`
	Donation string `json:"donation"`
	// UID is the user (and group) to run as; 0 when the guard isn't root.
	UID uint32 `json:"uid,omitempty"`
	// Command is an absolute path, a name looked up in Env's PATH, or SelfCommand.
	Command string `json:"command"`
	// Args are the arguments after argv[0].
	Args []string `json:"args,omitempty"`
	// Env is the whole environment, "NAME=value" each.
	Env []string `json:"env,omitempty"`
	// Files are written beneath the workdir, as the node's user, before exec.
	Files  []File `json:"files,omitempty"`
	Limits Limits `json:"limits"`
	// StopSignal is a number; Grace is how long it may take before the whole tree is killed.
	StopSignal int           `json:"stop_signal"`
	Grace      time.Duration `json:"grace"`
	// Notify asks for an sd_notify socket, named to the node in NOTIFY_SOCKET.
	Notify bool `json:"notify,omitempty"`
	// LogMax bounds the node's log, in bytes.
	LogMax int64 `json:"log_max"`
	// TTL is the lease: how long the node runs on after its start or its last renewal. 0 means no lease.
	TTL time.Duration `json:"ttl,omitempty"`
}

// SelfCommand as a StartRequest's Command runs the guard's own executable (the reference node).
const SelfCommand = "@self"

// File is one file of a start request.
type File struct {
	// Path is relative to the workdir.
	Path    string `json:"path"`
	Content string `json:"content"`
	// Mode is the permission bits; 0 means 0600.
	Mode uint32 `json:"mode,omitempty"`
}

// Limits bound a node. Zero values are the documented defaults (docs/templates.md).
type Limits struct {
	// Memory in bytes, CPU in cores, Pids in processes and threads, NoFile in descriptors.
	Memory int64   `json:"memory,omitempty"`
	CPU    float64 `json:"cpu,omitempty"`
	Pids   int64   `json:"pids,omitempty"`
	NoFile uint64  `json:"nofile,omitempty"`
	// OOMScoreAdj is added to the default of 300 that makes the kernel prefer nodes to the guard.
	OOMScoreAdj int `json:"oom_score_adj,omitempty"`
}

// State is where a process is at the guard.
type State string

// The states; they move down this list only.
const (
	StateStarting State = "starting"
	StateRunning  State = "running"
	// StateStopping: the stop signal was sent, or the main process has ended and its tree is being killed.
	StateStopping State = "stopping"
	// StateExited: the whole tree is gone; kept until acknowledged.
	StateExited State = "exited"
	// StateForgotten: acknowledged; sent once on the stream, then gone.
	StateForgotten State = "forgotten"
)

// Process is one spawn as the guard knows it.
type Process struct {
	Spawn    string `json:"spawn"`
	Donation string `json:"donation"`
	State    State  `json:"state"`
	PID      int    `json:"pid,omitempty"`
	BootID   string `json:"boot_id,omitempty"`
	// StartTime is field 22 of /proc/pid/stat: clock ticks since boot.
	StartTime uint64    `json:"start_time,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	// Adopted is true when this guard isn't its parent.
	Adopted bool `json:"adopted,omitempty"`
	// Notified is true once the node has sent READY=1 to its notify socket.
	Notified bool `json:"notified,omitempty"`
	// StopReason is the reason given with the stop, empty if nobody asked for it.
	StopReason string    `json:"stop_reason,omitempty"`
	StopSince  time.Time `json:"stop_since,omitzero"`
	// TTL is the lease's, 0 if there is none; LeaseLeft is what was left of it when this was written.
	TTL       time.Duration `json:"ttl,omitempty"`
	LeaseLeft time.Duration `json:"lease_left,omitempty"`
	KillSince time.Time     `json:"kill_since,omitzero"`
	Exit      *Exit         `json:"exit,omitempty"`
}

// Exit is how a process ended.
type Exit struct {
	// Known is false when the kernel could no longer tell the status.
	Known  bool          `json:"known"`
	Code   int           `json:"code"`
	Signal int           `json:"signal,omitempty"`
	OOM    bool          `json:"oom,omitempty"`
	CPU    time.Duration `json:"cpu,omitempty"`
	MaxRSS int64         `json:"max_rss,omitempty"`
	At     time.Time     `json:"at"`
	// Message explains an end that the numbers don't, e.g. that the guard was lost while starting.
	Message string `json:"message,omitempty"`
}

// StopRequest is POST /v1/stop. The answer comes when the signal is sent; the exit comes on the stream.
// A spawn that isn't known or has exited is a success (Found false).
type StopRequest struct {
	Spawn  string `json:"spawn"`
	Reason string `json:"reason"`
	// Force skips signal and grace, also in the middle of a grace.
	Force bool `json:"force,omitempty"`
}

// StopResponse answers a StopRequest.
type StopResponse struct {
	Found bool `json:"found"`
}

// AckRequest is POST /v1/ack: these exits are on record; forget them. Unknown ones are ignored, ones that
// have not exited are refused (CodeNotExited) and nothing is forgotten.
type AckRequest struct {
	Spawns []string `json:"spawns"`
}

// ReclaimRequest is POST /v1/reclaim: delete the donation's directory. CodeBusy while a process lives.
type ReclaimRequest struct {
	Donation string `json:"donation"`
}

// RenewRequest is POST /v1/renew: these nodes may run on for one TTL from now. One that has no lease gets one. A
// TTL that isn't allowed refuses all (CodeRefused).
type RenewRequest struct {
	Leases []Lease `json:"leases"`
}

// Lease is one renewal.
type Lease struct {
	Spawn string        `json:"spawn"`
	TTL   time.Duration `json:"ttl"`
}

// RenewResponse answers a RenewRequest. Gone are the spawns that don't exist or have exited.
type RenewResponse struct {
	Gone []string `json:"gone,omitempty"`
}

// ReadyRequest is POST /v1/ready: does the file beneath the workdir have this content (white space at the
// ends ignored)? For a spawn that isn't running the answer is no.
type ReadyRequest struct {
	Spawn   string `json:"spawn"`
	Path    string `json:"path"`
	Content string `json:"content"`
}

// ReadyResponse answers a ReadyRequest.
type ReadyResponse struct {
	Ready bool `json:"ready"`
}

// Message is one line of GET /v1/watch (JSON lines). The first has Hello and List (all processes,
// unacknowledged exits included); each later one has Process, whenever its state changes.
type Message struct {
	Hello   *Hello    `json:"hello,omitempty"`
	List    []Process `json:"list,omitempty"`
	Process *Process  `json:"process,omitempty"`
}

// Code classifies an Error on the wire.
type Code string

// The codes.
const (
	// CodeBusy: a process of the donation is alive.
	CodeBusy Code = "busy"
	// CodeFailed: the spawn could not be started, definitely; Message has the errno in words.
	CodeFailed Code = "failed"
	// CodeTransient: not started for a reason that passes (ETXTBSY, EMFILE, ENFILE, EAGAIN).
	CodeTransient Code = "transient"
	// CodeRefused: the request asks for what the guard's own limits forbid; definite.
	CodeRefused Code = "refused"
	// CodeInvalid: the request is malformed; definite.
	CodeInvalid Code = "invalid"
	// CodeNotExited: an acknowledgement of a process that is alive.
	CodeNotExited Code = "not_exited"
	// CodeStopping: the guard is stopping or handing over and starts nothing; try the next one.
	CodeStopping Code = "stopping"
)

// Error is the body of every answer that isn't 200, and what the client returns for it.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }
