// This file tests what a node is given.

package orchestrator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serfab/cadre-hostd/internal/config"
	"github.com/serfab/cadre-hostd/internal/donation"
)

func launch() donation.Launch {
	return donation.Launch{
		Donation: "don_1",
		Spawn:    donation.Spawn{ID: "spn_1", SeedToken: donation.NewSecret("seed"), StartupToken: donation.NewSecret("startup")},
		Request:  donation.Request{Template: "x", Name: "n", OwnerKeys: []string{"k"}},
		Ports:    map[string]int{"http": 10001},
	}
}

func TestRender(t *testing.T) {
	tmpl := &config.Template{
		Name: "x", Command: "prog", Args: []string{"{{.Port.http}}", "{{.UID}}"},
		Env:    map[string]string{"TOKEN": "{{.SeedToken}}", "LANG": "de_DE.UTF-8"},
		Files:  map[string]config.File{"{{.Name}}.conf": {Content: "{{.StartupToken}}", Mode: "0640"}},
		Ports:  []string{"http"},
		Ready:  config.Ready{HTTP: "/ok", Port: "http"},
		Stop:   config.Stop{Signal: "SIGINT", Grace: config.Duration(3 * time.Second)},
		Limits: config.Limits{Memory: 1 << 20},
	}
	got, err := Render(tmpl, launch(), 70000, "/nodes/don_1/work", config.Output{MaxSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{
		Command: "prog", Args: []string{"10001", "70000"},
		Env: []string{
			"CADRE_DONATION=don_1", "CADRE_SPAWN=spn_1", "HOME=/nodes/don_1/work", "LANG=de_DE.UTF-8",
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TOKEN=seed",
		},
		Files:      []config.RenderedFile{{Path: "n.conf", Content: "startup", Mode: 0o640}},
		Limits:     config.Limits{Memory: 1 << 20},
		StopSignal: 2, Grace: 3 * time.Second, LogMax: 1 << 20,
		Ready: Ready{HTTPPath: "/ok", HTTPPort: 10001},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	tmpl.Ready, tmpl.Output.MaxSize = config.Ready{TCP: "http"}, 2<<20
	got, err = Render(tmpl, launch(), 70000, "/w", config.Output{MaxSize: 1 << 20})
	if err != nil || got.Ready != (Ready{TCPPort: 10001}) || got.LogMax != 2<<20 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRenderError(t *testing.T) {
	tmpl := &config.Template{Name: "x", Command: "prog", Args: []string{"-a", "{{.Port.http}}"}, Ports: []string{"http"}}
	l := launch()
	l.Ports = nil // a record from before the template had the port
	_, err := Render(tmpl, l, 0, "/w", config.Output{})
	if err == nil || !strings.HasPrefix(err.Error(), "template x, args[1]: {{.Port.http}}: ") {
		t.Errorf("got %v", err)
	}
}

// TestF76_NothingOfTheDaemonsEnvironment: whoever started the daemon is no business of a node's.
func TestF76_NothingOfTheDaemonsEnvironment(t *testing.T) {
	for _, name := range []string{"FOO", "SSH_AUTH_SOCK", "NOTIFY_SOCKET", "PATH", "HOME", "LANG"} {
		t.Setenv(name, "daemon")
	}
	got, err := Render(&config.Template{Name: "x", Command: "prog"}, launch(), 0, "/w", config.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(got.Env, func(v string) bool { return strings.Contains(v, "daemon") }) || len(got.Env) != 5 {
		t.Errorf("environment: %q", got.Env)
	}
}
