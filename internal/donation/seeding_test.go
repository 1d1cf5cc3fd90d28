// This file tests seeding: what the node says decides, and an ending wins over it.

package donation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// fakeNodes answers for all nodes, and notes what it was shown.
type fakeNodes struct {
	seed  func(l donation.Launch) (donation.SeedResult, error)
	peer  donation.Peer
	err   error
	shown []string
}

func (n *fakeNodes) Seed(_ context.Context, l donation.Launch, seed []byte) (donation.SeedResult, error) {
	n.shown = append(n.shown, string(l.Spawn.ID)+" "+string(seed))
	if n.seed != nil {
		return n.seed(l)
	}
	return donation.SeedResult{Accepted: true, PeersAdded: 3}, nil
}

func (n *fakeNodes) Peer(context.Context, donation.Launch) (donation.Peer, error) {
	return n.peer, n.err
}

// kinds are the events of a donation.
func (r *rig) kinds(id donation.ID) []string {
	r.Helper()
	events, err := r.store.Events(r.Context(), id, 0, 0)
	if err != nil {
		r.Fatal(err)
	}
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Kind+" "+e.Detail)
	}
	return kinds
}

func TestD10_AcceptedSeedIsOnRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("seedy")
		for _, want := range []string{"donation.seeded 3 peers added", "donation.reseeded 3 peers added"} {
			result, err := r.svc.Seed(t.Context(), rec.ID, []byte("seed"))
			if err != nil || !result.Accepted || result.PeersAdded != 3 {
				t.Fatalf("seed: %+v, %v", result, err)
			}
			now, err := r.store.Get(t.Context(), rec.ID)
			if err != nil || now.Status != donation.Seeded {
				t.Errorf("status %s, %v", now.Status, err)
			}
			if kinds := r.kinds(rec.ID); kinds[len(kinds)-1] != want {
				t.Errorf("events %v, want %q last", kinds, want)
			}
		}
		if want := string(rec.Spawn.ID) + " seed"; r.nodes.shown[0] != want {
			t.Errorf("the node was shown %v", r.nodes.shown)
		}
	})
}

func TestD11_RejectedSeedWritesNothing(t *testing.T) {
	wantUnwritten(t, donation.SeedResult{Reason: "not an owner's"}, nil, donation.CodeSeedRejected)
}

func TestD12_RefusedCredentialIsNoRejection(t *testing.T) {
	wantUnwritten(t, donation.SeedResult{}, donation.ErrSeedToken, donation.CodeSeedFailed)
}

func TestD12_NodeThatCannotBeAskedJudgesNothing(t *testing.T) {
	wantUnwritten(t, donation.SeedResult{}, errors.New("a stranger has taken its place"), donation.CodePeerUnavailable)
}

// wantUnwritten seeds a node that answers so, and checks that nothing came of it but the error.
func wantUnwritten(t *testing.T, result donation.SeedResult, answer error, code donation.Code) {
	t.Helper()
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("seedy")
		before := r.kinds(rec.ID)
		r.nodes.seed = func(donation.Launch) (donation.SeedResult, error) { return result, answer }
		if _, err := r.svc.Seed(t.Context(), rec.ID, []byte("seed")); donation.CodeOf(err) != code {
			t.Errorf("%v, want %s", err, code)
		}
		now := r.wantStatus(rec.ID, donation.AwaitingSeed)
		if after := r.kinds(rec.ID); !cmp.Equal(before, after) || !now.UpdatedAt.Equal(rec.UpdatedAt) {
			t.Errorf("events %v, updated %v (was %v)", after, now.UpdatedAt, rec.UpdatedAt)
		}
	})
}

func TestD13_EndingDuringTheSeedStands(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("seedy")
		r.nodes.seed = func(donation.Launch) (donation.SeedResult, error) {
			if _, err := r.store.Terminate(t.Context(), rec.ID); err != nil {
				t.Error(err)
			}
			return donation.SeedResult{Accepted: true}, nil
		}
		if _, err := r.svc.Seed(t.Context(), rec.ID, []byte("seed")); donation.CodeOf(err) != donation.CodeAbandoned {
			t.Errorf("%v, want %s", err, donation.CodeAbandoned)
		}
		if now, err := r.store.Get(t.Context(), rec.ID); err != nil || now.Status != donation.Terminated {
			t.Errorf("status %s, %v", now.Status, err)
		}
	})
}

func TestS02_SeedOfANodeThatWasRespawnedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("seedy")
		first := rec.Spawn
		r.nodes.seed = func(donation.Launch) (donation.SeedResult, error) {
			exit := donation.Exit{Reason: donation.ReasonCrash, Known: true, Code: 1}
			if err := r.svc.Respawn(t.Context(), rec, &exit, true); err != nil {
				t.Error(err)
			}
			return donation.SeedResult{Accepted: true}, nil
		}
		r.guard.die(first.ID, donation.Exit{Reason: donation.ReasonCrash, Known: true, Code: 1})
		if _, err := r.svc.Seed(t.Context(), rec.ID, []byte("seed")); donation.CodeOf(err) != donation.CodePeerUnavailable {
			t.Errorf("%v, want %s", err, donation.CodePeerUnavailable)
		}
		// The new node has a token of its own, and takes the seed.
		r.nodes.seed = nil
		if _, err := r.svc.Seed(t.Context(), rec.ID, []byte("seed")); err != nil {
			t.Fatal(err)
		}
		now, err := r.store.Get(t.Context(), rec.ID)
		if err != nil || now.Status != donation.Seeded || now.Spawn.ID == first.ID || now.Spawn.SeedToken.Reveal() == first.SeedToken.Reveal() {
			t.Errorf("%+v, %v", now, err)
		}
	})
}

func TestD14_SeedingInAnyOtherStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("seedy")
		if _, err := r.store.Terminate(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := r.svc.Seed(t.Context(), rec.ID, []byte("seed")); donation.CodeOf(err) != donation.CodeInvalidState {
			t.Errorf("terminated: %v", err)
		}
		if _, err := r.svc.Seed(t.Context(), "don_unknown", []byte("seed")); donation.CodeOf(err) != donation.CodeNotFound {
			t.Errorf("unknown: %v", err)
		}
		if len(r.nodes.shown) != 0 {
			t.Errorf("the node was asked: %v", r.nodes.shown)
		}
	})
}

func TestD15_PeerIsReadFresh(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("seedy")
		for _, c := range []struct {
			peer donation.Peer
			err  error
		}{
			{donation.Peer{}, errors.New("no route")},
			{donation.Peer{ID: "12D3"}, nil},
			{donation.Peer{Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}, nil},
		} {
			r.nodes.peer, r.nodes.err = c.peer, c.err
			if _, err := r.svc.Peer(t.Context(), rec.ID); donation.CodeOf(err) != donation.CodePeerUnavailable {
				t.Errorf("%+v, %v: %v", c.peer, c.err, err)
			}
		}
		want := donation.Peer{ID: "12D3", Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}
		r.nodes.peer, r.nodes.err = want, nil
		if got, err := r.svc.Peer(t.Context(), rec.ID); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestD21_UnseededForTooLongIsTerminated(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supervise()
		early := r.provision("seedy")
		time.Sleep(unseededTimeout / 2)
		late, plain := r.provision("seedy"), r.provision("plain")
		time.Sleep(unseededTimeout/2 - time.Second)
		if err := r.svc.ReapStale(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		r.wantStatus(early.ID, donation.AwaitingSeed) // a second is left
		time.Sleep(time.Second)
		if err := r.svc.ReapStale(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if rec := r.wantStatus(early.ID, donation.Terminated); rec.Message == "" {
			t.Error("no message says why")
		}
		r.wantNothingLeft(early.ID)
		r.wantStatus(late.ID, donation.AwaitingSeed)
		r.wantStatus(plain.ID, donation.Seeded)
	})
}

func TestD21_SeedThatComesJustBeforeTheReapStands(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rec := r.provision("seedy")
		time.Sleep(unseededTimeout)
		r.store.fail("Expire", func() error {
			_, err := r.svc.Seed(t.Context(), rec.ID, []byte("seed"))
			return err
		})
		if err := r.svc.ReapStale(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		r.wantStatus(rec.ID, donation.Seeded)
	})
}
