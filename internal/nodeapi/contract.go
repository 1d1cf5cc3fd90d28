// Package nodeapi is a node's own HTTP contract (docs/node-contract.md): its client, and the reference node
// that this binary carries.
//
// On its health port a node serves GET /health, /ready, /status and /metrics, and POST /seed with
// "Authorization: Bearer <seed token>". This file holds what both sides share: the bodies and their bound.
package nodeapi

import "time"

// MaxBody bounds the body of a seed request and every answer of a node, in bytes.
const MaxBody = 256 << 10

// Status is the answer to GET /status.
type Status struct {
	// PeerID is the node's name among its peers; the reference node's is made by PeerID.
	PeerID     string   `json:"peerId"`
	Multiaddrs []string `json:"multiaddrs"`
	// StartedAt is when this process began; a node that doesn't tell leaves it zero.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Seeds counts the seeds that the node keeps, over all its starts.
	Seeds int `json:"seeds"`
	// PID is the node's own, as it sees itself.
	PID int `json:"pid,omitempty"`
}

// SeedRequest is the body of POST /seed.
type SeedRequest struct {
	// Seed is the seed document in base64url.
	Seed string `json:"seed"`
}

// SeedResult is the answer to POST /seed.
type SeedResult struct {
	Success bool `json:"success"`
	// PeersAdded counts the peers that the node didn't know before.
	PeersAdded int `json:"peersAdded,omitempty"`
	// Error says why the seed was rejected.
	Error string `json:"error,omitempty"`
}
