// This file holds the command node: be the reference node.

package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/nodeapi"
)

func nodeCommand(a *app) *cobra.Command {
	var o nodeapi.Options
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the reference node",
		Long: `Run the node that the template "reference" lends: it makes an Ed25519 identity in its working directory on its first
start and keeps it, serves /health, /ready, /status, /metrics and /seed on its health port, and takes seeds that one
of its owners has signed. The daemon runs it; by hand it is good for trying out a seed.

Its environment: CADRE_STARTUP_TOKEN is written to the startup-token file once the node serves; CADRE_SEED_TOKEN is
the bearer for /seed; CADRE_OWNER_KEYS are the public keys (base64url, separated by commas) that may sign one.`,
		Example: `  cadre-hostd donate --template reference --wait
  CADRE_SEED_TOKEN=s cadre-hostd node --workdir /tmp/node --health-port 8080`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Env, o.Log = os.Getenv, a.stderr
			if o.HealthPort < 0 || o.HealthPort > 65535 {
				return usagef(cmd, "--health-port %d is no port", o.HealthPort)
			}
			return nodeapi.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Workdir, "workdir", ".", "the `DIR` where the identity and the seeds are kept")
	f.StringVar(&o.Listen, "listen", "127.0.0.1", "the `ADDRESS` to serve on")
	f.IntVar(&o.HealthPort, "health-port", 0, "the `PORT` to serve on; 0 takes any free one")
	f.StringVar(&o.StartupTokenFile, "startup-token-file", "", "the `FILE` that gets $CADRE_STARTUP_TOKEN once the node serves")
	must(cmd.MarkFlagDirname("workdir"))
	return cmd
}
