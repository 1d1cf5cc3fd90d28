// This file holds the command status: what is lent, and how it is.

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

// redrawEvery is how often a watched page on a terminal is drawn again while nothing changes but uptimes.
const redrawEvery = time.Second

type statusOptions struct {
	all, watch bool
	ref        string
}

func statusCommand(a *app) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [REF]",
		Short: "Show the donations, or all about one",
		Long: `Show every donation that has not been terminated, or all about one with the history of its processes.
REF is an id, the beginning of one, or a name.

What is wrong with the daemon or its guard is said on stderr. The exit code tells whether the question was
answered, not how the donations are.`,
		Example: `  cadre-hostd status
  cadre-hostd status cache
  cadre-hostd status --watch
  cadre-hostd status -o json | jq -r '.[] | select(.running | not) | .id'`,
		Args:              atMost(1),
		ValidArgsFunction: a.completeRefs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.ref = args[0]
			}
			if o.watch {
				return a.askOn(cmd, func(ctx context.Context, c *api.Client) error { return a.watchStatus(ctx, c, o) })
			}
			return a.ask(cmd, func(ctx context.Context, c *api.Client) error {
				p, err := a.look(ctx, c, o)
				p.warn(a.stderr)
				if err != nil {
					return err
				}
				return a.write(p, time.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "include the terminated ones")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show it again when something changes, until Ctrl-C")
	return cmd
}

// page is one answer of status: the list, or one donation.
type page struct {
	Overview api.Overview
	List     []api.View
	One      *api.View
}

// look asks for a page. The overview is there even if the donations can't be had, as with a caretaker.
func (a *app) look(ctx context.Context, c *api.Client, o statusOptions) (page, error) {
	var p page
	var err error
	if p.Overview, err = c.Overview(ctx); err != nil {
		return page{}, err
	}
	if o.ref == "" {
		p.List, err = c.Donations(ctx, o.all)
		return p, err
	}
	v, err := c.Donation(ctx, o.ref)
	if err != nil {
		return p, err
	}
	p.One = &v
	return p, nil
}

// warn prints what is wrong with the daemon.
func (p page) warn(w io.Writer) {
	if p.Overview.Mode == "" {
		return // nothing is known: the error says so
	}
	views := p.List
	if p.One != nil {
		views = []api.View{*p.One}
	}
	for _, text := range append(warnings(p.Overview), lowLeases(views, time.Now())...) {
		fmt.Fprintf(w, "! %s\n", text)
	}
	if p.One == nil && p.List != nil && len(p.List) == 0 {
		fmt.Fprintf(w, "no donations; lend a node with '%s donate'\n", program)
	}
}

// write prints the page in the form of -o, in one write, so that half a page is never seen.
func (a *app) write(p page, now time.Time) error {
	var b bytes.Buffer
	width, _ := terminalSize(a.stdout)
	if err := p.render(&b, a.output, width, now); err != nil || b.Len() == 0 {
		return err
	}
	if _, err := a.stdout.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

func (p page) render(w *bytes.Buffer, output string, width int, now time.Time) error {
	switch {
	case output == outputJSON && p.One != nil:
		return writeJSON(w, p.One)
	case output == outputJSON:
		return writeJSON(w, p.List)
	case p.One != nil:
		return writeDetail(w, *p.One, now)
	case len(p.List) == 0:
		return nil
	default:
		return writeViews(w, p.List, output == outputWide, width, now)
	}
}

// watchStatus shows the page again and again, until ctx ends or the daemon leaves: redrawn in place on a
// terminal, else printed once for each change.
func (a *app) watchStatus(ctx context.Context, c *api.Client, o statusOptions) error {
	changes, stop := follow(ctx, c, o.ref, a.timeout)
	defer stop()
	tty := isTerminal(a.stdout) && a.output != outputJSON
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	var last []byte
	for {
		p, err := a.lookWithin(ctx, c, o)
		if err != nil {
			p.warn(a.stderr)
			return err
		}
		if tty {
			err = a.redraw(p)
		} else {
			last, err = a.printChange(p, last)
		}
		if err != nil {
			return err
		}
		var redraw <-chan time.Time
		if tty {
			redraw = tick.C
		}
		select {
		case <-redraw:
		case err := <-changes:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lookWithin is look under the deadline of --timeout.
func (a *app) lookWithin(ctx context.Context, c *api.Client, o statusOptions) (page, error) {
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	return a.look(ctx, c, o)
}

// redraw writes the page over the last one, in one write so that it doesn't flicker, and no more lines of it than
// the terminal has.
func (a *app) redraw(p page) error {
	var b bytes.Buffer
	width, height := terminalSize(a.stdout)
	p.warn(&b)
	if err := p.render(&b, a.output, width, time.Now()); err != nil {
		return err
	}
	lines := bytes.SplitAfter(b.Bytes(), []byte("\n"))
	if more := len(lines) - height; height > 1 && more > 0 {
		lines = append(lines[:height-1], fmt.Appendf(nil, "… %d more", more))
	}
	if _, err := a.stdout.Write(append([]byte("\x1b[H\x1b[2J"), bytes.Join(lines, nil)...)); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// printChange prints the page if it differs from the last by more than the passing of time.
func (a *app) printChange(p page, last []byte) ([]byte, error) {
	facts, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("compare with the last page: %w", err)
	}
	if bytes.Equal(facts, last) {
		return last, nil
	}
	if last != nil && a.output != outputJSON {
		fmt.Fprintln(a.stdout)
	}
	p.warn(a.stderr)
	return facts, a.write(p, time.Now())
}
