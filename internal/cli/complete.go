// This file holds the command completion, and what the shells complete: refs and templates are asked of the
// daemon, for a moment only and in silence.

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
)

// completeWithin is how long somebody who pressed Tab is kept waiting.
const completeWithin = 500 * time.Millisecond

func completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell",
		Long:  `Print a script that makes a shell complete commands, flags, donations and templates. SHELL is bash, zsh or fish.`,
		Example: `  source <(cadre-hostd completion bash)
  cadre-hostd completion zsh > "${fpath[1]}/_cadre-hostd"
  cadre-hostd completion fish > ~/.config/fish/completions/cadre-hostd.fish`,
		Args:      exactly(1, "the shell (bash, zsh or fish)"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), cmd.OutOrStdout()
			var err error
			switch args[0] {
			case "bash":
				err = root.GenBashCompletionV2(w, true)
			case "zsh":
				err = root.GenZshCompletion(w)
			case "fish":
				err = root.GenFishCompletion(w, true)
			default:
				return usagef(cmd, "%q is none of the shells %v", args[0], shells)
			}
			if err != nil {
				return fmt.Errorf("write the completion script: %w", err)
			}
			return nil
		},
	}
}

// completeRefs completes donations by id and name, for at most n arguments; negative is any number.
func (a *app) completeRefs(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []cobra.Completion
		_ = a.askFor(cmd, completeWithin, func(ctx context.Context, c *api.Client) error {
			views, err := c.Donations(ctx, false)
			for _, v := range views {
				if slices.Contains(args, string(v.ID)) || v.Name != "" && slices.Contains(args, v.Name) {
					continue
				}
				about := fmt.Sprintf("%s, %s", v.Template, v.Status)
				if v.Name != "" {
					found = append(found, cobra.CompletionWithDesc(v.Name, about))
				}
				found = append(found, cobra.CompletionWithDesc(string(v.ID), about))
			}
			return err
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTemplates completes the names of the daemon's templates.
func (a *app) completeTemplates(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	_ = a.askFor(cmd, completeWithin, func(ctx context.Context, c *api.Client) error {
		o, err := c.Overview(ctx)
		found = o.Templates
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

// fixed completes a flag with a fixed choice.
func fixed(values ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}
