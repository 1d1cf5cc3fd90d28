// This file keeps one small file a spawn, from before its exec until its exit is acknowledged. It is what the next
// guard adopts from. It lives where a reboot wipes it, so it is written atomically but not synced.

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
)

// record is a spool file. It holds no secret: neither environment, nor arguments, nor files.
type record struct {
	Spawn    string `json:"spawn"`
	Donation string `json:"donation"`
	BootID   string `json:"boot_id"`
	UID      uint32 `json:"uid,omitempty"`
	// Cgroup is the cgroup2 directory, CgroupV1 the paths in version 1 controllers.
	Cgroup     string            `json:"cgroup,omitempty"`
	CgroupV1   map[string]string `json:"cgroup_v1,omitempty"`
	StopSignal int               `json:"stop_signal"`
	Grace      time.Duration     `json:"grace"`
	Notify     bool              `json:"notify,omitempty"`
	LogMax     int64             `json:"log_max"`
	// TTL is the lease's. When it ends is not kept: the next guard begins it anew.
	TTL time.Duration `json:"ttl,omitempty"`
	// PID is 0 until the process exists.
	PID       int       `json:"pid,omitempty"`
	StartTime uint64    `json:"start_time,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	Notified  bool      `json:"notified,omitempty"`
	// StopReason and KillAt carry an unfinished stop over to the next guard.
	StopReason string    `json:"stop_reason,omitempty"`
	StopSince  time.Time `json:"stop_since,omitzero"`
	KillAt     time.Time `json:"kill_at,omitzero"`
	Exit       *Exit     `json:"exit,omitempty"`
}

// spool is the directory of the records.
type spool struct {
	dir string
	log *zap.Logger
}

func openSpool(cfg Config) (*spool, error) {
	dir := spoolDir(cfg.RuntimeDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return &spool{dir: dir, log: cfg.Logger}, nil
}

func (s *spool) path(spawn string) string { return filepath.Join(s.dir, spawn+".json") }

// write replaces the record of a spawn in one step.
func (s *spool) write(r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	tmp := filepath.Join(s.dir, r.Spawn+".tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("spool: %w", err)
	}
	if err := os.Rename(tmp, s.path(r.Spawn)); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// remove removes the record of a spawn, if there is one.
func (s *spool) remove(spawn string) error {
	if err := os.Remove(s.path(spawn)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// load reads all records. One that can't be read is moved aside and doesn't sink the others; one of another boot is
// dropped, since nothing of it can be alive.
func (s *spool) load() ([]record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	var records []record
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		if strings.HasSuffix(e.Name(), ".tmp") {
			_ = os.Remove(path)
			continue
		}
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		r, err := readRecord(path)
		switch {
		case scarce(err):
			return nil, fmt.Errorf("spool: %w", err)
		case err != nil:
			s.log.Error("spool file can't be read; moved aside", zap.String("path", path), zap.Error(err))
			if err := os.Rename(path, path+".bad"); err != nil {
				s.log.Error("spool file can't be moved aside", zap.String("path", path), zap.Error(err))
			}
		case r.BootID != bootID():
			s.log.Info("spool file of another boot dropped", zap.String("spawn", r.Spawn))
			_ = os.Remove(path)
		default:
			records = append(records, r)
		}
	}
	return records, nil
}

func readRecord(path string) (record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, err
	}
	if r.Spawn != strings.TrimSuffix(filepath.Base(path), ".json") || !validID(r.Spawn) || !validID(r.Donation) {
		return record{}, fmt.Errorf("it names spawn %q of donation %q", r.Spawn, r.Donation)
	}
	return r, nil
}
