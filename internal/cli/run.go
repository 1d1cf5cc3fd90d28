// This file holds the command run: be the daemon.

package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/serfab/cadre-hostd/internal/daemon"
)

func runCommand(a *app) *cobra.Command {
	var o daemon.Options
	var logFormat, logLevel string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `Run the daemon in the foreground: it keeps every donated node running until it is told to stop. Its nodes belong
to the guard, another process, and live on when the daemon stops, is upgraded, or is killed; the next one finds
them. Ctrl-C or SIGTERM stops it; with --drain that stops every node in order first, and the next one starts them again.

With --guard=auto it starts a guard when none is running. With --guard=external somebody else does, such as
systemd.`,
		Example: `  cadre-hostd run
  cadre-hostd run --state-dir ./state --config ./config.toml
  cadre-hostd run --guard=external --log-format=json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{daemon.GuardAuto, daemon.GuardExternal}, o.GuardMode) {
				return usagef(cmd, "--guard=%s is neither auto nor external", o.GuardMode)
			}
			if err := checkLogFlags(cmd, logFormat, logLevel); err != nil {
				return err
			}
			p, err := a.paths()
			if err != nil {
				return err
			}
			o.StateDir, o.NodesDir, o.RuntimeDir = p.stateDir, p.nodesDir, p.runtimeDir
			o.ConfigPath, o.ConfigExplicit = p.config, p.configExplicit
			o.GuardSocket = p.guardSocket
			o.Version = version()
			var level *zap.AtomicLevel
			o.Log, level = newLogger(a.stderr, logFormat, logLevel)
			if logLevel == "" {
				o.Level = level // the configuration says
			}
			return daemon.Run(cmd.Context(), o)
		},
	}
	configFlag(a, cmd)
	nodesDirFlag(a, cmd)
	f := cmd.Flags()
	f.StringVar(&o.GuardMode, "guard", daemon.GuardAuto, "who starts the guard, a `MODE`: auto (the daemon) or external")
	f.StringVar(&a.flags.guardSocket, "guard-socket", "", "the guard's `SOCKET` (default guard.sock in the runtime directory)")
	f.BoolVar(&o.Drain, "drain", false, "when told to stop, stop every node in order first")
	must(cmd.RegisterFlagCompletionFunc("guard", fixed(daemon.GuardAuto, daemon.GuardExternal)))
	logFlags(cmd, &logFormat, &logLevel)
	return cmd
}

// nodesDirFlag adds --nodes-dir.
func nodesDirFlag(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.flags.nodesDir, "nodes-dir", "",
		"`DIR` of the nodes' working directories and logs (default the state directory with -nodes appended)")
	must(cmd.MarkFlagDirname("nodes-dir"))
}
