// This file tests the table of states and the decisions, which are pure.

package guard

import (
	"strings"
	"testing"
	"time"
)

var (
	allStates = []State{StateStarting, StateRunning, StateStopping, StateExited, StateForgotten}
	allEvents = []event{eventStop, eventForce, eventGraceOver, eventMainEnded, eventSurvivors, eventTreeGone}
)

func TestStatesMoveOneWay(t *testing.T) {
	rank := map[State]int{}
	for i, s := range allStates {
		rank[s] = i
	}
	for _, from := range allStates {
		for _, to := range allStates {
			err := checkMove(from, to)
			if err == nil && rank[to] <= rank[from] {
				t.Errorf("%s to %s goes back", from, to)
			}
			if err != nil && (!strings.Contains(err.Error(), string(from)) || !strings.Contains(err.Error(), string(to))) {
				t.Errorf("%v names not both ends", err)
			}
		}
	}
}

func TestDecisionsAreLegalAndTotal(t *testing.T) {
	for _, s := range allStates {
		for _, e := range allEvents {
			for _, asked := range []bool{false, true} {
				for _, killing := range []bool{false, true} {
					f := facts{state: s, asked: asked, killing: killing}
					d := decide(f, e)
					if d.next != s && checkMove(s, d.next) != nil {
						t.Errorf("%+v, %s: %+v", f, e, d)
					}
					if killing && (d.kill || d.signal) {
						t.Errorf("%+v, %s: a tree that is being cleared needs nothing more: %+v", f, e, d)
					}
				}
			}
		}
	}
}

func TestDecisions(t *testing.T) {
	for name, c := range map[string]struct {
		f    facts
		e    event
		want decision
	}{
		"stop":                      {facts{state: StateRunning}, eventStop, decision{next: StateStopping, signal: true}},
		"stop again":                {facts{state: StateStopping, asked: true}, eventStop, decision{next: StateStopping}},
		"force in the grace":        {facts{state: StateStopping, asked: true}, eventForce, decision{next: StateStopping, kill: true}},
		"force at once":             {facts{state: StateRunning}, eventForce, decision{next: StateStopping, kill: true}},
		"grace over":                {facts{state: StateStopping, asked: true}, eventGraceOver, decision{next: StateStopping, kill: true}},
		"grace over after the end":  {facts{state: StateExited, asked: true}, eventGraceOver, decision{next: StateExited}},
		"crash":                     {facts{state: StateRunning}, eventMainEnded, decision{next: StateRunning, kill: true}},
		"crash with survivors":      {facts{state: StateRunning, killing: true}, eventSurvivors, decision{next: StateStopping}},
		"all gone":                  {facts{state: StateRunning, killing: true}, eventTreeGone, decision{next: StateExited}},
		"stop of one that starts":   {facts{state: StateStarting}, eventStop, decision{next: StateStarting, later: true}},
		"stop of one that is gone":  {facts{state: StateExited}, eventStop, decision{next: StateExited}},
		"force of one being killed": {facts{state: StateStopping, asked: true, killing: true}, eventForce, decision{next: StateStopping}},
	} {
		if got := decide(c.f, c.e); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestGraceLeftIsBounded(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct{ killAt, want time.Duration }{
		"some left": {3 * time.Second, 3 * time.Second}, "over": {-time.Second, 0}, "a clock set back": {time.Hour, 5 * time.Second},
	} {
		if got := graceLeft(5*time.Second, now.Add(c.killAt), now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestSweepsGetRarer(t *testing.T) {
	d := time.Duration(0)
	for range 30 {
		next := nextSweep(d)
		if next < d || next > sweepMost || next < sweepFirst {
			t.Fatalf("after %s comes %s", d, next)
		}
		d = next
	}
	if d != sweepMost {
		t.Errorf("it ends at %s", d)
	}
}
