// This file holds the root command, the global flags, and help.

package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// The values of -o.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
)

// defaultTimeout is how long a command waits for the daemon.
const defaultTimeout = 10 * time.Second

// The groups that help sorts the commands into.
const (
	groupDonations = "donations"
	groupProcesses = "processes"
	groupOther     = "other"
)

// newRoot builds the whole command tree for one run.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   program,
		Short: "Keep lent nodes running",
		Long: `cadre-hostd runs on a machine that is always on and lends nodes to people its owner trusts.
Each loan is a donation: a process that the daemon starts, keeps running, and remembers.

Start the daemon with 'cadre-hostd run', then lend a node with 'cadre-hostd donate'.`,
		Example: `  cadre-hostd run                      # in one terminal
  cadre-hostd donate --wait            # in another: lend a node
  cadre-hostd status                   # see it run
  cadre-hostd terminate REF            # end the loan`,
		Args:              subcommandOnly,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true, // Main reports them, once
		SilenceUsage:      true,
		Version:           version(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.check(cmd) },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // we have our own
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usagef(cmd, "%w", err) })
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetHelpCommand(helpCommand(root))

	f := root.PersistentFlags()
	f.StringVar(&a.flags.stateDir, "state-dir", "", "`DIR` of the daemon's records, as root /var/lib/cadre-hostd [$"+stateDirVar+"]")
	f.StringVar(&a.flags.runtimeDir, "runtime-dir", "", "`DIR` of the sockets, as root /run/cadre-hostd, but the run/ of another state directory [$"+runtimeDirVar+"]")
	f.DurationVar(&a.timeout, "timeout", defaultTimeout, "the `DURATION` to wait for the daemon, such as 30s; 0 is for ever")
	f.StringVarP(&a.output, "output", "o", outputTable, "the `FORM` of the output: table, wide or json")
	must(root.RegisterFlagCompletionFunc("output", fixed(outputTable, outputWide, outputJSON)))

	root.AddGroup(
		&cobra.Group{ID: groupDonations, Title: "Donations:"},
		&cobra.Group{ID: groupProcesses, Title: "Processes:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupDonations, donateCommand(a), statusCommand(a), logsCommand(a), eventsCommand(a),
		restartCommand(a), retryCommand(a), seedCommand(a), peerCommand(a), drainCommand(a), terminateCommand(a))
	add(groupProcesses, runCommand(a), guardCommand(a), nodeCommand(a))
	add(groupOther, configCommand(a), versionCommand(a), completionCommand())
	root.SetHelpCommandGroupID(groupOther)
	root.AddCommand(exitCodesTopic())
	return root
}

// check refuses global flags that no command could use.
func (a *app) check(cmd *cobra.Command) error {
	if !slices.Contains([]string{outputTable, outputWide, outputJSON}, a.output) {
		return usagef(cmd, "-o %q is none of table, wide and json", a.output)
	}
	if a.timeout < 0 {
		return usagef(cmd, "--timeout %s is negative; 0 waits for ever", a.timeout)
	}
	return nil
}

// helpCommand is cobra's, except that an unknown topic is an error.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command or a topic",
		Long:  "Explain a command, or the topic exit-codes.",
		Example: `  cadre-hostd help donate
  cadre-hostd help exit-codes`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			if at, _, err := root.Find(args); err == nil {
				for _, c := range at.Commands() {
					if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
						names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef(cmd, "there is no help about %q", args)
			}
			about.InitDefaultHelpFlag()
			if err := about.Help(); err != nil {
				return fmt.Errorf("print the help: %w", err)
			}
			return nil
		},
	}
}

// must is for registrations that can only fail by a mistake in this package, found by any test.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
