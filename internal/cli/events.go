// This file holds the command events: every change of state, with its reason.

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

func eventsCommand(a *app) *cobra.Command {
	var since int64
	followOn := false
	cmd := &cobra.Command{
		Use:   "events [REF]",
		Short: "Show what has happened",
		Long: `Show the log of everything that has happened to the donations, or to one: each change of state with its reason and
a number that only grows. With --follow it goes on, beginning with what is still to come unless --since says
where. With -o json each line is one JSON object.`,
		Example: `  cadre-hostd events cache
  cadre-hostd events -f
  cadre-hostd events -f --since 1200 -o json`,
		Args:              atMost(1),
		ValidArgsFunction: a.completeRefs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := ""
			if len(args) == 1 {
				ref = args[0]
			}
			if since < 0 {
				return usagef(cmd, "--since %d is negative; 0 is the beginning", since)
			}
			if !followOn {
				return a.ask(cmd, func(ctx context.Context, c *api.Client) error { return a.allEvents(ctx, c, ref, since) })
			}
			if !cmd.Flags().Changed("since") {
				since = -1
			}
			return a.askOn(cmd, func(ctx context.Context, c *api.Client) error {
				return c.FollowEvents(ctx, ref, since, a.timeout, func(e donation.Event) error {
					return writeEvent(a.stdout, e, a.output == outputJSON)
				})
			})
		},
	}
	cmd.Flags().Int64Var(&since, "since", 0, "show what came after event `SEQ`")
	cmd.Flags().BoolVarP(&followOn, "follow", "f", false, "go on with what comes, until Ctrl-C")
	return cmd
}

// allEvents prints page after page until there are no more.
func (a *app) allEvents(ctx context.Context, c *api.Client, ref string, after int64) error {
	for {
		list, err := c.Events(ctx, ref, after, api.MaxEvents)
		if err != nil {
			return err
		}
		for _, e := range list {
			if err := writeEvent(a.stdout, e, a.output == outputJSON); err != nil {
				return err
			}
			after = e.Seq
		}
		if len(list) < api.MaxEvents {
			return nil
		}
	}
}

// writeEvent prints one event on one line; columns keep their places without knowing the lines to come.
func writeEvent(w io.Writer, e donation.Event, asJSON bool) error {
	var line string
	if asJSON {
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("encode the event: %w", err)
		}
		line = string(b)
	} else {
		line = fmt.Sprintf("%6d  %s  %-30s  %-24s  %s", e.Seq, moment(e.At), dash(string(e.Donation)), e.Kind, oneLine(e.Detail))
		line = strings.TrimRight(line, " ")
	}
	if _, err := fmt.Fprintln(w, line); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
