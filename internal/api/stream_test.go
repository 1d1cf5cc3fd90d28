// This file tests the answers that go on: a node's output and the event log.

package api

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestEventsAreFollowedWithoutGaps(t *testing.T) {
	b := &scripted{donation: func(_ context.Context, ref string) (View, error) { return View{ID: "don_a"}, nil }}
	for range 3 {
		b.add("don_a", "first")
		b.add("don_b", "first")
	}
	c, _ := open(t, b)

	page, err := c.Events(t.Context(), "", 2, 2)
	if err != nil || len(page) != 2 || page[0].Seq != 3 {
		t.Errorf("a page after 2: %v, %v", page, err)
	}
	if page, err = c.Events(t.Context(), "", 6, 2); err != nil || len(page) != 0 {
		t.Errorf("a page after the last: %v, %v", page, err)
	}

	var got []int64
	done := errors.New("seen enough")
	err = c.FollowEvents(t.Context(), "cache", 1, time.Minute, func(e donation.Event) error {
		got = append(got, e.Seq)
		switch e.Seq {
		case 5:
			b.add("don_b", "later")
			b.add("don_a", "later")
		case 8:
			b.add("don_a", "last")
		case 9:
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Errorf("the stream ended with %v", err)
	}
	if diff := cmp.Diff([]int64{3, 5, 8, 9}, got); diff != "" {
		t.Error(diff)
	}
}

func TestEventsFollowBeginsAtTheNewest(t *testing.T) {
	b := &scripted{}
	b.add("don_a", "old")
	c, _ := open(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, end, err := c.stream(ctx, "/v1/events?follow", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	defer body.Close()
	b.add("don_a", "new") // the head of the answer is here, so the stream has begun
	line := make([]byte, 200)
	n, err := body.Read(line)
	if err != nil || !strings.Contains(string(line[:n]), `"kind":"new"`) {
		t.Errorf("read %q, %v", line[:n], err)
	}
}

func TestLogsAreCopiedAndFollowed(t *testing.T) {
	b := &scripted{
		donation: func(_ context.Context, ref string) (View, error) {
			if ref == "nosuch" {
				return View{}, donation.Errorf(donation.CodeNotFound, "no donation is called nosuch")
			}
			return View{ID: "don_a"}, nil
		},
		logs: func(ctx context.Context, ref string, lines int, follow bool, w io.Writer) error {
			if ref == "nosuch" {
				return donation.Errorf(donation.CodeNotFound, "no donation is called nosuch")
			}
			_, err := io.WriteString(w, strings.Repeat("line\n", lines))
			if follow && err == nil {
				<-ctx.Done()
			}
			return err
		},
	}
	c, e := open(t, b)
	var out strings.Builder
	if err := c.Logs(t.Context(), "cache", 2, false, 0, &out); err != nil || out.String() != "line\nline\n" {
		t.Errorf("Logs wrote %q, %v", out.String(), err)
	}
	out.Reset()
	if err := c.Logs(t.Context(), "cache", 0, false, 0, &out); err != nil || out.String() != "" {
		t.Errorf("no lines: %q, %v", out.String(), err)
	}
	for _, follow := range []bool{false, true} {
		if err := c.Logs(t.Context(), "nosuch", 2, follow, 0, &out); donation.CodeOf(err) != donation.CodeNotFound {
			t.Errorf("follow %v of an unknown donation: %v", follow, err)
		}
	}

	// A follower sees each line as it comes, and the daemon's leaving as what it is.
	pr, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- c.Logs(t.Context(), "cache", 1, true, time.Minute, pw) }()
	line := make([]byte, 5)
	if _, err := io.ReadFull(pr, line); err != nil || string(line) != "line\n" {
		t.Errorf("the follower read %q, %v", line, err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Errorf("close with a follower: %v", err)
	}
	if err := <-ended; !errors.Is(err, ErrNotRunning) {
		t.Errorf("the follower ended with %v", err)
	}
}

func TestFollowersEndWithTheirContext(t *testing.T) {
	c, _ := open(t, &scripted{})
	ctx, cancel := context.WithCancel(t.Context())
	b := make(chan error, 1)
	go func() { b <- c.FollowEvents(ctx, "", -1, time.Minute, func(donation.Event) error { return nil }) }()
	cancel()
	if err := <-b; !errors.Is(err, context.Canceled) {
		t.Errorf("the follower ended with %v", err)
	}
}
