// This file holds where things live when nobody says so: pure rules of flags, environment and user.

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
)

// The environment variables that stand for the two global flags.
const (
	stateDirVar   = "CADRE_HOSTD_STATE_DIR"
	runtimeDirVar = "CADRE_HOSTD_RUNTIME_DIR"
)

// surroundings is what the rules look at, beside the flags.
type surroundings struct {
	uid int
	// cwd makes relative paths absolute.
	cwd    string
	getenv func(string) string
}

// pathFlags are the flags as given; empty means not given.
type pathFlags struct {
	stateDir, runtimeDir, nodesDir, guardSocket, config string
}

// paths is where everything is, absolute.
type paths struct {
	stateDir, runtimeDir, nodesDir string
	adminSocket, guardSocket       string
	config                         string
	// configExplicit is true if the configuration file was named, so that it must exist.
	configExplicit bool
}

// resolve applies the rules of docs/cli.md.
func resolve(s surroundings, f pathFlags) (paths, error) {
	var p paths
	home, err := defaultStateDir(s)
	p.stateDir = s.abs(first(f.stateDir, s.getenv(stateDirVar), home))
	if p.stateDir == "" {
		return paths{}, fmt.Errorf("where the state is kept: %w; set HOME, or name it with --state-dir", err)
	}
	// Another state directory is another world: its sockets are found beside it, and never the default
	// daemon's by mistake.
	runtime := filepath.Join(p.stateDir, "run")
	if p.stateDir == home {
		runtime = defaultRuntimeDir(s)
	}
	p.runtimeDir = s.abs(first(f.runtimeDir, s.getenv(runtimeDirVar), runtime))
	p.nodesDir = s.abs(first(f.nodesDir, p.stateDir+"-nodes"))
	p.adminSocket = filepath.Join(p.runtimeDir, "admin.sock")
	p.guardSocket = s.abs(first(f.guardSocket, filepath.Join(p.runtimeDir, "guard.sock")))
	p.configExplicit = f.config != ""
	p.config = s.abs(first(f.config, defaultConfig(s)))
	return p, nil
}

// defaultStateDir is /var/lib for root, else XDG's.
func defaultStateDir(s surroundings) (string, error) {
	if s.uid == 0 {
		return "/var/lib/" + program, nil
	}
	return s.xdg("XDG_STATE_HOME", ".local/state")
}

// defaultRuntimeDir is /run for root, else XDG's, else a directory of the user's own in /tmp.
func defaultRuntimeDir(s surroundings) string {
	if s.uid == 0 {
		return "/run/" + program
	}
	if dir := s.getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, program)
	}
	return fmt.Sprintf("/tmp/%s-%d", program, s.uid)
}

// defaultConfig is /etc for root, else XDG's; empty if there is no place for it.
func defaultConfig(s surroundings) string {
	dir := "/etc/" + program
	if s.uid != 0 {
		var err error
		if dir, err = s.xdg("XDG_CONFIG_HOME", ".config"); err != nil {
			return ""
		}
	}
	return filepath.Join(dir, "config.toml")
}

// xdg returns our directory in the one that the variable names, or in that below HOME. A relative value
// is ignored, as the specification says.
func (s surroundings) xdg(name, belowHome string) (string, error) {
	if dir := s.getenv(name); filepath.IsAbs(dir) {
		return filepath.Join(dir, program), nil
	}
	if home := s.getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, belowHome, program), nil
	}
	return "", errors.New("HOME is not an absolute path")
}

// abs makes a path absolute and clean; empty stays empty.
func (s surroundings) abs(path string) string {
	if path == "" {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.cwd, path)
	}
	return filepath.Clean(path)
}

// first returns the first that isn't empty.
func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
