// This file holds the commands seed and peer: introduce a node to its cadre, and tell how it is known there.

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

// maxSeedFile bounds a seed in bytes: nodes take no larger one.
const maxSeedFile = 256 << 10

func seedCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "seed REF --file FILE",
		Short: "Present a seed to a node",
		Long: `Present the borrower's signed seed to the donation's node. The node judges it; once it is accepted the donation is
seeded. A seeded node may be seeded again. REF is an id, the beginning of one, or a name.`,
		Example: `  cadre-hostd seed cache --file seed.json
  borrower-tool sign | cadre-hostd seed cache --file -`,
		Args:              exactly(1, "the donation to seed"),
		ValidArgsFunction: a.completeRefs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			if file == "" {
				return usagef(cmd, "which seed? Name its file with --file, - for the standard input")
			}
			seed, err := readSeed(file)
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *api.Client) error {
				result, err := c.Seed(ctx, refs[0], seed)
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return writeJSON(a.stdout, result)
				}
				return a.say("seeded %s, %d peers added", refs[0], result.PeersAdded)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the `FILE` that holds the seed, - for the standard input")
	must(cmd.MarkFlagFilename("file"))
	return cmd
}

func readSeed(file string) ([]byte, error) {
	in := io.ReadCloser(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read the seed: %w", err)
		}
		in = f
	}
	defer in.Close()
	seed, err := io.ReadAll(io.LimitReader(in, maxSeedFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the seed: %w", err)
	case len(seed) == 0:
		return nil, errors.New("the seed is empty")
	case len(seed) > maxSeedFile:
		return nil, fmt.Errorf("the seed is larger than the %d bytes that a node takes", maxSeedFile)
	}
	return seed, nil
}

func peerCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "peer REF",
		Short: "Show how a node is known to its peers",
		Long: `Ask the donation's node for its peer id and its addresses, one a line: what a borrower needs to introduce it to a cadre.
REF is an id, the beginning of one, or a name.`,
		Example:           `  cadre-hostd peer cache`,
		Args:              exactly(1, "the donation to ask"),
		ValidArgsFunction: a.completeRefs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.ask(cmd, func(ctx context.Context, c *api.Client) error {
				peer, err := c.Peer(ctx, refs[0])
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return writeJSON(a.stdout, peer)
				}
				lines := []string{oneLine(peer.ID)}
				for _, addr := range peer.Addrs {
					lines = append(lines, oneLine(addr))
				}
				return a.say("%s", strings.Join(lines, "\n"))
			})
		},
	}
}
