// Package orchestrator holds what every backend that runs nodes shares: a launch rendered from its template,
// and the look at whether a sticky port is free.
package orchestrator

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
)

// basePath is the PATH of every node, and where a template's command without a slash is looked for.
const basePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Spec is a launch with nothing left to fill in: what to run and how it becomes ready.
type Spec struct {
	// Command is an absolute path, a name to look up in Env's PATH, or config.SelfCommand.
	Command string
	// Args are the arguments after argv[0].
	Args []string
	// Env is the whole environment, "NAME=value" each, sorted.
	Env []string
	// Files are written beneath the workdir before the start.
	Files  []config.RenderedFile
	Limits config.Limits
	// StopSignal is a number.
	StopSignal int
	Grace      time.Duration
	// LogMax bounds the log, in bytes.
	LogMax int64
	Ready  Ready
	// TTL is the lease's, 0 for none.
	TTL time.Duration
}

// Ready is a readiness condition; at most one of its kinds is set.
type Ready struct {
	// File beneath the workdir with the Content.
	File, Content string
	// HTTPPath is asked for with GET on HTTPPort.
	HTTPPath string
	HTTPPort int
	// TCPPort accepts connections; 0 means that this isn't the kind.
	TCPPort int
	// Notify is READY=1 on the notify socket.
	Notify bool
}

// Render fills in everything that the template leaves to the launch. The same launch and template give the same
// Spec. uid is what the node will run as (0: this process's own user), workdir its directory, and output
// bounds the log where the template doesn't. An error names the template, the field and the placeholder.
func Render(t *config.Template, l donation.Launch, uid uint32, workdir string, output config.Output) (Spec, error) {
	r, err := t.Render(values(l, uid, workdir))
	if err != nil {
		return Spec{}, err
	}
	logMax := output.MaxSize
	if t.Output.MaxSize > 0 {
		logMax = t.Output.MaxSize
	}
	s := Spec{
		Command:    r.Command,
		Args:       r.Args,
		Env:        environment(r.Env, l, workdir),
		Files:      r.Files,
		Limits:     t.Limits,
		StopSignal: t.Stop.Number(),
		Grace:      t.Stop.Grace.D(),
		LogMax:     int64(logMax),
		Ready:      Ready{File: r.ReadyFile, Content: r.ReadyContent, HTTPPath: t.Ready.HTTP, Notify: t.Ready.Notify},
	}
	if t.Ready.HTTP != "" {
		s.Ready.HTTPPort = l.Ports[t.Ready.Port]
	}
	if t.Ready.TCP != "" {
		s.Ready.TCPPort = l.Ports[t.Ready.TCP]
	}
	return s, nil
}

// values are what the template's placeholders stand for in this launch. The tokens are revealed here because
// they go to the node, through the guard, and nowhere else.
func values(l donation.Launch, uid uint32, workdir string) config.Values {
	if uid == 0 {
		uid = uint32(os.Getuid())
	}
	return config.Values{
		Workdir:        workdir,
		ID:             string(l.Donation),
		Name:           l.Request.Name,
		Port:           l.Ports,
		StartupToken:   l.Spawn.StartupToken.Reveal(),
		SeedToken:      l.Spawn.SeedToken.Reveal(),
		OwnerKeys:      l.Request.OwnerKeys,
		PartyID:        l.Request.PartyID,
		BootstrapNodes: l.Request.BootstrapNodes,
		Profile:        l.Request.Profile,
		UID:            uid,
	}
}

// environment is the base environment (docs/templates.md) with the template's over it. Nothing comes from this
// process: a node must not depend on who started the daemon.
func environment(template map[string]string, l donation.Launch, workdir string) []string {
	env := map[string]string{
		"PATH": basePath,
		"HOME": workdir,
		"LANG": "C.UTF-8",
	}
	maps.Copy(env, template)
	env["CADRE_DONATION"] = string(l.Donation)
	env["CADRE_SPAWN"] = string(l.Spawn.ID)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// PlanOf returns what the template asks for before anything is recorded.
func PlanOf(t *config.Template) donation.Plan {
	return donation.Plan{PortNames: slices.Clone(t.Ports), Hash: t.Hash(), NeedsSeed: t.Seed}
}

// CheckPorts returns a *donation.BlockedError for the first of the launch's ports that somebody holds.
func CheckPorts(ports map[string]int) error {
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		port := ports[name]
		if PortFree(port) {
			continue
		}
		return &donation.BlockedError{
			Kind: donation.BlockPort,
			Message: "port " + name + " (" + strconv.Itoa(port) + ") is held by " + PortHolder(port) +
				"; stop that, or terminate the donation and donate again for another port",
		}
	}
	return nil
}
