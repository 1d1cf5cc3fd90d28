// This file holds the command config check: is the configuration one that the daemon would take?

package cli

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/config"
)

// checked is what config check prints of a configuration without mistakes.
type checked struct {
	// Path is the file, empty if there is none and the defaults hold.
	Path      string   `json:"path"`
	Templates []string `json:"templates"`
}

func configCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration",
		Long:  "Commands about the daemon's configuration file and the templates beside it.",
		Example: `  cadre-hostd config check
  cadre-hostd config check --config ./config.toml`,
		Args: subcommandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	check := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration file and every template",
		Long: `Read the configuration and the templates as the daemon would, and render each template once with made-up
values. Every mistake is told with its file and line. The daemon need not run, and isn't told.`,
		Example: `  cadre-hostd config check
  cadre-hostd config check --config ./config.toml && systemctl restart cadre-hostd`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return writeJSON(a.stdout, c)
			}
			return a.say("%s is fine, templates: %s",
				first(c.Path, "there is no configuration file; what is built in"), strings.Join(c.Templates, ", "))
		},
	}
	configFlag(a, check)
	cmd.AddCommand(check)
	return cmd
}

// configFlag adds --config to a command that reads the file.
func configFlag(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.flags.config, "config", "",
		"the configuration `FILE`, as root /etc/cadre-hostd/config.toml")
	must(cmd.MarkFlagFilename("config", "toml"))
}

func (a *app) loadConfig() (checked, error) {
	p, err := a.paths()
	if err != nil {
		return checked{}, err
	}
	load := config.LoadDefault
	if p.configExplicit {
		load = config.Load
	}
	c, err := load(p.config)
	if bad := (*config.Error)(nil); err != nil && !errors.As(err, &bad) {
		err = &configError{err}
	}
	if err != nil {
		return checked{}, err
	}
	return checked{Path: c.Path, Templates: slices.Sorted(maps.Keys(c.Templates))}, nil
}
