// This file holds the command terminate: end a loan.

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

func terminateCommand(a *app) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "terminate REF...",
		Short: "End donations and delete what their nodes kept",
		Long: `End donations for good: the ending is recorded, the node and all its children are stopped, and its working
directory is deleted and its ports are freed. REF is an id, the beginning of one, or a name.

The command returns when no process is left. If that takes longer than --timeout (a node may use all of its
grace), it fails with code 12 and the daemon goes on; --force sends SIGKILL at once, also to a node that is
stopping already. Ending a donation twice is no error.`,
		Example: `  cadre-hostd terminate cache
  cadre-hostd terminate don_01jx don_01jy --timeout 1m
  cadre-hostd terminate --force stubborn`,
		Args:              atLeast(1, "the donation to terminate"),
		ValidArgsFunction: a.completeRefs(-1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.change(cmd, refs, "terminated", func(ctx context.Context, c *api.Client, ref string) (api.View, error) {
				return c.Terminate(ctx, ref, force)
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "kill at once instead of asking first")
	return cmd
}
