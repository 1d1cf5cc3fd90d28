// This file holds what the node remembers of its seeds, and how it puts a file on disk: always as a whole,
// so that a kill at any moment leaves the old one or the new one.

package nodeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	seedsFile = "seeds.json"
	// maxSeeds bounds seeds.json, in bytes: it is rewritten and held in memory as a whole, and 4 MiB are
	// tens of thousands of peers.
	maxSeeds = 4 << 20
)

// errBookFull is the reason to reject a seed that would make seeds.json larger than maxSeeds.
var errBookFull = errors.New("this node keeps no more seeds: its seeds.json is full")

// acceptedSeed is one entry of seeds.json.
type acceptedSeed struct {
	At    time.Time `json:"at"`
	Peers []string  `json:"peers"`
}

// seedBook is the seeds that were accepted. Its owner guards it.
type seedBook struct {
	path  string
	seeds []acceptedSeed
	// peers are the different ones of all seeds.
	peers map[string]bool
}

// openSeeds reads the workdir's seeds; none yet is no error.
func openSeeds(workdir string) (*seedBook, error) {
	b := &seedBook{path: filepath.Join(workdir, seedsFile), peers: map[string]bool{}}
	data, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's seeds: %w", err)
	}
	if err := json.Unmarshal(data, &b.seeds); err != nil {
		return nil, fmt.Errorf("the node's seeds %s are damaged and were left as they are: %w; restore the file, or remove it and seed again", b.path, err)
	}
	for _, s := range b.seeds {
		b.remember(s.Peers)
	}
	return b, nil
}

// add appends a seed, durably, and returns how many of its peers are new. One that is there already changes
// nothing, so that repeating it can't fill the disk. errBookFull rejects it; any other error is the disk's.
func (b *seedBook) add(peers []string, at time.Time) (int, error) {
	if slices.ContainsFunc(b.seeds, func(old acceptedSeed) bool { return slices.Equal(old.Peers, peers) }) {
		return 0, nil
	}
	seeds := append(slices.Clone(b.seeds), acceptedSeed{At: at, Peers: peers})
	data, err := json.Marshal(seeds)
	if err != nil {
		return 0, fmt.Errorf("encode the seeds: %w", err)
	}
	if len(data) > maxSeeds {
		return 0, errBookFull
	}
	if err := writeFile(b.path, data, os.Rename); err != nil {
		return 0, fmt.Errorf("write the seeds: %w", err)
	}
	b.seeds = seeds
	return b.remember(peers), nil
}

// remember returns how many of peers were not known.
func (b *seedBook) remember(peers []string) int {
	before := len(b.peers)
	for _, p := range peers {
		b.peers[p] = true
	}
	return len(b.peers) - before
}

// writeFile puts a file of mode 0600 in place as a whole and on disk. place is os.Rename, or os.Link to
// refuse one that is there already.
func writeFile(path string, data []byte, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // after a rename there is nothing left to remove
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := place(tmp.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
