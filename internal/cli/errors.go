// This file holds how errors reach the user: once, on stderr, without the usage text.

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/config"
)

// usageError is a command line that is wrong. command is what has the help about it.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usageError of cmd.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{command: cmd.CommandPath(), err: fmt.Errorf(format, args...)}
}

// configError is a configuration that could not be read at all.
type configError struct{ err error }

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// report prints err on w. An interruption or a reader that left is the user's own doing and needs no words.
func report(ctx context.Context, w io.Writer, err error) {
	var several severalError
	if !errors.As(err, &several) {
		several = severalError{err}
	}
	said := map[string]bool{}
	for _, err := range several {
		text := describe(err)
		if code := exitCode(ctx, err); code == exitInterrupted || code == exitNoReader || said[text] {
			continue
		}
		said[text] = true
		fmt.Fprintf(w, "%s: %s\n", program, text)
	}
}

// describe is the text of one error.
func describe(err error) string {
	if usage, ok := errors.AsType[*usageError](err); ok {
		return fmt.Sprintf("%s\nsee '%s --help'", usage, usage.command)
	}
	var bad *config.Error
	if errors.As(err, &bad) && len(bad.Problems) > 1 {
		return fmt.Sprintf("the configuration has %d mistakes:\n  %s", len(bad.Problems), strings.ReplaceAll(bad.Error(), "\n", "\n  "))
	}
	return err.Error()
}

// noArgs, exactly and atLeast are cobra's validators with our kind of error.

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "%q is one argument too many: %s takes none", args[0], cmd.CommandPath())
	}
	return nil
}

func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usagef(cmd, "%s is missing", what)
		}
		if len(args) > n {
			return usagef(cmd, "%q is one argument too many", args[n])
		}
		return notEmpty(cmd, args)
	}
}

func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef(cmd, "%q is one argument too many", args[n])
		}
		return notEmpty(cmd, args)
	}
}

func atLeast(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usagef(cmd, "%s is missing", what)
		}
		return notEmpty(cmd, args)
	}
}

// notEmpty refuses empty arguments: a script whose variable is unset must not be taken to mean everything.
func notEmpty(cmd *cobra.Command, args []string) error {
	if slices.Contains(args, "") {
		return usagef(cmd, "an argument is empty; is a variable of your script unset?")
	}
	return nil
}

// subcommandOnly is for commands that do nothing themselves: without an argument they show their help.
func subcommandOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2 // cobra's own choice, which it makes too late for us
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	return usagef(cmd, "%q is no command of %s%s", args[0], cmd.CommandPath(), hint)
}
