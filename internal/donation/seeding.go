// This file seeds: the borrower's signed introduction goes to the node, and the record follows what the node said.

package donation

import (
	"context"
	"errors"
)

// Seed presents a seed to the donation's node and records that it was accepted; a seeded one may be seeded again.
//
// Errors, none of which writes anything: CodeInvalidState (the donation isn't waiting for a seed, nor seeded),
// CodePeerUnavailable (its node doesn't run or doesn't answer, or was respawned meanwhile: seed again),
// CodeSeedRejected with the node's reason, CodeSeedFailed (the node refused the host, not the seed), CodeAbandoned (an
// ending landed while the node was asked).
func (s *Service) Seed(ctx context.Context, id ID, seed []byte) (SeedResult, error) {
	rec, err := s.reachable(ctx, id)
	if err != nil {
		return SeedResult{}, err
	}
	result, err := s.opts.Nodes.Seed(ctx, LaunchOf(rec), seed)
	switch {
	case errors.Is(err, ErrSeedToken):
		return SeedResult{}, Errorf(CodeSeedFailed, "the node of %s refused the host's own credential, so the seed wasn't judged; 'cadre-hostd restart %s' gives both a fresh one", id, id)
	case err != nil:
		return SeedResult{}, Errorf(CodePeerUnavailable, "the node of %s could not be asked: %w; try again", id, err)
	case !result.Accepted:
		return result, Errorf(CodeSeedRejected, "the node of %s rejected the seed: %s", id, result.Reason)
	}
	ctx, cancel := s.lastWords() // the node has taken it: that is to be on record whoever has lost patience
	defer cancel()
	defer s.touched(id)
	err = s.store.Seeded(ctx, id, rec.Generation, result.PeersAdded)
	if errors.Is(err, ErrConflict) {
		return result, s.overtaken(ctx, id)
	}
	return result, err
}

// overtaken says what has come before the record of a seed.
func (s *Service) overtaken(ctx context.Context, id ID) error {
	rec, err := s.store.Get(ctx, id)
	switch {
	case err != nil:
		return err
	case rec.Status.IsEnding():
		return Errorf(CodeAbandoned, "%s is %s since; the seed changes nothing", id, rec.Status)
	default:
		return Errorf(CodePeerUnavailable, "the node of %s was started anew while it was being seeded; seed it again", id)
	}
}

// Peer returns how the donation's node is known to its cadre, read fresh. CodePeerUnavailable until it has an id and an
// address, CodeInvalidState if the donation has ended.
func (s *Service) Peer(ctx context.Context, id ID) (Peer, error) {
	rec, err := s.reachable(ctx, id)
	if err != nil {
		return Peer{}, err
	}
	peer, err := s.opts.Nodes.Peer(ctx, LaunchOf(rec))
	if err == nil && (peer.ID == "" || len(peer.Addrs) == 0) {
		err = errors.New("it has no id or no address yet")
	}
	if err != nil {
		return Peer{}, Errorf(CodePeerUnavailable, "the node of %s can't be told yet: %w; try again", id, err)
	}
	return peer, nil
}

// reachable returns the record of a donation whose node may be asked.
func (s *Service) reachable(ctx context.Context, id ID) (Record, error) {
	rec, err := s.store.Get(ctx, id)
	switch {
	case err != nil:
		return rec, err
	case !rec.Status.IsSupervised():
		return rec, Errorf(CodeInvalidState, "%s is %s; only a donation that is %s or %s has a node to ask", id, rec.Status, AwaitingSeed, Seeded)
	case rec.Spawn == nil || rec.Spawn.State != SpawnRunning:
		return rec, Errorf(CodePeerUnavailable, "the node of %s doesn't run now; 'cadre-hostd status %s' tells when it is tried again", id, id)
	}
	return rec, nil
}
