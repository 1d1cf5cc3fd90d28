// This file holds the command config check: is the configuration one that the daemon would take?

package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/lease"
)

// checked is what config check prints of a configuration without mistakes.
type checked struct {
	// Path is the file, empty if there is none and the defaults hold.
	Path      string   `json:"path"`
	Templates []string `json:"templates"`
	// Leases are those that the templates' nodes get, longest first, with what follows from their TTL.
	Leases []leaseNumbers `json:"leases"`
}

// leaseNumbers are what follows from a TTL, as text like "30s".
type leaseNumbers struct {
	Templates []string `json:"templates"`
	TTL       string   `json:"ttl"`
	Interval  string   `json:"interval,omitempty"`
	Timeout   string   `json:"timeout,omitempty"`
	Retries   string   `json:"retries,omitempty"`
	LastTry   string   `json:"last_try,omitempty"`
}

// words are the numbers in a sentence.
func (n leaseNumbers) words() string {
	if n.Interval == "" {
		return "none; its nodes run until they are told to stop"
	}
	return fmt.Sprintf("%s, renewed after %s, each within %s; after a failure again after %s; a last time %s before the expiry",
		n.TTL, n.Interval, n.Timeout, n.Retries, n.LastTry)
}

// leasesOf groups the templates by the TTL of their nodes' leases.
func leasesOf(c *config.Config) []leaseNumbers {
	byTTL := map[time.Duration][]string{}
	for _, name := range c.TemplateNames() {
		ttl := c.TTLOf(name)
		byTTL[ttl] = append(byTTL[ttl], name)
	}
	var list []leaseNumbers
	for _, ttl := range slices.Backward(slices.Sorted(maps.Keys(byTTL))) {
		n := leaseNumbers{Templates: byTTL[ttl], TTL: ttl.String()}
		if ttl > 0 {
			t := lease.TimingOf(ttl)
			shortest, longest := t.Range()
			n.Interval, n.Timeout = fmt.Sprintf("%s to %s", shortest, longest), t.Timeout.String()
			n.Retries, n.LastTry = fmt.Sprintf("%s to %s", t.FirstRetry, t.MaxRetry), t.LastTry.String()
		}
		list = append(list, n)
	}
	return list
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
values. Every mistake is told with its file and line; without any, the numbers that follow from the leases' TTLs
are shown. The daemon need not run, and isn't told.`,
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
			lines := []string{fmt.Sprintf("%s is fine, templates: %s",
				first(c.Path, "there is no configuration file; what is built in"), strings.Join(c.Templates, ", "))}
			for _, n := range c.Leases {
				lines = append(lines, fmt.Sprintf("lease of %s: %s", strings.Join(n.Templates, ", "), n.words()))
			}
			return a.say("%s", strings.Join(lines, "\n"))
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
	return checked{Path: c.Path, Templates: slices.Sorted(maps.Keys(c.Templates)), Leases: leasesOf(c)}, nil
}
