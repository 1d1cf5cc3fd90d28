// This file holds the domain's error value and its codes; each code maps to one HTTP status and one exit code.

package donation

import (
	"errors"
	"fmt"
)

// Code classifies an Error for machines.
type Code string

// The codes.
const (
	CodeInvalidRequest  Code = "invalid_request"
	CodeUnknownTemplate Code = "unknown_template"
	CodeNotFound        Code = "not_found"
	CodeAmbiguous       Code = "ambiguous"
	CodeNameTaken       Code = "name_taken"
	CodeInvalidState    Code = "invalid_state"
	CodePortsExhausted  Code = "ports_exhausted"
	CodeSpawnFailed     Code = "spawn_failed"
	CodeStillStopping   Code = "still_stopping"
	CodeUnavailable     Code = "unavailable"
	// CodeSeedRejected: the node judged the seed and didn't want it; nothing was written.
	CodeSeedRejected Code = "seed_rejected"
	// CodeSeedFailed: the node refused the host's own credential; it says nothing about the seed.
	CodeSeedFailed Code = "seed_failed"
	// CodePeerUnavailable: the node doesn't run, doesn't answer, or has no address yet.
	CodePeerUnavailable Code = "peer_unavailable"
	// CodeAbandoned: an ending landed meanwhile, and stands.
	CodeAbandoned Code = "abandoned"
	CodeInternal  Code = "internal"
)

// Error is what the service returns for everything a caller can act on: Message names the thing, the
// reason and the remedy.
type Error struct {
	Code    Code
	Message string
	// Err is the cause, if there is one.
	Err error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Errorf builds an Error; a %w in format becomes its cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// CodeOf returns the code of the first Error in err's chain, CodeInternal if there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
