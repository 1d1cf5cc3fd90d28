// This file holds how errors travel: RFC 9457 problem documents whose "code" is a donation.Code, and the
// one table that maps codes to HTTP statuses.

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// problemType is the media type of every answer that isn't a success.
const problemType = "application/problem+json"

// Problem is the body of every answer that isn't a success. Clients act on Code; Detail is for people.
type Problem struct {
	// Type is always "about:blank": Title is then the status in words.
	Type   string        `json:"type"`
	Title  string        `json:"title"`
	Status int           `json:"status"`
	Detail string        `json:"detail"`
	Code   donation.Code `json:"code"`
}

// statuses maps every code to the HTTP status that its problem is sent with.
var statuses = map[donation.Code]int{
	donation.CodeInvalidRequest:  http.StatusBadRequest,
	donation.CodeUnknownTemplate: http.StatusUnprocessableEntity,
	donation.CodeNotFound:        http.StatusNotFound,
	donation.CodeAmbiguous:       http.StatusConflict,
	donation.CodeNameTaken:       http.StatusConflict,
	donation.CodeInvalidState:    http.StatusConflict,
	donation.CodePortsExhausted:  http.StatusServiceUnavailable,
	donation.CodeSpawnFailed:     http.StatusBadGateway,
	donation.CodeStillStopping:   http.StatusGatewayTimeout,
	donation.CodeUnavailable:     http.StatusServiceUnavailable,
	donation.CodeSeedRejected:    http.StatusUnprocessableEntity,
	donation.CodeSeedFailed:      http.StatusBadGateway,
	donation.CodePeerUnavailable: http.StatusServiceUnavailable,
	donation.CodeAbandoned:       http.StatusConflict,
	donation.CodeInternal:        http.StatusInternalServerError,
}

// StatusOf returns the HTTP status for a code, 500 for one that isn't known.
func StatusOf(code donation.Code) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// problemOf describes err. An error without a code of its own is internal, save one that only says that
// the caller or the daemon is going away.
func problemOf(err error) Problem {
	code := donation.CodeOf(err)
	if code == donation.CodeInternal && errors.Is(err, context.Canceled) {
		code = donation.CodeUnavailable
	}
	status := StatusOf(code)
	return Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: err.Error(), Code: code}
}

// writeProblem sends err; the caller must not have written anything yet.
func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone if this fails
}
