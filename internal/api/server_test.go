// This file tests the server through the client, and what the client can't send through raw requests.

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestServerPassesOnWhatItIsAsked(t *testing.T) {
	var asked []string
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	view := View{
		ID: "don_1", Template: "redis", Status: donation.Seeded, PID: 7, StartedAt: &at,
		Ports: map[string]int{"client": 10001}, CreatedAt: at, UpdatedAt: at,
	}
	b := &scripted{
		overview: func() Overview { return Overview{Mode: "running", PID: 42} },
		donations: func(all bool) ([]View, error) {
			asked = append(asked, fmt.Sprint("list ", all))
			return []View{view}, nil
		},
		donation: func(_ context.Context, ref string) (View, error) {
			asked = append(asked, "get "+ref)
			return view, nil
		},
		donate: func(r donation.Request) (View, error) {
			asked = append(asked, "donate "+r.Template+" "+r.Name)
			return view, nil
		},
		terminate: func(ctx context.Context, ref string, force bool) (View, error) {
			asked = append(asked, fmt.Sprint("terminate ", ref, " ", force))
			return view, nil
		},
	}
	c, _ := open(t, b)
	ctx := t.Context()
	o, err := c.Overview(ctx)
	if err != nil || o.PID != 42 {
		t.Errorf("Overview = %+v, %v", o, err)
	}
	list, err := c.Donations(ctx, true)
	if diff := cmp.Diff([]View{view}, list); err != nil || diff != "" {
		t.Errorf("Donations: %v\n%s", err, diff)
	}
	for name, do := range map[string]func() (View, error){
		"get":       func() (View, error) { return c.Donation(ctx, "my/odd name?") },
		"donate":    func() (View, error) { return c.Donate(ctx, donation.Request{Template: "redis", Name: "cache"}) },
		"terminate": func() (View, error) { return c.Terminate(ctx, "cache", true) },
	} {
		v, err := do()
		if diff := cmp.Diff(view, v); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	slices.Sort(asked)
	want := []string{"donate redis cache", "get my/odd name?", "list true", "terminate cache true"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
	if v, err := c.Restart(ctx, "cache"); err != nil || v.Message != "restarted" {
		t.Errorf("Restart = %+v, %v", v, err)
	}
	if v, err := c.Retry(ctx, "cache"); err != nil || v.Message != "retried" {
		t.Errorf("Retry = %+v, %v", v, err)
	}
}

func TestServerErrorsKeepTheirCode(t *testing.T) {
	for code, status := range statuses {
		b := &scripted{donation: func(context.Context, string) (View, error) {
			return View{}, donation.Errorf(code, "the thing, the reason and the remedy")
		}}
		c, _ := open(t, b)
		_, err := c.Donation(t.Context(), "x")
		if donation.CodeOf(err) != code || err.Error() != "the thing, the reason and the remedy" {
			t.Errorf("%s arrived as %s: %v", code, donation.CodeOf(err), err)
		}
		resp, err := c.send(t.Context(), http.MethodGet, "/v1/donations/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		var p Problem
		err = json.NewDecoder(resp.Body).Decode(&p)
		_ = resp.Body.Close()
		want := Problem{
			Type: "about:blank", Title: http.StatusText(status), Status: status,
			Detail: "the thing, the reason and the remedy", Code: code,
		}
		if diff := cmp.Diff(want, p); err != nil || diff != "" || resp.StatusCode != status || resp.Header.Get("Content-Type") != problemType {
			t.Errorf("%s: %d %s %v\n%s", code, resp.StatusCode, resp.Header.Get("Content-Type"), err, diff)
		}
	}
}

func TestServerRefusesWhatItDoesNotKnow(t *testing.T) {
	c, _ := open(t, &scripted{donate: func(donation.Request) (View, error) { return View{}, nil }})
	big := `{"template":"` + strings.Repeat("x", maxBody) + `"}`
	for _, tc := range []struct {
		name, method, path, body string
		code                     donation.Code
		words                    string
	}{
		{"unknown path", "GET", "/v1/nothing", "", donation.CodeNotFound, "same version"},
		{"old version", "GET", "/v0/overview", "", donation.CodeNotFound, "same version"},
		{"wrong method", "DELETE", "/v1/overview", "", donation.CodeNotFound, "DELETE"},
		{"unknown field", "POST", "/v1/donations", `{"template":"x","command":"rm"}`, donation.CodeInvalidRequest, `"command"`},
		{"field where none is", "POST", "/v1/donations/x/restart", `{"force":true}`, donation.CodeInvalidRequest, `"force"`},
		{"not JSON", "POST", "/v1/donations", `template=x`, donation.CodeInvalidRequest, "invalid character"},
		{"two documents", "POST", "/v1/donations", `{} {}`, donation.CodeInvalidRequest, "more follows"},
		{"too big", "POST", "/v1/donations", big, donation.CodeInvalidRequest, "larger than 65536 bytes"},
		{"bad boolean", "GET", "/v1/donations?all=maybe", "", donation.CodeInvalidRequest, "all=maybe"},
		{"bad number", "GET", "/v1/events?after=x", "", donation.CodeInvalidRequest, "after=x"},
		{"low limit", "GET", "/v1/events?limit=0", "", donation.CodeInvalidRequest, "1 or more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://x"+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			err = problemIn(resp)
			if donation.CodeOf(err) != tc.code || !strings.Contains(fmt.Sprint(err), tc.words) {
				t.Errorf("got %s: %v; want %s with %q", donation.CodeOf(err), err, tc.code, tc.words)
			}
		})
	}
}

func TestServerSurvivesPanics(t *testing.T) {
	core, logged := observer.New(zapcore.ErrorLevel)
	b := &scripted{
		overview: func() Overview { panic("a mistake") },
		logs: func(_ context.Context, _ string, _ int, _ bool, w io.Writer) error {
			_, _ = io.WriteString(w, "half a line")
			panic("a late mistake")
		},
		donations: func(bool) ([]View, error) { return nil, nil },
	}
	c, _ := openLogged(t, b, zap.New(core))
	if _, err := c.Overview(t.Context()); donation.CodeOf(err) != donation.CodeInternal || !strings.Contains(err.Error(), "a mistake") {
		t.Errorf("a panic arrived as %v", err)
	}
	if err := c.Logs(t.Context(), "x", 1, false, 0, io.Discard); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a panic in the middle of an answer arrived as %v", err)
	}
	if list, err := c.Donations(t.Context(), false); err != nil || len(list) != 0 {
		t.Errorf("after a panic: %v, %v", list, err)
	}
	if n := logged.FilterMessage("a request handler panicked").Len(); n != 2 {
		t.Errorf("%d panics were logged, want 2", n)
	}
}

func TestServerLogsInternalErrorsOnly(t *testing.T) {
	core, logged := observer.New(zapcore.ErrorLevel)
	b := &scripted{donation: func(_ context.Context, ref string) (View, error) {
		if ref == "disk" {
			return View{}, errors.New("disk full")
		}
		return View{}, donation.Errorf(donation.CodeNotFound, "no such donation")
	}}
	c, _ := openLogged(t, b, zap.New(core))
	for _, ref := range []string{"nosuch", "disk"} {
		if _, err := c.Donation(t.Context(), ref); err == nil {
			t.Errorf("%s: no error", ref)
		}
	}
	if n := logged.Len(); n != 1 {
		t.Errorf("%d errors were logged, want 1: %v", n, logged.All())
	}
}

func TestTerminateIsAnsweredBeforeTheClientGivesUp(t *testing.T) {
	b := &scripted{terminate: func(ctx context.Context, ref string, _ bool) (View, error) {
		<-ctx.Done()
		return View{}, donation.Errorf(donation.CodeStillStopping, "%s is still stopping", ref)
	}}
	c, _ := open(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := c.Terminate(ctx, "slow", false); donation.CodeOf(err) != donation.CodeStillStopping {
		t.Errorf("a slow end arrived as %v", err)
	}
}

func TestSeedTravelsWholeAndBounded(t *testing.T) {
	var got []byte
	c, _ := open(t, &scripted{seed: func(seed []byte) (donation.SeedResult, error) {
		got = seed
		return donation.SeedResult{Accepted: true, PeersAdded: 4}, nil
	}})
	seed := bytes.Repeat([]byte{0, 0xff, '"'}, 80_000) // larger than any other request may be
	result, err := c.Seed(t.Context(), "a", seed)
	if err != nil || result.PeersAdded != 4 || !bytes.Equal(got, seed) {
		t.Errorf("%+v, %d bytes, %v", result, len(got), err)
	}
	for _, bad := range [][]byte{nil, bytes.Repeat([]byte{1}, 600<<10)} {
		if _, err := c.Seed(t.Context(), "a", bad); donation.CodeOf(err) != donation.CodeInvalidRequest {
			t.Errorf("a seed of %d bytes: %v", len(bad), err)
		}
	}
	if peer, err := c.Peer(t.Context(), "a"); err != nil || peer.ID != "peer of a" || len(peer.Addrs) != 1 {
		t.Errorf("peer: %+v, %v", peer, err)
	}
}
