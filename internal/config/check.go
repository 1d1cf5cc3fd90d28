// This file checks the values that TOML's types can't: ranges, names, and what refers to what.

package config

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds that the checks enforce; docs/templates.md names them.
const (
	maxPorts       = 16
	maxConcurrency = 1024
	minSweep       = 100 * time.Millisecond
	minLog         = Size(4 << 10)
	maxCPU         = 1024
	maxGrace       = 24 * time.Hour
	// minTTL is the shortest lease: below it, an ordinary hiccup of a loaded machine would end healthy nodes.
	minTTL = 2 * time.Second
)

var (
	// templateName is also what a borrower writes to choose one.
	templateName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	// portName must work as {{.Port.NAME}}, so it is an identifier.
	portName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	envName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	userName = regexp.MustCompile(`^([0-9]{1,10}|[A-Za-z_][A-Za-z0-9_.-]{0,31})$`)
)

// reservedEnv are set by the host for every node; a template can't.
var reservedEnv = []string{"CADRE_DONATION", "CADRE_SPAWN", "NOTIFY_SOCKET"}

// logLevels in the order of less and less.
var logLevels = []string{"debug", "info", "warn", "error"}

// checkConfig notes what is wrong outside the templates.
func (d *document) checkConfig(c *Config) {
	s := &c.Supervision
	for _, v := range []struct {
		key   string
		value Duration
		min   time.Duration
	}{
		{"backoff_base", s.BackoffBase, 1},
		{"backoff_cap", s.BackoffCap, 1},
		{"refill_after", s.RefillAfter, 1},
		{"sweep_interval", s.SweepInterval, minSweep},
		{"settle_interval", s.SettleInterval, 1},
		{"provisioning_timeout", s.ProvisioningTimeout, 1},
		{"unseeded_timeout", s.UnseededTimeout, 0},
		{"reap_interval", s.ReapInterval, 1},
	} {
		d.atLeast([]string{"supervision", v.key}, v.value, v.min)
	}
	d.atLeast([]string{"guard", "call_timeout"}, c.Guard.CallTimeout, 1)
	if problem := badTTL(c.Lease); problem != "" {
		d.errorf([]string{"lease", "ttl"}, "lease.ttl %s", problem)
	}
	if s.BackoffCap < s.BackoffBase {
		d.errorf([]string{"supervision", "backoff_cap"}, "supervision.backoff_cap (%s) must not be less than backoff_base (%s)", s.BackoffCap.D(), s.BackoffBase.D())
	}
	if s.MaxAttempts < 1 {
		d.errorf([]string{"supervision", "max_attempts"}, "supervision.max_attempts must be 1 or more, not %d", s.MaxAttempts)
	}
	if s.Concurrency < 1 || s.Concurrency > maxConcurrency {
		d.errorf([]string{"supervision", "concurrency"}, "supervision.concurrency must be from 1 to %d, not %d", maxConcurrency, s.Concurrency)
	}
	if !slices.Contains(logLevels, c.Log.Level) {
		d.errorf([]string{"log", "level"}, "log.level must be one of %s, not %q", strings.Join(logLevels, ", "), c.Log.Level)
	}
	if c.Output.MaxSize < minLog {
		d.errorf([]string{"output", "max_size"}, "output.max_size must be %s or more, not %s", minLog, c.Output.MaxSize)
	}
}

// badTTL says which rule a lease breaks, "" if none.
func badTTL(l Lease) string {
	switch ttl := l.TTL.D(); {
	case ttl < 0:
		return fmt.Sprintf("must not be less than 0, not %s; 0 means no lease", ttl)
	case ttl > 0 && ttl < minTTL:
		return fmt.Sprintf("must be %s or more, or 0 for no lease, not %s: a busy machine would end healthy nodes", minTTL, ttl)
	}
	return ""
}

func (d *document) atLeast(path []string, value Duration, least time.Duration) {
	if value.D() >= least {
		return
	}
	if least == 1 {
		d.errorf(path, "%s must be more than 0, not %s", showKey(path), value.D())
		return
	}
	d.errorf(path, "%s must be %s or more, not %s", showKey(path), least, value.D())
}

// checkTemplate notes what is wrong with a template, and renders it once with made-up values.
func (d *document) checkTemplate(t *Template) {
	errorf := func(field []string, format string, args ...any) {
		path := append([]string{"template", t.Name}, field...)
		d.errorf(path, "template %s, %s: %s", t.Name, showField(field), fmt.Sprintf(format, args...))
	}
	if !templateName.MatchString(t.Name) {
		d.errorf([]string{"template", t.Name}, "template name %q: up to 63 of a-z, 0-9, _ and -, beginning with a letter or digit", t.Name)
	}
	if t.Command == "" {
		errorf([]string{"command"}, "it must name the program to run")
	}
	checkPorts(t, errorf)
	checkReady(t, errorf)
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		switch {
		case !envName.MatchString(name):
			errorf([]string{"env", name}, "the name of a variable is made of letters, digits and _")
		case slices.Contains(reservedEnv, name):
			errorf([]string{"env", name}, "the host sets this one itself")
		}
	}
	if unix.SignalNum(t.Stop.Signal) == 0 {
		errorf([]string{"stop", "signal"}, "%q is no signal; write it like \"SIGTERM\" or \"SIGINT\"", t.Stop.Signal)
	}
	if g := t.Stop.Grace.D(); g < 0 || g > maxGrace {
		errorf([]string{"stop", "grace"}, "it must be from 0 to %s, not %s", maxGrace, g)
	}
	if t.Lease != nil {
		if problem := badTTL(*t.Lease); problem != "" {
			errorf([]string{"lease", "ttl"}, "it %s", problem)
		}
	}
	if l := t.Limits; l.Memory < 0 || l.Pids < 0 {
		errorf([]string{"limits"}, "memory and pids must not be less than 0")
	}
	if cpu := t.Limits.CPU; !(cpu >= 0 && cpu <= maxCPU) || math.IsNaN(cpu) {
		errorf([]string{"limits", "cpu"}, "it must be a number of cores from 0 to %d, not %v", maxCPU, cpu)
	}
	if t.User != "" && !userName.MatchString(t.User) {
		errorf([]string{"user"}, "%q is neither a user name nor a number", t.User)
	}
	if m := t.Output.MaxSize; m != 0 && m < minLog {
		errorf([]string{"output", "max_size"}, "it must be %s or more, not %s", minLog, m)
	}
	t.render(sampleValues(t), func(field []string, err error) {
		d.errorf(append([]string{"template", t.Name}, field...), "%s", err)
	})
}

// checker notes a problem with one field of a template.
type checker func(field []string, format string, args ...any)

func checkPorts(t *Template, errorf checker) {
	if len(t.Ports) > maxPorts {
		errorf([]string{"ports"}, "there may be %d at most, not %d", maxPorts, len(t.Ports))
	}
	for i, name := range t.Ports {
		at := []string{"ports", strconv.Itoa(i)}
		if !portName.MatchString(name) {
			errorf(at, "%q is no name for a port: up to 63 of a-z, 0-9 and _, beginning with a letter", name)
		}
		if slices.Contains(t.Ports[:i], name) {
			errorf(at, "%q is there twice", name)
		}
	}
}

func checkReady(t *Template, errorf checker) {
	r := t.Ready
	var kinds []string
	for _, k := range []struct {
		name string
		set  bool
	}{{"file", r.File != ""}, {"http", r.HTTP != ""}, {"tcp", r.TCP != ""}, {"notify", r.Notify}} {
		if k.set {
			kinds = append(kinds, k.name)
		}
	}
	if len(kinds) > 1 {
		errorf([]string{"ready"}, "only one of %s can be used", strings.Join(kinds, " and "))
	}
	if r.Content != "" && r.File == "" {
		errorf([]string{"ready", "content"}, "it goes with file")
	}
	if r.HTTP != "" && !strings.HasPrefix(r.HTTP, "/") {
		errorf([]string{"ready", "http"}, "%q must be a path that begins with /", r.HTTP)
	}
	if (r.HTTP != "") != (r.Port != "") {
		errorf([]string{"ready"}, "http (a path) and port (the name of one of the ports) go together")
	}
	known := "the template has no ports"
	if len(t.Ports) > 0 {
		known = "there are: " + strings.Join(t.Ports, ", ")
	}
	for _, p := range []struct{ key, name string }{{"tcp", r.TCP}, {"port", r.Port}} {
		if p.name != "" && !slices.Contains(t.Ports, p.name) {
			errorf([]string{"ready", p.key}, "there is no port %q; %s", p.name, known)
		}
	}
}

// sampleValues are made up, with two of everything that may be many. The profile is empty, as it is for most
// donations; which others a template takes is its own affair.
func sampleValues(t *Template) *Values {
	v := &Values{
		Workdir:        "/nodes/don_sample/work",
		ID:             "don_sample",
		Name:           "sample",
		Port:           map[string]int{},
		StartupToken:   "startup-token",
		SeedToken:      "seed-token",
		OwnerKeys:      []string{"key-1", "key-2"},
		PartyID:        "party",
		BootstrapNodes: []string{"/dns4/node-1/tcp/1", "/dns4/node-2/tcp/1"},
		UID:            1000,
	}
	for i, name := range t.Ports {
		v.Port[name] = 10000 + i
	}
	return v
}
