// This file tests where the configuration is read from and what comes out.

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// write puts files into a fresh directory and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadDefaults(t *testing.T) {
	cfg, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	got := *cfg
	got.Templates = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("an empty path gives something else than the defaults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"cadre", "reference"}, cfg.TemplateNames()); diff != "" {
		t.Error(diff)
	}
	for name, tmpl := range cfg.Templates {
		if tmpl.Name != name || tmpl.Source != BuiltIn || tmpl.Stop.Signal != "SIGTERM" || tmpl.Stop.Grace.D() != 10*time.Second {
			t.Errorf("%s: %+v", name, tmpl)
		}
	}
}

func TestLoadMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path+" doesn't exist; create it") {
		t.Errorf("Load of a missing file: %v", err)
	}
	cfg, err := LoadDefault(path)
	if err != nil || cfg.Path != "" {
		t.Errorf("LoadDefault of a missing file: %v, %v", cfg, err)
	}
}

func TestLoadEverything(t *testing.T) {
	dir := write(t, map[string]string{
		"config.toml": `
templates_dir = "more"

[supervision]
max_attempts = 3
backoff_base = "10ms"
backoff_cap = "1s"
sweep_interval = "100ms"

[ports]
range = "20000-20010"

[output]
max_size = "1MiB"

[template.web]
command = "/usr/sbin/nginx"
args = ["-p", "{{.Workdir}}"]
env = { A = "1" }
ports = ["http"]
ready = { http = "/", port = "http" }
stop = { signal = "SIGQUIT", grace = "0s" }
limits = { memory = "64MiB", cpu = 2, pids = 10, nofile = 100 }
user = "www-data"
[template.web.files."conf/nginx.conf"]
content = "listen 127.0.0.1:{{.Port.http}};"
mode = "0640"
`,
		"more/b.toml":        "[template.b]\ncommand = \"b\"\n",
		"more/a.toml":        "[template.a]\ncommand = \"a\"\nseed = true\n",
		"more/.hidden.toml":  "not toml",
		"more/README":        "not toml",
		"more/dir.toml/file": "not toml",
	})
	cfg, err := Load(filepath.Join(dir, "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "cadre", "reference", "web"}, cfg.TemplateNames()); diff != "" {
		t.Error(diff)
	}
	want := &Template{
		Name: "web", Source: filepath.Join(dir, "config.toml"),
		Command: "/usr/sbin/nginx", Args: []string{"-p", "{{.Workdir}}"}, Env: map[string]string{"A": "1"},
		Ports: []string{"http"}, Ready: Ready{HTTP: "/", Port: "http"},
		Stop:   Stop{Signal: "SIGQUIT"},
		Limits: Limits{Memory: 64 << 20, CPU: 2, Pids: 10, NoFile: 100},
		User:   "www-data",
		Files:  map[string]File{"conf/nginx.conf": {Content: "listen 127.0.0.1:{{.Port.http}};", Mode: "0640"}},
	}
	if diff := cmp.Diff(want, cfg.Templates["web"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s := cfg.Supervision
	if s.MaxAttempts != 3 || s.BackoffBase.D() != 10*time.Millisecond || s.RefillAfter.D() != 10*time.Minute || cfg.Ports.Range != (PortRange{20000, 20010}) {
		t.Errorf("%+v", cfg)
	}
	if cfg.TemplatesDir != filepath.Join(dir, "more") || cfg.Templates["a"].Source != filepath.Join(dir, "more", "a.toml") {
		t.Errorf("templates_dir: %q, source %q", cfg.TemplatesDir, cfg.Templates["a"].Source)
	}
}

func TestLoadTemplatesBesideNoFile(t *testing.T) {
	dir := write(t, map[string]string{"templates.d/x.toml": "[template.x]\ncommand = \"x\"\n"})
	cfg, err := LoadDefault(filepath.Join(dir, "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Templates["x"] == nil {
		t.Error("templates.d beside a missing default file was not read")
	}
}

// TestLoadLinked covers configuration mounted by Kubernetes, where files are links.
func TestLoadLinked(t *testing.T) {
	dir := write(t, map[string]string{
		"real/config.toml": "[log]\nlevel = \"warn\"\n",
		"real/x.toml":      "[template.x]\ncommand = \"x\"\n",
	})
	if err := os.Mkdir(filepath.Join(dir, "templates.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"config.toml": "real/config.toml", "templates.d/x.toml": "../real/x.toml"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := Load(filepath.Join(dir, "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Log.Level != "warn" || cfg.Templates["x"] == nil {
		t.Errorf("%+v", cfg)
	}
}

func TestLoadProblemsOfDirectory(t *testing.T) {
	dir := write(t, map[string]string{
		"config.toml":        "[template.here]\ncommand = \"x\"\n",
		"templates.d/a.toml": "[template.twice]\ncommand = \"x\"\n[log]\nlevel = \"debug\"\n",
		"templates.d/b.toml": "[template.twice]\ncommand = \"x\"\n[template.here]\ncommand=\"x\"\n[template.cadre]\ncommand=\"x\"\n",
	})
	_, err := Load(filepath.Join(dir, "config.toml"))
	a, b := filepath.Join(dir, "templates.d", "a.toml"), filepath.Join(dir, "templates.d", "b.toml")
	want := strings.Join([]string{
		a + ":3:2: unknown key log; at the top of the file there may be: template",
		b + ":1:2: template twice is defined in " + a + " already; rename or remove one of them",
		b + ":3:2: template here is defined in " + filepath.Join(dir, "config.toml") + " already; rename or remove one of them",
		b + ":5:2: template cadre is built in and can't be redefined; choose another name",
	}, "\n")
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	path := filepath.Join(write(t, map[string]string{"c.toml": "templates_dir = \"nowhere\"\n"}), "c.toml")
	_, err = Load(path)
	if err == nil || !strings.Contains(err.Error(), path+":1:17: directory "+filepath.Join(filepath.Dir(path), "nowhere")+" doesn't exist; create it, or remove templates_dir") {
		t.Errorf("a named directory that is missing: %v", err)
	}
}

func TestHash(t *testing.T) {
	hash := func(toml string) string {
		t.Helper()
		cfg, err := Load(filepath.Join(write(t, map[string]string{"c.toml": toml}), "c.toml"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Templates["x"].Hash()
	}
	plain := hash("[template.x]\ncommand = \"x\"\nlimits.memory = \"1000001\"\n")
	if got := hash("# comment\n[template.x]\nlimits = { memory = \"1000001\" }\ncommand = 'x'\nstop.grace = \"10s\"\n"); got != plain {
		t.Errorf("the same template laid out differently: %s, was %s", got, plain)
	}
	if got := hash("[template.x]\ncommand = \"x\"\nlimits.memory = \"1000002\"\n"); got == plain {
		t.Error("a change of one byte of memory leaves the hash as it was")
	}
	if len(plain) != hashDigits {
		t.Errorf("hash %q", plain)
	}
}

func TestSizeText(t *testing.T) {
	for _, want := range []Size{0, 1, 1000, 1024, 1000001, 64 << 20, 3 << 40} {
		b, _ := want.MarshalText()
		var got Size
		if err := got.UnmarshalText(b); err != nil || got != want {
			t.Errorf("%d → %s → %d, %v", want, b, got, err)
		}
	}
}

// TestEveryKeyIsDocumented: docs/templates.md names each key and each placeholder there is.
func TestEveryKeyIsDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "templates.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[PortRange]() {
			return
		}
		for key, ft := range fields(typ) {
			if !strings.Contains(page, key) {
				t.Errorf("the key %s isn't in docs/templates.md", key)
			}
			look(ft)
		}
	}
	look(reflect.TypeFor[Config]())
	for _, name := range valueNames() {
		if !strings.Contains(page, "{{."+name) {
			t.Errorf("the placeholder {{.%s}} isn't in docs/templates.md", name)
		}
	}
	for _, name := range functionNames() {
		if !strings.Contains(page, name) {
			t.Errorf("the function %s isn't in docs/templates.md", name)
		}
	}
}

func TestTTLOfATemplate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	text := `
[lease]
ttl = "30m"
[template.a]
command = "a"
[template.b]
command = "b"
lease = { ttl = "5s" }
[template.c]
command = "c"
lease.ttl = "0"
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{"a": 30 * time.Minute, "b": 5 * time.Second, "c": 0, "gone": 30 * time.Minute} {
		if got := c.TTLOf(name); got != want {
			t.Errorf("template %s: %v, want %v", name, got, want)
		}
	}
	if def := Defaults(); def.TTLOf("a") != time.Hour {
		t.Errorf("default: %v", def.TTLOf("a"))
	}
}
