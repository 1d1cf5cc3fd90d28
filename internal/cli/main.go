// Package cli is the command line: one file for each command. A command asks the daemon through its API
// client, or becomes one of the three processes (daemon, guard, node). It never opens the database.
//
// This file holds what surrounds every command: its signals, its error and its exit code.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

// program is what the binary, its directories and its messages are called.
const program = "cadre-hostd"

// Version is set by the linker ("-X …/internal/cli.Version=1.2.3"); without it the build's own information
// is shown. Nothing changes it later.
var Version string

// Main runs the command that args (without the program's name) spell and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal is not caught any more, so that a process that won't leave can be made to.
	context.AfterFunc(ctx, stop)

	a := &app{stdout: stdout, stderr: stderr}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		report(ctx, stderr, err)
	}
	return exitCode(ctx, err)
}

// app is what the commands share.
type app struct {
	stdout, stderr io.Writer
	flags          pathFlags
	timeout        time.Duration
	output         string
}

// paths resolves the flags against this process's surroundings.
func (a *app) paths() (paths, error) {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "/" // it was removed; only relative flags miss it
	}
	return resolve(surroundings{uid: os.Geteuid(), cwd: cwd, getenv: os.Getenv}, a.flags)
}

// client returns the client of the daemon that the flags point to.
func (a *app) client() (*api.Client, error) {
	p, err := a.paths()
	if err != nil {
		return nil, err
	}
	return api.NewClient(p.adminSocket), nil
}

// ask runs a client command's work under the deadline of --timeout.
func (a *app) ask(cmd *cobra.Command, work func(ctx context.Context, c *api.Client) error) error {
	return a.askFor(cmd, a.timeout, work)
}

// askFor is ask with another deadline; 0 is none.
func (a *app) askFor(cmd *cobra.Command, limit time.Duration, work func(ctx context.Context, c *api.Client) error) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx := cmd.Context()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return work(ctx, c)
}

// say prints one line on stdout.
func (a *app) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(a.stdout, format+"\n", args...); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// askOn is ask for a command that goes on until it is interrupted or its reader leaves.
func (a *app) askOn(cmd *cobra.Command, work func(ctx context.Context, c *api.Client) error) error {
	return a.askFor(cmd, 0, func(ctx context.Context, c *api.Client) error {
		return whileRead(ctx, a.stdout, func(ctx context.Context) error { return work(ctx, c) })
	})
}

// version is what this binary calls itself.
func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
