// This file holds the command version.

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildInfo is what version prints.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Long:  "Print the version of this binary, the revision it was built from, and its Go. The daemon's own is in its log.",
		Example: `  cadre-hostd version
  cadre-hostd version -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if a.output == outputJSON {
				return writeJSON(a.stdout, b)
			}
			revision := ""
			if b.Revision != "" {
				revision = "revision " + b.Revision + ", "
			}
			_, err := fmt.Fprintf(a.stdout, "%s %s (%s%s, %s)\n", program, b.Version, revision, b.Go, b.Platform)
			return err
		},
	}
}

func thisBuild() buildInfo {
	b := buildInfo{Version: version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	return b
}
