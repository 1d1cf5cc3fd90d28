// This file holds the exit codes: the one table, how an error finds its row, and the help topic about it.

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/daemon"
	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// The exit codes. They are an interface: a number never changes its meaning.
const (
	exitOK            = 0
	exitFailure       = 1
	exitUsage         = 2
	exitNotRunning    = 3
	exitNoAnswer      = 4
	exitPermission    = 5
	exitNotFound      = 6
	exitAmbiguous     = 7
	exitRefused       = 8
	exitSpawnFailed   = 9
	exitConfig        = 10
	exitLocked        = 11
	exitStillStopping = 12
	exitUnavailable   = 13
	exitInterrupted   = 130
	exitNoReader      = 141
)

// exitMeanings is the table of docs/cli.md and of 'cadre-hostd help exit-codes'.
var exitMeanings = []struct {
	code    int
	meaning string
}{
	{exitOK, "success"},
	{exitFailure, "a failure that has no code of its own"},
	{exitUsage, "the command line is wrong: an unknown command or flag, a bad or missing argument"},
	{exitNotRunning, "the daemon is not running, or left in the middle"},
	{exitNoAnswer, "the daemon is there but did not answer within --timeout"},
	{exitPermission, "permission denied: the daemon belongs to another user"},
	{exitNotFound, "no donation has this id, id prefix or name"},
	{exitAmbiguous, "the id prefix fits more than one donation"},
	{exitRefused, "refused: a wrong state or request, an unknown template, a name in use, no free port"},
	{exitSpawnFailed, "the node could not be started, or did not become ready"},
	{exitConfig, "the configuration is invalid"},
	{exitLocked, "another daemon holds the state directory, or another guard the runtime directory"},
	{exitStillStopping, "the node is still stopping; the daemon goes on with it"},
	{exitUnavailable, "this can't be done now: the daemon is a caretaker or has no guard, or the node doesn't answer"},
	{exitInterrupted, "interrupted by Ctrl-C or SIGTERM"},
	{exitNoReader, "nobody reads the output any more"},
}

// domainExits maps the daemon's codes; those that aren't here are failures without a code.
var domainExits = map[donation.Code]int{
	donation.CodeInvalidRequest:  exitRefused,
	donation.CodeUnknownTemplate: exitRefused,
	donation.CodeNameTaken:       exitRefused,
	donation.CodeInvalidState:    exitRefused,
	donation.CodePortsExhausted:  exitRefused,
	donation.CodeNotFound:        exitNotFound,
	donation.CodeAmbiguous:       exitAmbiguous,
	donation.CodeSpawnFailed:     exitSpawnFailed,
	donation.CodeStillStopping:   exitStillStopping,
	donation.CodeUnavailable:     exitUnavailable,
	donation.CodeSeedRejected:    exitRefused,
	donation.CodeSeedFailed:      exitFailure,
	donation.CodePeerUnavailable: exitUnavailable,
	donation.CodeAbandoned:       exitRefused,
	donation.CodeInternal:        exitFailure,
}

// exitCode returns the code for err. ctx ends when the user interrupts.
func exitCode(ctx context.Context, err error) int {
	if several := severalError(nil); errors.As(err, &several) {
		return several.exitCode(ctx)
	}
	var (
		domain  *donation.Error
		usage   *usageError
		badConf *config.Error
		runConf *daemon.ConfigError
		noConf  *configError
		locked  *daemon.LockedError
		held    *guard.HeldError
	)
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, errNoReader):
		return exitNoReader
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, api.ErrNotRunning):
		return exitNotRunning
	case errors.Is(err, api.ErrNoAnswer):
		return exitNoAnswer
	case errors.Is(err, api.ErrPermission):
		return exitPermission
	case errors.As(err, &badConf), errors.As(err, &runConf), errors.As(err, &noConf):
		return exitConfig
	case errors.As(err, &locked), errors.As(err, &held):
		return exitLocked
	case errors.As(err, &domain):
		if code, ok := domainExits[domain.Code]; ok {
			return code
		}
	}
	return exitFailure
}

// severalError is what went wrong with some of the things that a command was asked to do.
type severalError []error

func (e severalError) Error() string { return errors.Join(e...).Error() }

// exitCode is the code of all failures, or the general one if they differ.
func (e severalError) exitCode(ctx context.Context) int {
	code := exitCode(ctx, e[0])
	for _, err := range e[1:] {
		if exitCode(ctx, err) != code {
			return exitFailure
		}
	}
	return code
}

// exitCodesTopic is 'cadre-hostd help exit-codes'.
func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Every command ends with one of these codes:\n\n")
	for _, e := range exitMeanings {
		fmt.Fprintf(&b, "%5d  %s\n", e.code, e.meaning)
	}
	b.WriteString("\nWhatever isn't 0 has said why on stderr, once; the last two say nothing.")
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: b.String()}
}
