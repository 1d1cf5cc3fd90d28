// This file holds the configuration in force: the last one that had no mistakes.

package daemon

import (
	"fmt"
	"sync/atomic"

	"github.com/serfab/cadre-hostd/internal/config"
)

// settings is read by many goroutines while one replaces it.
type settings struct {
	opts Options
	now  atomic.Pointer[config.Config]
}

// newSettings begins with the defaults, which hold until load has succeeded once.
func newSettings(o Options) *settings {
	s := &settings{opts: o}
	first := config.Defaults()
	s.now.Store(&first)
	return s
}

func (s *settings) current() *config.Config { return s.now.Load() }

// load reads the configuration and takes it over if it has no mistakes.
func (s *settings) load() error {
	read := config.LoadDefault
	if s.opts.ConfigExplicit || s.opts.ConfigPath == "" {
		read = config.Load
	}
	cfg, err := read(s.opts.ConfigPath)
	if err != nil {
		return err
	}
	if s.opts.Level != nil {
		if err := s.opts.Level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
			return fmt.Errorf("log.level: %w", err)
		}
	}
	s.now.Store(cfg)
	return nil
}
