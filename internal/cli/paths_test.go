// This file tests the rules of where things live.

package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPaths(t *testing.T) {
	const home, xdg = "/home/ann", "/xdg"
	for _, tc := range []struct {
		name  string
		uid   int
		env   map[string]string
		flags pathFlags
		want  paths
	}{
		{"root", 0, nil, pathFlags{}, paths{
			stateDir: "/var/lib/cadre-hostd", nodesDir: "/var/lib/cadre-hostd-nodes", runtimeDir: "/run/cadre-hostd",
			adminSocket: "/run/cadre-hostd/admin.sock", guardSocket: "/run/cadre-hostd/guard.sock", config: "/etc/cadre-hostd/config.toml",
		}},
		{"a user", 1000, map[string]string{"HOME": home, "XDG_RUNTIME_DIR": "/run/user/1000"}, pathFlags{}, paths{
			stateDir: home + "/.local/state/cadre-hostd", nodesDir: home + "/.local/state/cadre-hostd-nodes",
			runtimeDir: "/run/user/1000/cadre-hostd", adminSocket: "/run/user/1000/cadre-hostd/admin.sock",
			guardSocket: "/run/user/1000/cadre-hostd/guard.sock", config: home + "/.config/cadre-hostd/config.toml",
		}},
		{"a user with XDG's places and no session", 1000, map[string]string{
			"HOME": home, "XDG_STATE_HOME": xdg + "/state", "XDG_CONFIG_HOME": xdg + "/config", "XDG_RUNTIME_DIR": "relative",
		}, pathFlags{}, paths{
			stateDir: xdg + "/state/cadre-hostd", nodesDir: xdg + "/state/cadre-hostd-nodes", runtimeDir: "/tmp/cadre-hostd-1000",
			adminSocket: "/tmp/cadre-hostd-1000/admin.sock", guardSocket: "/tmp/cadre-hostd-1000/guard.sock",
			config: xdg + "/config/cadre-hostd/config.toml",
		}},
		{"another state directory takes its sockets along", 0, nil, pathFlags{stateDir: "demo/"}, paths{
			stateDir: "/work/demo", nodesDir: "/work/demo-nodes", runtimeDir: "/work/demo/run",
			adminSocket: "/work/demo/run/admin.sock", guardSocket: "/work/demo/run/guard.sock", config: "/etc/cadre-hostd/config.toml",
		}},
		{"the default one named is the default", 0, nil, pathFlags{stateDir: "/var/lib/../lib/cadre-hostd"}, paths{
			stateDir: "/var/lib/cadre-hostd", nodesDir: "/var/lib/cadre-hostd-nodes", runtimeDir: "/run/cadre-hostd",
			adminSocket: "/run/cadre-hostd/admin.sock", guardSocket: "/run/cadre-hostd/guard.sock", config: "/etc/cadre-hostd/config.toml",
		}},
		{"the environment", 0, map[string]string{stateDirVar: "/e/state", runtimeDirVar: "/e/run"}, pathFlags{}, paths{
			stateDir: "/e/state", nodesDir: "/e/state-nodes", runtimeDir: "/e/run",
			adminSocket: "/e/run/admin.sock", guardSocket: "/e/run/guard.sock", config: "/etc/cadre-hostd/config.toml",
		}},
		{
			"flags before the environment", 0,
			map[string]string{stateDirVar: "/e/state", runtimeDirVar: "/e/run"},
			pathFlags{stateDir: "/f/state", runtimeDir: "run", nodesDir: "nodes", guardSocket: "../g.sock", config: "c.toml"},
			paths{
				stateDir: "/f/state", nodesDir: "/work/nodes", runtimeDir: "/work/run",
				adminSocket: "/work/run/admin.sock", guardSocket: "/g.sock", config: "/work/c.toml", configExplicit: true,
			},
		},
		{"a user without a home who names the state directory", 1000, nil, pathFlags{stateDir: "/s"}, paths{
			stateDir: "/s", nodesDir: "/s-nodes", runtimeDir: "/s/run", adminSocket: "/s/run/admin.sock", guardSocket: "/s/run/guard.sock",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := surroundings{uid: tc.uid, cwd: "/work", getenv: func(name string) string { return tc.env[name] }}
			got, err := resolve(s, tc.flags)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(paths{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := resolve(surroundings{uid: 1000, getenv: func(string) string { return "" }}, pathFlags{}); err == nil {
		t.Error("a user without a home: no error")
	}
}
