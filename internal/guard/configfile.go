// This file reads guard.toml, the limits that root sets for a guard.

package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// limitsFile is guard.toml. A key that isn't there leaves the configuration as it is.
type limitsFile struct {
	NodesDir     *string   `toml:"nodes_dir"`
	CgroupParent *string   `toml:"cgroup_parent"`
	PeerUID      *int      `toml:"peer_uid"`
	UIDMin       *uint32   `toml:"uid_min"`
	UIDMax       *uint32   `toml:"uid_max"`
	MaxTTL       *string   `toml:"max_ttl"`
	Executables  *[]string `toml:"executables"`
}

// LoadLimits takes over what the TOML file at path says: nodes_dir, cgroup_parent, peer_uid, uid_min, uid_max,
// max_ttl ("24h") and executables. An unknown key is an error that names its line. A root guard
// refuses a file that somebody else could have written.
func (c *Config) LoadLimits(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("guard limits: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("guard limits: %w", err)
	}
	if os.Getuid() == 0 {
		if err := rootOwned(info); err != nil {
			return fmt.Errorf("guard limits %s: %w", path, err)
		}
	}
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(f); err != nil {
		return fmt.Errorf("guard limits %s: %w", path, err)
	}
	var file limitsFile
	if err := toml.NewDecoder(&buf).DisallowUnknownFields().Decode(&file); err != nil {
		return fmt.Errorf("guard limits %s: %w", path, tomlError(err))
	}
	return file.apply(c, path)
}

func (file limitsFile) apply(c *Config, path string) error {
	if file.MaxTTL != nil {
		ttl, err := time.ParseDuration(*file.MaxTTL)
		if err != nil {
			return fmt.Errorf("guard limits %s: max_ttl: %w", path, err)
		}
		c.MaxTTL = ttl
	}
	set(&c.NodesDir, file.NodesDir)
	set(&c.CgroupParent, file.CgroupParent)
	set(&c.PeerUID, file.PeerUID)
	set(&c.UIDMin, file.UIDMin)
	set(&c.UIDMax, file.UIDMax)
	set(&c.Executables, file.Executables)
	return nil
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// rootOwned returns an error if anybody but root can change the file.
func rootOwned(info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("it isn't a regular file")
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		return fmt.Errorf("it belongs to uid %d; a guard that runs as root takes its limits from root only (chown root it)", st.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("its mode %#o lets others write it; chmod go-w it", info.Mode().Perm())
	}
	return nil
}

// tomlError adds the line to a decoding error.
func tomlError(err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		row, _ := strict.Errors[0].Position()
		return fmt.Errorf("line %d: unknown key %q", row, fmt.Sprint(strict.Errors[0].Key()))
	}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, _ := decode.Position()
		return fmt.Errorf("line %d: %w", row, err)
	}
	return err
}
