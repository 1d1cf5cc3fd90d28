// This file tests how a record, what the guard sees and what the kernel says become one view.

package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/supervisor"
)

// recordOf is a donation with one spawn.
func recordOf(change func(*donation.Record)) donation.Record {
	rec := donation.Record{Donation: donation.Donation{
		ID: "don_a", Status: donation.Seeded, Request: donation.Request{Name: "n", Template: "t"}, Generation: 1,
	}}
	rec.Spawn = &donation.Spawn{
		ID: "spn_1", Donation: "don_a", Generation: 1, State: donation.SpawnRunning,
		Identity: donation.Identity{PID: 10, BootID: "b", StartTime: 1}, StartedAt: time.Unix(100, 0), ReadyAt: time.Unix(101, 0),
	}
	if change != nil {
		change(&rec)
	}
	return rec
}

func TestViewOf(t *testing.T) {
	recorded, seenAt, stop, kill := time.Unix(100, 0), time.Unix(99, 0), time.Unix(200, 0), time.Unix(201, 0)
	process := func(change func(*donation.Process)) donation.Observation {
		p := donation.Process{
			Donation: "don_a", Spawn: "spn_1", State: donation.ProcessRunning,
			Identity: donation.Identity{PID: 10, BootID: "b", StartTime: 1}, StartedAt: seenAt,
		}
		if change != nil {
			change(&p)
		}
		return donation.Observation{Connected: true, Processes: []donation.Process{p}}
	}
	// seen is the part of a view that depends on more than the record.
	type seen struct {
		Spawn              string
		Running, Ready     bool
		PID                int
		Started, Stop, End *time.Time
	}
	for _, tc := range []struct {
		name  string
		rec   donation.Record
		seen  donation.Observation
		alive bool
		want  seen
	}{
		{"no spawn yet", recordOf(func(r *donation.Record) { r.Spawn = nil }), donation.Observation{Connected: true}, true, seen{}},
		{"it runs", recordOf(nil), process(nil), false, seen{Spawn: "spn_1", Running: true, Ready: true, PID: 10, Started: &seenAt}},
		{
			"it isn't ready", recordOf(func(r *donation.Record) { r.Spawn.ReadyAt = time.Time{} }), process(nil), false,
			seen{Spawn: "spn_1", Running: true, PID: 10, Started: &seenAt},
		},
		{
			"the guard knows it before the record says so",
			recordOf(func(r *donation.Record) {
				r.Spawn.State, r.Spawn.Identity = donation.SpawnStarting, donation.Identity{}
			}), process(nil), false,
			seen{Spawn: "spn_1", Running: true, Ready: true, PID: 10, Started: &seenAt},
		},
		{
			"it is being stopped",
			recordOf(nil), process(func(p *donation.Process) { p.State, p.StopSince, p.KillSince = donation.ProcessStopping, stop, kill }), false,
			seen{Spawn: "spn_1", Running: true, Ready: true, PID: 10, Started: &seenAt, Stop: &stop, End: &kill},
		},
		{
			"it has ended and the record doesn't say so yet",
			recordOf(nil), process(func(p *donation.Process) { p.State = donation.ProcessExited }), true,
			seen{Spawn: "spn_1"},
		},
		{"the guard doesn't know it", recordOf(nil), donation.Observation{Connected: true}, true, seen{Spawn: "spn_1"}},
		{"the guard knows another spawn only", recordOf(nil), process(func(p *donation.Process) { p.Spawn = "spn_0" }), true, seen{Spawn: "spn_1"}},
		{
			"no guard, and the kernel knows it", recordOf(nil),
			donation.Observation{},
			true,
			seen{Spawn: "spn_1", Running: true, Ready: true, PID: 10, Started: &recorded},
		},
		{"no guard, and the kernel doesn't know it", recordOf(nil), donation.Observation{}, false, seen{Spawn: "spn_1"}},
		{
			"no guard, and it had ended before",
			recordOf(func(r *donation.Record) { r.Spawn.State = donation.SpawnExited }),
			donation.Observation{},
			true,
			seen{Spawn: "spn_1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := viewOf(tc.rec, tc.seen, func(donation.Identity) bool { return tc.alive })
			got := seen{v.Spawn, v.Running, v.Ready, v.PID, v.StartedAt, v.StopSince, v.KillSince}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if v.ID != "don_a" || v.Name != "n" || v.Template != "t" || v.Ports == nil {
				t.Errorf("the record's own part: %+v", v)
			}
		})
	}
}

func TestNextAttempt(t *testing.T) {
	now := time.Unix(1000, 0)
	limits := supervisor.Limits{MaxAttempts: 3, BackoffBase: 10 * time.Second, BackoffCap: time.Minute, RefillAfter: time.Hour}
	// down is a node that has just died, with one attempt made two seconds ago: the next is due in 18.
	down := func(change func(*donation.Record)) donation.Record {
		return recordOf(func(r *donation.Record) {
			r.Spawn.State, r.Spawn.Exit = donation.SpawnExited, &donation.Exit{Reason: donation.ReasonCrash}
			r.Attempts, r.LastAttempt = 1, now.Add(-2*time.Second)
			if change != nil {
				change(r)
			}
		})
	}
	due := now.Add(18 * time.Second)
	for _, tc := range []struct {
		name string
		rec  donation.Record
		view api.View
		want *time.Time
	}{
		{"it waits", down(nil), api.View{}, &due},
		{"it runs", down(nil), api.View{Running: true}, nil},
		{"it is held up", down(nil), api.View{Hold: "its template is gone"}, nil},
		{"no attempt yet", down(func(r *donation.Record) { r.Attempts, r.LastAttempt = 0, time.Time{} }), api.View{}, nil},
		{"it is due", down(func(r *donation.Record) { r.LastAttempt = now.Add(-time.Hour) }), api.View{}, nil},
		{"no attempt is left", down(func(r *donation.Record) { r.Attempts = 3 }), api.View{}, nil},
		{"retry has ended the wait", down(func(r *donation.Record) { r.RetryNow = true }), api.View{}, nil},
		{"it has ended", down(func(r *donation.Record) { r.Status = donation.Terminated }), api.View{}, nil},
		{"it was given up", down(func(r *donation.Record) { r.Status = donation.Failed }), api.View{}, nil},
		{"a restart waits for nothing", down(func(r *donation.Record) { r.Spawn.Exit.Reason = donation.ReasonRestart }), api.View{}, nil},
		{"no exit yet", down(func(r *donation.Record) { r.Spawn.Exit = nil }), api.View{}, nil},
		{"no spawn", down(func(r *donation.Record) { r.Spawn = nil }), api.View{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, nextAttempt(tc.rec, tc.view, limits, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
