// This file tests the client against a node, and against nodes that misbehave.

package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestClientTellsAWrongTokenFromARejection(t *testing.T) {
	pub, priv := owner(t)
	_, stranger := owner(t)
	r := startNode(t, t.TempDir(), environment(pub), hooks{})
	if got, err := r.Seed(t.Context(), "wrong", sign(t, priv, "/x")); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("wrong token: %+v, %v", got, err)
	}
	got, err := r.Seed(t.Context(), testToken, sign(t, stranger, "/x"))
	if err != nil || got.Success || !strings.Contains(got.Error, "none of this node's owner keys") {
		t.Errorf("a stranger's seed: %+v, %v", got, err)
	}
	if _, err := r.Seed(t.Context(), testToken, make([]byte, MaxBody)); err == nil || !strings.Contains(err.Error(), "a node takes at most") {
		t.Errorf("a seed that is too large: %v", err)
	}
	if s, err := r.Status(t.Context()); err != nil || s.Seeds != 0 {
		t.Errorf("after refusals only: %+v, %v", s, err)
	}
}

// answering is a node that answers everything alike.
func answering(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func TestClientReadsSeedAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		code   int
		body   string
		want   SeedResult
		failed string // what the error says
	}{
		"accepted":           {200, `{"success":true,"peersAdded":3}`, SeedResult{Success: true, PeersAdded: 3}, ""},
		"nothing new":        {200, `{"success":true,"more":1}`, SeedResult{Success: true}, ""},
		"rejected":           {200, `{"success":false,"error":"no"}`, SeedResult{Error: "no"}, ""},
		"rejected with 422":  {422, `{"success":false,"error":"no","peersAdded":9}`, SeedResult{Error: "no"}, ""},
		"no reason":          {200, `{}`, SeedResult{Error: "the node gave no reason"}, ""},
		"escapes":            {200, `{"error":"\u001b[2Jno\nway"}`, SeedResult{Error: " [2Jno way"}, ""},
		"wordy":              {200, fmt.Sprintf(`{"error":%q}`, strings.Repeat("é", 1000)), SeedResult{Error: strings.Repeat("é", maxReason) + "…"}, ""},
		"unauthorized":       {401, `{"success":false,"error":"no"}`, SeedResult{}, ErrUnauthorized.Error()},
		"unreadable":         {200, `<html>`, SeedResult{}, "can't be read"},
		"success as failure": {400, `{"success":true}`, SeedResult{}, "contradicts itself"},
		"negative":           {200, `{"success":true,"peersAdded":-1}`, SeedResult{}, "contradicts itself"},
		"broken":             {500, `{"success":false,"error":"disk"}`, SeedResult{}, "answered 500"},
		"no such thing":      {404, `{"error":"no"}`, SeedResult{}, "answered 404"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answering(tc.code, tc.body))
			defer server.Close()
			got, err := (&Client{Base: server.URL + "/"}).Seed(t.Context(), testToken, []byte("seed"))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("result (-want +got)\n%s", diff)
			}
			if (err != nil) != (tc.failed != "") || (err != nil && !strings.Contains(err.Error(), tc.failed)) {
				t.Errorf("error %v, want %q", err, tc.failed)
			}
		})
	}
}

func TestClientBoundsWhatANodeAnswers(t *testing.T) {
	for words, h := range map[string]http.HandlerFunc{
		"larger than":   answering(http.StatusOK, strings.Repeat("x", MaxBody+1)),
		"can't be read": answering(http.StatusOK, "<html>"),
		"answered 302": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		},
		"answered 500": answering(http.StatusInternalServerError, ""),
		"EOF":          func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		server := httptest.NewServer(h)
		if s, err := (&Client{Base: server.URL}).Status(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %+v, %v", words, s, err)
		}
		server.Close()
	}
	if err := (&Client{Base: "http://bad host"}).Health(t.Context()); err == nil {
		t.Error("a bad base was asked")
	}
}

// roundTrip is a node that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestClientGivesEveryRequestADeadline(t *testing.T) {
	hang := &Client{Base: "http://node", HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}}
	for name, tc := range map[string]struct{ given, want time.Duration }{
		"none given": {0, DefaultTimeout},
		"shorter":    {time.Second, time.Second},
		"longer":     {time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tc.given > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.given)
					defer cancel()
				}
				begun := time.Now()
				err := hang.Health(ctx)
				if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != tc.want {
					t.Errorf("%v after %s, want a deadline after %s", err, took, tc.want)
				}
			})
		})
	}
}
