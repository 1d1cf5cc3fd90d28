// This file holds the command donate: lend a node, and with --wait see it become ready.

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

const (
	// defaultWait is how long donate --wait waits for readiness unless --timeout says otherwise.
	defaultWait = 60 * time.Second
	// lookEvery is how often donate --wait looks even if no event says that it should.
	lookEvery = time.Second
)

func donateCommand(a *app) *cobra.Command {
	req := donation.Request{}
	wait := false
	cmd := &cobra.Command{
		Use:   "donate",
		Short: "Lend a node",
		Long: `Lend a node: the daemon records the donation, starts the template's program, and keeps it running until
the donation is terminated. The id is printed on stdout.

With --wait the command shows the progress on stderr and returns when the node is ready, after 60 seconds at
most unless --timeout says otherwise. A node that isn't ready by then goes on all the same.`,
		Example: `  cadre-hostd donate
  cadre-hostd donate --template redis --name cache --wait
  cadre-hostd donate --template cadre --party-id 12D3… --profile storage --owner-key BASE64URL`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limit := a.timeout
			if wait && !cmd.Flags().Changed("timeout") {
				limit = defaultWait
			}
			return a.askFor(cmd, limit, func(ctx context.Context, c *api.Client) error {
				v, err := c.Donate(ctx, req)
				if err == nil && wait {
					v, err = a.waitReady(ctx, c, v)
				}
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return writeJSON(a.stdout, v)
				}
				return a.say("%s", v.ID)
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&req.Template, "template", "t", "reference", "what to run: a `TEMPLATE` of the daemon's configuration")
	f.StringVar(&req.Name, "name", "", "a `NAME` to use in place of the id, unique among the donations that aren't terminated")
	f.StringVar(&req.PartyID, "party-id", "", "the borrower's `PARTY`, for templates that ask for it")
	f.StringVar(&req.Profile, "profile", "", "the `PROFILE` of the node, for templates that ask for it (cadre: storage or transaction)")
	f.StringArrayVar(&req.OwnerKeys, "owner-key", nil, "a `KEY` of the borrower, base64url of 32 bytes; may be repeated")
	f.StringArrayVar(&req.BootstrapNodes, "bootstrap", nil, "the `MULTIADDR` of a node of the party; may be repeated")
	f.BoolVar(&wait, "wait", false, "return when the node is ready")
	must(cmd.RegisterFlagCompletionFunc("template", a.completeTemplates))
	for _, name := range []string{"name", "party-id", "owner-key", "bootstrap"} {
		must(cmd.RegisterFlagCompletionFunc(name, fixed()))
	}
	must(cmd.RegisterFlagCompletionFunc("profile", fixed("storage", "transaction")))
	return cmd
}

// waitReady returns once the node is ready. The end of ctx's time is a node that isn't ready; a daemon that
// doesn't answer is told apart by its own deadline.
func (a *app) waitReady(ctx context.Context, c *api.Client, v api.View) (api.View, error) {
	changes, stop := follow(ctx, c, string(v.ID), defaultTimeout)
	defer stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	progress := &progress{app: a}
	for {
		progress.show(v)
		switch {
		case v.Running && v.Ready:
			return v, nil
		case ended(v):
			return v, donation.Errorf(donation.CodeSpawnFailed, "%s ended before it was ready: %s", nameOf(v), endWords(v))
		}
		select {
		case err := <-changes:
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return v, err
			}
		case <-tick.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return v, notReady(ctx, v)
		}
		next, err := lookAt(ctx, c, v.ID)
		if err != nil && ctx.Err() != nil {
			return v, notReady(ctx, v)
		}
		if err != nil {
			return v, err
		}
		v = next
	}
}

// lookAt asks for one donation under a deadline of its own.
func lookAt(ctx context.Context, c *api.Client, id donation.ID) (api.View, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	return c.Donation(ctx, string(id))
}

// notReady is the error of a wait that ended too early.
func notReady(ctx context.Context, v api.View) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return donation.Errorf(donation.CodeSpawnFailed,
		"%s is not ready yet (%s); it goes on: see '%s status %s' and '%s logs %s', or wait longer with --timeout",
		nameOf(v), endWords(v), program, v.ID, program, v.ID)
}

// endWords is the status with all that explains it.
func endWords(v api.View) string {
	now := time.Now()
	words := statusWords(v, now)
	if n := note(v); n != "" {
		words += ", " + n
	}
	if v.LastExit != nil {
		words += ", last exit: " + lastExit(v, now)
	}
	return words
}

// progress tells what has changed since the last look, on stderr.
type progress struct {
	app    *app
	begun  time.Time
	spawn  string
	exited time.Time
	next   time.Time
	held   string
}

func (p *progress) show(v api.View) {
	now := time.Now()
	say := func(format string, args ...any) { fmt.Fprintf(p.app.stderr, format+"\n", args...) }
	if p.begun.IsZero() {
		p.begun = now
		say("provisioned %s from template %s", nameOf(v), v.Template)
	}
	if e := v.LastExit; e != nil && !e.At.Equal(p.exited) {
		p.exited = e.At
		say("ended: %s", oneLine(e.Words))
	}
	if next := v.NextAttempt; next != nil && !next.Equal(p.next) {
		p.next = *next
		say("attempt %d of %d follows %s", v.Attempts+1, v.MaxAttempts, in(*next, now))
	}
	if v.Running && v.Spawn != p.spawn {
		p.spawn = v.Spawn
		say("started, pid %d", v.PID)
	}
	if v.Hold != "" && v.Hold != p.held {
		say("held up: %s", oneLine(v.Hold))
	}
	p.held = v.Hold
	if v.Running && v.Ready {
		since := p.begun
		if v.StartedAt != nil {
			since = *v.StartedAt
		}
		say("ready, %s after its start", max(now.Sub(since), 0).Round(10*time.Millisecond))
	}
}
