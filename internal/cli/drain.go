// This file holds the command drain: stop every node in order, then the daemon.

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

// drainLook is how often a drain under way is looked at.
const drainLook = 100 * time.Millisecond

func drainCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "drain",
		Short: "Stop every node in order, then the daemon",
		Long: `Stop every node in order, each with its signal and its grace, and then the daemon, for instance before the machine
is switched off. No node is lost by it: the donations stay as they are, and the next 'run' starts again what should be
running, uncharged. The command shows how many nodes are left and ends when the daemon has; --timeout bounds the
wait for its first answer.`,
		Example: `  cadre-hostd drain
  cadre-hostd drain && systemctl poweroff`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			o, err := c.Drain(ctx)
			if err != nil {
				return err
			}
			return a.watchDrain(cmd.Context(), c, o)
		},
	}
}

// watchDrain tells of the progress until the daemon is gone, or the user has seen enough.
func (a *app) watchDrain(ctx context.Context, c *api.Client, o api.Overview) error {
	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	for left := -1; ; {
		if o.Guard.Processes != left {
			left = o.Guard.Processes
			fmt.Fprintf(a.stderr, "nodes left: %d\n", left)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		look, cancel := context.WithTimeout(ctx, a.timeout)
		now, err := c.Overview(look)
		cancel()
		switch {
		case errors.Is(err, api.ErrNotRunning):
			fmt.Fprintln(a.stdout, "drained, and the daemon has left")
			return nil
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil:
			o = now
		}
	}
}
