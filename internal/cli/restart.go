// This file holds the command restart: stop a node and have it started again.

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

func restartCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "restart REF...",
		Short: "Restart nodes",
		Long: `Stop a node in order and start it again, with the same working directory, identity and ports. A restart is no
crash: it is not counted as an attempt. The command returns when the stop has begun. REF is an id, the beginning
of one, or a name.`,
		Example: `  cadre-hostd restart cache
  cadre-hostd restart cache && cadre-hostd status --watch cache`,
		Args:              atLeast(1, "the donation to restart"),
		ValidArgsFunction: a.completeRefs(-1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.change(cmd, refs, "restarting", func(ctx context.Context, c *api.Client, ref string) (api.View, error) {
				return c.Restart(ctx, ref)
			})
		},
	}
}
