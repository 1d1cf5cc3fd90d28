// This file holds the command retry: another chance for a node that was given up.

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

func retryCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "retry REF...",
		Short: "Try again at once",
		Long: `Revive a donation that the daemon gave up after too many attempts: its attempts start again at 0 and its node
is started at once. For a node that is waiting for its next attempt, end the wait; the attempt counts as usual.
A node that runs has nothing to try again and is refused.
REF is an id, the beginning of one, or a name.`,
		Example:           `  cadre-hostd retry cache`,
		Args:              atLeast(1, "the donation to retry"),
		ValidArgsFunction: a.completeRefs(-1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.change(cmd, refs, "retrying", func(ctx context.Context, c *api.Client, ref string) (api.View, error) {
				return c.Retry(ctx, ref)
			})
		},
	}
}
