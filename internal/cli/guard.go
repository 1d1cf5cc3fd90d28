// This file holds the command guard: be the parent of the nodes.

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/guard"
)

// defaultLimits is root's file of what a guard may do. A guard without root has nothing to be kept from and
// doesn't look for it.
const defaultLimits = "/etc/" + program + "/guard.toml"

type guardOptions struct {
	cgroupParent, uidRange, limits, tracking string
	peerUID                                  int
	maxTTL                                   time.Duration
	allowExec                                []string
	exitWhenIdle, replace                    bool
	logFormat, logLevel                      string
}

func guardCommand(a *app) *cobra.Command {
	var o guardOptions
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Run the guard, the parent of the nodes",
		Long: `Run the guard in the foreground: it starts and stops nodes as the daemon asks, and is their parent. Usually 'run'
starts it, or systemd; there is one for each runtime directory.

SIGTERM stops all nodes in order, then the guard. SIGUSR1 hands over: the guard leaves and its nodes run on,
until the next guard adopts them. What the guard may do is fixed by its flags and the file of --limits, and never
by a request; a flag overrides the file.`,
		Example: `  cadre-hostd guard
  cadre-hostd guard --uid-range 70000-79999 --allow-exec /usr/bin/redis-server --allow-exec /opt/nodes/
  kill -USR1 PID                       # hand over`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.guardConfig(cmd, o)
			if err != nil {
				return err
			}
			return guard.Run(cmd.Context(), cfg)
		},
	}
	nodesDirFlag(a, cmd)
	f := cmd.Flags()
	f.StringVar(&o.cgroupParent, "cgroup-parent", "", "the cgroup2 `DIR`, relative to its mount, that nodes' cgroups are made in (default below the guard's own)")
	f.StringVar(&o.tracking, "tracking", "auto", "how a node's processes are followed, a `MODE`: auto (cgroup2 where it works) or session")
	f.IntVar(&o.peerUID, "peer-uid", -1, "the `UID`, besides the guard's own, whose requests are answered")
	f.StringVar(&o.uidRange, "uid-range", "", fmt.Sprintf("the users `MIN-MAX` that nodes may have, for a guard with root (default %d-%d)", guard.DefaultUIDMin, guard.DefaultUIDMax))
	f.DurationVar(&o.maxTTL, "max-ttl", 0, "the `DURATION` of the longest lease that may be asked for; 0 is no bound")
	f.StringArrayVar(&o.allowExec, "allow-exec", nil, "a `PATH` that may be run, a directory if it ends in /; may be repeated (default anything)")
	f.StringVar(&o.limits, "limits", "", "a `FILE` with these limits that only root may write (default "+defaultLimits+" for root, if it exists)")
	f.BoolVar(&o.exitWhenIdle, "exit-when-idle", false, "leave when there is no node and no daemon")
	f.BoolVar(&o.replace, "replace", false, "kill a guard that holds the lock and take its place; its nodes run on")
	must(cmd.MarkFlagFilename("limits", "toml"))
	must(cmd.RegisterFlagCompletionFunc("tracking", fixed("auto", guard.TrackingSession)))
	logFlags(cmd, &o.logFormat, &o.logLevel)
	return cmd
}

// guardConfig puts together what the guard may do: the defaults, then the file, then the flags.
func (a *app) guardConfig(cmd *cobra.Command, o guardOptions) (guard.Config, error) {
	if err := checkLogFlags(cmd, o.logFormat, o.logLevel); err != nil {
		return guard.Config{}, err
	}
	p, err := a.paths()
	if err != nil {
		return guard.Config{}, err
	}
	log, _ := newLogger(a.stderr, o.logFormat, o.logLevel)
	cfg := guard.Config{
		RuntimeDir: p.runtimeDir, NodesDir: p.nodesDir, PeerUID: o.peerUID, ExitWhenIdle: o.exitWhenIdle, Replace: o.replace,
		Version: version(), Logger: log,
	}
	switch o.tracking {
	case "auto":
	case guard.TrackingSession:
		cfg.Tracking = guard.TrackingSession
	default:
		return guard.Config{}, usagef(cmd, "--tracking=%s is neither auto nor session", o.tracking)
	}
	if err := loadLimits(&cfg, o.limits); err != nil {
		return guard.Config{}, &configError{err}
	}
	given := cmd.Flags().Changed
	if given("nodes-dir") {
		cfg.NodesDir = p.nodesDir
	}
	if given("cgroup-parent") {
		cfg.CgroupParent = o.cgroupParent
	}
	if given("peer-uid") {
		cfg.PeerUID = o.peerUID
	}
	if given("max-ttl") {
		cfg.MaxTTL = o.maxTTL
	}
	if given("allow-exec") {
		cfg.Executables = o.allowExec
	}
	if given("uid-range") {
		if cfg.UIDMin, cfg.UIDMax, err = parseUIDRange(o.uidRange); err != nil {
			return guard.Config{}, usagef(cmd, "--uid-range: %w", err)
		}
	}
	return cfg, nil
}

// loadLimits reads the file that was named, or root's default one if it is there.
func loadLimits(cfg *guard.Config, named string) error {
	if named != "" {
		return cfg.LoadLimits(named)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	err := cfg.LoadLimits(defaultLimits)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// parseUIDRange reads "70000-79999".
func parseUIDRange(text string) (low, high uint32, err error) {
	lowText, highText, ok := strings.Cut(text, "-")
	l, err1 := strconv.ParseUint(strings.TrimSpace(lowText), 10, 32)
	h, err2 := strconv.ParseUint(strings.TrimSpace(highText), 10, 32)
	if !ok || err1 != nil || err2 != nil || l > h {
		return 0, 0, fmt.Errorf("%q is no range of uids; write it like 70000-79999", text)
	}
	return uint32(l), uint32(h), nil
}
