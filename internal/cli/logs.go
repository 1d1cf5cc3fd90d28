// This file holds the command logs: what a node has written.

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

// defaultLogLines is how many lines logs shows unless told otherwise.
const defaultLogLines = 100

func logsCommand(a *app) *cobra.Command {
	lines, followOn := defaultLogLines, false
	cmd := &cobra.Command{
		Use:   "logs REF",
		Short: "Show what a node has written",
		Long: `Show the last lines that a node has written to its output, as they are. A node's log is bounded (max_size in
the configuration), so what is older is gone. REF is an id, the beginning of one, or a name.`,
		Example: `  cadre-hostd logs cache
  cadre-hostd logs -n 20 -f cache
  cadre-hostd logs -n -1 cache | less`,
		Args:              exactly(1, "the donation whose log to show"),
		ValidArgsFunction: a.completeRefs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines < -1 {
				return usagef(cmd, "-n %d is less than -1, which means all lines", lines)
			}
			ask := a.ask
			if followOn {
				ask = a.askOn
			}
			return ask(cmd, func(ctx context.Context, c *api.Client) error {
				return c.Logs(ctx, args[0], lines, followOn, a.timeout, a.stdout)
			})
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", defaultLogLines, "the `NUMBER` of lines, -1 for all")
	cmd.Flags().BoolVarP(&followOn, "follow", "f", false, "go on with what comes, until Ctrl-C")
	return cmd
}
