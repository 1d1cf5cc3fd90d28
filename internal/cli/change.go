// This file holds what terminate, restart and retry share: doing one thing to each of several donations at
// once and telling of each how it went.

package cli

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/serfab/cadre-hostd/internal/api"
)

// changesAtOnce bounds the requests of one command in flight.
const changesAtOnce = 16

// change does do to every ref. What went well is on stdout (done and the donation), what didn't is the
// error.
func (a *app) change(cmd *cobra.Command, refs []string, done string,
	do func(ctx context.Context, c *api.Client, ref string) (api.View, error),
) error {
	return a.ask(cmd, func(ctx context.Context, c *api.Client) error {
		views, errs := make([]api.View, len(refs)), make([]error, len(refs))
		var g errgroup.Group
		g.SetLimit(changesAtOnce)
		for i, ref := range refs {
			g.Go(func() error {
				views[i], errs[i] = do(ctx, c, ref)
				return nil // one failure doesn't end the others
			})
		}
		_ = g.Wait()

		var changed []api.View
		var failed severalError
		for i := range refs {
			if errs[i] != nil {
				failed = append(failed, errs[i])
				continue
			}
			changed = append(changed, views[i])
		}
		if err := a.tellChanged(changed, done, len(refs) == 1); err != nil {
			failed = append(failed, err)
		}
		if len(failed) > 0 {
			return failed
		}
		return nil
	})
}

func (a *app) tellChanged(views []api.View, done string, single bool) error {
	switch {
	case len(views) == 0:
		return nil
	case a.output == outputJSON && single:
		return writeJSON(a.stdout, views[0])
	case a.output == outputJSON:
		return writeJSON(a.stdout, views)
	}
	for _, v := range views {
		if err := a.say("%s %s", done, nameOf(v)); err != nil {
			return err
		}
	}
	return nil
}
