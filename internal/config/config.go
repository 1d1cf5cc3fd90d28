// Package config reads the daemon's TOML configuration and the node templates beside it, with every
// default in one place. Where things live (directories, sockets) is not in it: that is the command line's,
// so that a broken file never hides the state from the daemon that must look after it.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// BuiltIn is the Source of the templates that this binary carries.
const BuiltIn = "built-in"

// SelfCommand as a template's Command runs cadre-hostd itself (the reference node).
const SelfCommand = "@self"

// What a template gets when it says nothing.
const (
	defaultStopSignal = "SIGTERM"
	defaultGrace      = Duration(10 * time.Second)
)

// Config is the whole configuration. Every duration is written like "10s" or "5m".
type Config struct {
	Supervision Supervision `toml:"supervision"`
	Ports       Ports       `toml:"ports"`
	Guard       Guard       `toml:"guard"`
	Lease       Lease       `toml:"lease"`
	Log         Log         `toml:"log"`
	Output      Output      `toml:"output"`
	// TemplatesDir holds *.toml files with more templates; default "templates.d" beside the file, and
	// relative paths start there. Once loaded it is the path that was looked at.
	TemplatesDir string `toml:"templates_dir"`
	// Templates by name: the built-in ones, the file's and the directory's.
	Templates map[string]*Template `toml:"template"`
	// Path is the file that was read, empty if there was none.
	Path string `toml:"-"`
}

// Supervision holds the constants of docs/conformance.md.
type Supervision struct {
	// MaxAttempts is how many respawns are tried before giving up: 5.
	MaxAttempts int `toml:"max_attempts"`
	// BackoffBase and BackoffCap: after n attempts the next comes min(base·2ⁿ, cap) later; 5 s and 5 min.
	BackoffBase Duration `toml:"backoff_base"`
	BackoffCap  Duration `toml:"backoff_cap"`
	// RefillAfter is the uptime that sets the attempts back to 0: 10 min.
	RefillAfter Duration `toml:"refill_after"`
	// SweepInterval is how often everything is looked at, whatever events said: 60 s.
	SweepInterval Duration `toml:"sweep_interval"`
	// SettleInterval is the pause before another look when a guard is busy or a port is held: 1 s.
	SettleInterval Duration `toml:"settle_interval"`
	// Concurrency bounds reconciles at a time: 32.
	Concurrency int `toml:"concurrency"`
	// ProvisioningTimeout is when a provisioning that nobody works on becomes an error: 5 min.
	ProvisioningTimeout Duration `toml:"provisioning_timeout"`
	// UnseededTimeout is when a donation that nobody has seeded is terminated: 30 min. 0 is never.
	UnseededTimeout Duration `toml:"unseeded_timeout"`
	// ReapInterval is how often stale records are looked for: 5 min.
	ReapInterval Duration `toml:"reap_interval"`
}

// Ports is the range that sticky ports are allocated from.
type Ports struct {
	// Range is "first-last", both included: "10000-20000".
	Range PortRange `toml:"range"`
}

// Guard holds how the daemon talks to its guard.
type Guard struct {
	// CallTimeout bounds one call: 5 s. A start that times out is sent again.
	CallTimeout Duration `toml:"call_timeout"`
}

// Lease is how long a node outlives a host that is gone.
type Lease struct {
	// TTL is the time from a renewal to the expiry: "1h". 0 means no lease: the node runs until it is told to stop.
	TTL Duration `toml:"ttl"`
}

// Log is the daemon's own log.
type Log struct {
	// Level is debug, info, warn or error: "info".
	Level string `toml:"level"`
}

// Output bounds the nodes' logs where a template doesn't.
type Output struct {
	// MaxSize of one node's log: "10MiB".
	MaxSize Size `toml:"max_size"`
}

// Template is what runs. Strings marked with ✎ may hold placeholders (docs/templates.md).
type Template struct {
	Name string `toml:"-"`
	// Source is the file it comes from, or "built-in".
	Source string `toml:"-"`
	// Command ✎ is an absolute path, a name on the node's PATH, or SelfCommand.
	Command string `toml:"command"`
	// Args ✎ are the arguments after argv[0].
	Args []string `toml:"args"`
	// Env ✎ is added to the documented base environment.
	Env map[string]string `toml:"env"`
	// Files ✎ are written beneath the workdir before each spawn, by relative path ✎.
	Files map[string]File `toml:"files"`
	// Ports are the names of the sticky ports, at most maxPorts.
	Ports []string `toml:"ports"`
	Ready Ready    `toml:"ready"`
	Stop  Stop     `toml:"stop"`
	// Limits of the node.
	Limits Limits `toml:"limits"`
	// User is a user name or uid instead of one from the guard's range; only a guard that runs as root can.
	User string `toml:"user"`
	// Seed is true when the node waits for a seed after its start.
	Seed bool `toml:"seed"`
	// Output bounds this template's log.
	Output Output `toml:"output"`
	// Lease replaces the configuration's for nodes of this template; nil leaves it.
	Lease *Lease `toml:"lease" json:",omitempty"`
}

// File is one file to render.
type File struct {
	Content string `toml:"content"`
	// Mode like "0600" (the default).
	Mode string `toml:"mode"`
}

// Ready is the readiness condition; at most one of its kinds. None: ready as soon as it runs.
type Ready struct {
	// File ✎ beneath the workdir whose content is Content ✎.
	File    string `toml:"file"`
	Content string `toml:"content"`
	// HTTP is the path of a GET on the port named Port that answers 200.
	HTTP string `toml:"http"`
	// TCP is the name of a port that accepts connections.
	TCP string `toml:"tcp"`
	// Port is the name of the port for HTTP.
	Port string `toml:"port"`
	// Notify waits for READY=1 on the sd_notify socket.
	Notify bool `toml:"notify"`
}

// Stop is how the node is asked to end.
type Stop struct {
	// Signal is a name like "SIGTERM" (the default).
	Signal string `toml:"signal"`
	// Grace is how long it may take before SIGKILL to the whole tree: 10 s.
	Grace Duration `toml:"grace"`
}

// Limits are the bounds of one node; 0 is the documented default.
type Limits struct {
	// Memory in bytes, CPU in cores, Pids in processes and threads, NoFile in descriptors.
	Memory Size    `toml:"memory"`
	CPU    float64 `toml:"cpu"`
	Pids   int64   `toml:"pids"`
	NoFile uint64  `toml:"nofile"`
}

// Defaults are the numbers of docs/conformance.md.
func Defaults() Config {
	return Config{
		Supervision: Supervision{
			MaxAttempts:         5,
			BackoffBase:         Duration(5 * time.Second),
			BackoffCap:          Duration(5 * time.Minute),
			RefillAfter:         Duration(10 * time.Minute),
			SweepInterval:       Duration(60 * time.Second),
			SettleInterval:      Duration(time.Second),
			Concurrency:         32,
			ProvisioningTimeout: Duration(5 * time.Minute),
			UnseededTimeout:     Duration(30 * time.Minute),
			ReapInterval:        Duration(5 * time.Minute),
		},
		Ports:  Ports{Range: PortRange{First: 10000, Last: 20000}},
		Guard:  Guard{CallTimeout: Duration(5 * time.Second)},
		Lease:  Lease{TTL: Duration(time.Hour)},
		Log:    Log{Level: "info"},
		Output: Output{MaxSize: 10 << 20},
	}
}

// TTLOf returns the TTL of the leases of a template's nodes, 0 if they have none. A template that isn't configured
// any more has the configuration's own.
func (c *Config) TTLOf(template string) time.Duration {
	if t := c.Templates[template]; t != nil && t.Lease != nil {
		return t.Lease.TTL.D()
	}
	return c.Lease.TTL.D()
}

// TemplateNames returns the names of all templates, sorted.
func (c *Config) TemplateNames() []string { return slices.Sorted(maps.Keys(c.Templates)) }

// hashDigits is the length of Hash: 48 bits tell one host's template texts apart.
const hashDigits = 12

// Hash identifies what the template says: two templates with the same hash start nodes in the same way,
// whatever file they stand in and however it is laid out.
func (t *Template) Hash() string {
	canonical := *t
	canonical.Name, canonical.Source = "", ""
	// encoding/json sorts the keys of maps, and no field of a Template can fail to marshal but a cpu
	// that isn't a number, which Load refuses.
	b, err := json.Marshal(canonical)
	if err != nil {
		b = []byte(err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:hashDigits]
}

// Number returns the signal's number; 0 if the name isn't known, which Load refuses.
func (s Stop) Number() int {
	if s.Signal == "" {
		return int(unix.SignalNum(defaultStopSignal))
	}
	return int(unix.SignalNum(s.Signal))
}
