// This file tests the promises of donation.Store that are about making and finding donations.

package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestCreateWritesEverythingAndGetReadsItBack(t *testing.T) {
	s := openTest(t)
	d := newDonation("http", "p2p")
	d.Request.Name = "redis-for-anna"
	d.UIDs = donation.UIDRange{Min: 70000, Max: 70009}
	before := time.Now().Truncate(time.Microsecond)
	rec, err := s.Create(t.Context(), d)
	noError(t, err)
	if rec.CreatedAt.Before(before) || !rec.UpdatedAt.Equal(rec.CreatedAt) || !rec.Spawn.Begun.Equal(rec.CreatedAt) {
		t.Errorf("created %s, updated %s, begun %s: want one timestamp after %s", rec.CreatedAt, rec.UpdatedAt, rec.Spawn.Begun, before)
	}
	if len(rec.Ports) != 2 || rec.Ports["http"] == rec.Ports["p2p"] || rec.Ports["http"] < 10000 || rec.Ports["p2p"] > 10999 {
		t.Errorf("ports = %v", rec.Ports)
	}
	wantSame(t, "the new record", rec, donation.Record{
		Donation: donation.Donation{
			ID: d.ID, Request: d.Request, Status: donation.Provisioning, Generation: 1, UID: 70000, HasWorkdir: true,
			Ports: rec.Ports, CreatedAt: rec.CreatedAt, UpdatedAt: rec.CreatedAt,
		},
		Spawn: &donation.Spawn{
			ID: d.Spawn.ID, Donation: d.ID, Generation: 1, State: donation.SpawnStarting, SeedToken: d.Spawn.SeedToken,
			StartupToken: d.Spawn.StartupToken, TemplateHash: "hash", Guard: "guard-1", Begun: rec.CreatedAt,
		},
	})
	wantSame(t, "the record read back", get(t, s, d.ID), rec)
	wantSame(t, "its events", kinds(t, s, d.ID), []string{"donation.provisioning", "spawn.starting"})

	if _, err := s.Create(t.Context(), d); err == nil {
		t.Error("the same id was created twice")
	}
	_, err = s.Get(t.Context(), "don_nobody")
	wantCode(t, err, donation.CodeNotFound)
	wantWords(t, err, "don_nobody")
}

func TestNameIsUniqueAmongTheNotTerminated(t *testing.T) {
	s := openTest(t)
	named := func(d *donation.NewDonation) { d.Request.Name = "one" }
	first := provision(t, s, named)
	second := newDonation()
	named(&second)
	_, err := s.Create(t.Context(), second)
	wantCode(t, err, donation.CodeNameTaken)
	wantWords(t, err, string(first.ID), `"one"`)
	_, err = s.Terminate(t.Context(), first.ID)
	noError(t, err)
	_, err = s.Create(t.Context(), second)
	noError(t, err)
	id, err := s.Resolve(t.Context(), "one")
	noError(t, err)
	wantSame(t, "the holder of the name", id, second.ID)
}

func TestListFilters(t *testing.T) {
	s := openTest(t)
	ids := map[string]donation.ID{}
	var order []donation.ID
	add := func(name string, rec donation.Record) donation.Record {
		ids[name] = rec.ID
		order = append(order, rec.ID)
		return rec
	}
	add("provisioning", in(t, s, donation.Provisioning))
	add("awaiting", in(t, s, donation.AwaitingSeed))
	add("seeded", in(t, s, donation.Seeded))
	add("failed, alive", in(t, s, donation.Failed))
	add("gave up, kept", gaveUp(t, s, donation.Seeded, 1))
	add("terminated, alive", in(t, s, donation.Terminated))
	left := add("terminated, workdir left", die(t, s, in(t, s, donation.Terminated)))
	gone := add("terminated, reclaimed", die(t, s, in(t, s, donation.Terminated)))
	noError(t, s.Reclaimed(t.Context(), gone.ID))
	if !left.HasWorkdir || get(t, s, gone.ID).HasWorkdir {
		t.Error("HasWorkdir is wrong")
	}

	for _, c := range []struct {
		name   string
		filter donation.Filter
		want   []string
	}{
		{"all", donation.Filter{}, []string{"provisioning", "awaiting", "seeded", "failed, alive", "gave up, kept", "terminated, alive", "terminated, workdir left", "terminated, reclaimed"}},
		{"supervised", donation.Filter{Statuses: donation.Supervised}, []string{"awaiting", "seeded"}},
		{"one status", donation.Filter{Statuses: []donation.Status{donation.Failed}}, []string{"failed, alive", "gave up, kept"}},
		{
			"what the daemon looks at as it starts",
			donation.Filter{Statuses: donation.Supervised, Unsettled: true},
			[]string{"provisioning", "awaiting", "seeded", "failed, alive", "terminated, alive", "terminated, workdir left"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs, err := s.List(t.Context(), c.filter)
			noError(t, err)
			var got, want []donation.ID
			for _, r := range recs {
				got = append(got, r.ID)
				wantSame(t, "a listed record", r, get(t, s, r.ID))
			}
			for _, w := range c.want {
				want = append(want, ids[w])
			}
			slices.SortFunc(want, func(a, b donation.ID) int { return slices.Index(order, a) - slices.Index(order, b) })
			wantSame(t, "the list", got, want)
		})
	}
}

func TestResolve(t *testing.T) {
	s := openTest(t)
	create := func(id donation.ID, name string) {
		d := newDonation()
		d.ID, d.Request.Name = id, name
		_, err := s.Create(t.Context(), d)
		noError(t, err)
	}
	create("don_01aaa", "web")
	create("don_01aab", "01aaa") // a name that looks like another's id
	create("don_01b", "")
	create("don_01bcd", "don_01x")
	for i := range 5 {
		create(donation.ID(fmt.Sprintf("don_02%d", i)), "")
	}
	for _, ended := range []struct{ id, name string }{{"don_03", "ended"}, {"don_04", "ended"}, {"don_05", "reused"}} {
		create(donation.ID(ended.id), ended.name)
		_, err := s.Terminate(t.Context(), donation.ID(ended.id))
		noError(t, err)
	}
	create("don_06", "reused")

	for _, c := range []struct {
		ref  string
		want donation.ID
		code donation.Code
		says []string
	}{
		{ref: "don_01aab", want: "don_01aab"},
		{ref: "01aab", want: "don_01aab"},
		{ref: "DON_01AAB", want: "don_01aab"},
		{ref: "01aaa", want: "don_01aaa"}, // a full id goes before a name
		{ref: "web", want: "don_01aaa"},
		{ref: "don_01x", want: "don_01bcd"},
		{ref: "don_01b", want: "don_01b"}, // though it is a prefix too
		{ref: "01bc", want: "don_01bcd"},
		{ref: "don_03", want: "don_03"}, // terminated ones are found by id
		{ref: "ended", want: "don_04"},  // the last one of that name
		{ref: "reused", want: "don_06"},
		{ref: "don_01a", code: donation.CodeAmbiguous, says: []string{"don_01aaa", "don_01aab"}},
		{ref: "02", code: donation.CodeAmbiguous, says: []string{"don_020", "and others"}},
		{ref: "don_", code: donation.CodeAmbiguous},
		{ref: "nobody", code: donation.CodeNotFound, says: []string{"nobody", "status"}},
		{ref: "%", code: donation.CodeNotFound},
		{ref: "", code: donation.CodeNotFound},
	} {
		t.Run(c.ref, func(t *testing.T) {
			got, err := s.Resolve(t.Context(), c.ref)
			if c.code != "" {
				wantCode(t, err, c.code)
				wantWords(t, err, c.says...)
				return
			}
			noError(t, err)
			wantSame(t, "the id", got, c.want)
		})
	}
}
