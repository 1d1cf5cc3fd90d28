// This file tests what a person is told about a configuration with mistakes.

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProblems shows each kind of mistake with the message that a person gets, without the file's name.
func TestProblems(t *testing.T) {
	const x = "[template.x]\ncommand = \"x\"\n"
	for _, tt := range []struct {
		name, toml string
		want       []string
	}{
		{"syntax", "a = [\n", []string{`1:6: array is incomplete`}},
		{"unknown key", "[supervision]\nmax_atempts = 3\n", []string{
			`2:1: unknown key supervision.max_atempts; in [supervision] there may be: max_attempts, backoff_base, backoff_cap, refill_after, sweep_interval, settle_interval, concurrency, provisioning_timeout, unseeded_timeout, reap_interval`,
		}},
		{"unknown table", "[gaurd]\nx = 1\n", []string{
			`1:2: unknown key gaurd; at the top of the file there may be: supervision, ports, guard, lease, log, output, templates_dir, template`,
		}},
		{"unknown key of a template", x + "[template.x.files.\"a.conf\"]\ncontents = \"\"\n", []string{
			`4:1: unknown key template.x.files."a.conf".contents; in [template.x.files."a.conf"] there may be: content, mode`,
		}},
		{"wrong type", "[supervision]\nmax_attempts = \"many\"\n", []string{`2:16: supervision.max_attempts must be a whole number, not a TOML string`}},
		{"wrong type of list", "[template.x]\ncommand = \"x\"\nargs = \"-a\"\n", []string{`3:8: template.x.args must be a list of strings like ["a", "b"], not a TOML string`}},
		{"negative count", "[template.x]\ncommand = \"x\"\nlimits.nofile = -1\n", []string{`3:17: template.x.limits.nofile must be a whole number of 0 or more within range`}},
		{"bare duration", "[supervision]\nbackoff_base = 10\n", []string{`2:16: supervision.backoff_base must be a duration like "10s", in quotes`}},
		{"bare size", x + "[template.x.output]\nmax_size = 10\n", []string{
			`4:12: template.x.output.max_size must be a size like "64MiB", in quotes`,
			`4:12: template x, output.max_size: it must be 4KiB or more, not 10`,
		}},
		{"bare range", "[ports]\nrange = 10000\n", []string{`2:9: ports.range must be a range of ports like "10000-20000", in quotes`}},
		{"bad duration", "[supervision]\nbackoff_base = \"soon\"\n", []string{`2:16: supervision.backoff_base: "soon" is not a duration; write it like "10s" or "5m"`}},
		{"bad range", "[ports]\nrange = \"2-1\"\n", []string{`2:9: ports.range: "2-1" is not a range of ports; write it like "10000-20000"`}},
		{"leases", "[lease]\nttl = \"1s\"\n" + x + "[template.x.lease]\nttl = \"-1s\"\n", []string{
			`2:7: lease.ttl must be 2s or more, or 0 for no lease, not 1s: a busy machine would end healthy nodes`,
			`6:7: template x, lease.ttl: it must not be less than 0, not -1s; 0 means no lease`,
		}},
		{"insane numbers", `[supervision]
max_attempts = 0
backoff_base = "1m"
backoff_cap = "10s"
sweep_interval = "10ms"
concurrency = 5000
reap_interval = "-1s"
[log]
level = "loud"
[output]
max_size = "1"
`, []string{
			`2:16: supervision.max_attempts must be 1 or more, not 0`,
			`4:15: supervision.backoff_cap (10s) must not be less than backoff_base (1m0s)`,
			`5:18: supervision.sweep_interval must be 100ms or more, not 10ms`,
			`6:15: supervision.concurrency must be from 1 to 1024, not 5000`,
			`7:17: supervision.reap_interval must be more than 0, not -1s`,
			`9:9: log.level must be one of debug, info, warn, error, not "loud"`,
			`11:12: output.max_size must be 4KiB or more, not 1`,
		}},
		{"a key and a value at once", "[supervision]\nconcurrency = 0\nfoo = 1\n", []string{
			`2:15: supervision.concurrency must be from 1 to 1024, not 0`,
			`3:1: unknown key supervision.foo; in [supervision] there may be: max_attempts, backoff_base, backoff_cap, refill_after, sweep_interval, settle_interval, concurrency, provisioning_timeout, unseeded_timeout, reap_interval`,
		}},
		{"built-in name", "[template.cadre]\ncommand = \"x\"\n", []string{`1:2: template cadre is built in and can't be redefined; choose another name`}},
		{"template name", "[template.X]\ncommand = \"x\"\n", []string{`1:2: template name "X": up to 63 of a-z, 0-9, _ and -, beginning with a letter or digit`}},
		{"no command", "[template.x]\nargs = []\n", []string{`1:2: template x, command: it must name the program to run`}},
		{"relative command", "[template.x]\ncommand = \"bin/x\"\n", []string{`2:11: template x, command: "bin/x" must be a plain absolute path, a name on the PATH, or @self`}},
		{"ports", x + "ports = [\"http\", \"http\", \"a-b\"]\n", []string{
			`3:18: template x, ports[1]: "http" is there twice`,
			`3:26: template x, ports[2]: "a-b" is no name for a port: up to 63 of a-z, 0-9 and _, beginning with a letter`,
		}},
		{"too many ports", x + "ports = [\"p" + strings.Join(strings.Split("abcdefghijklmnopq", ""), `", "p`) + "\"]\n", []string{`3:1: template x, ports: there may be 16 at most, not 17`}},
		{"readiness", x + "ports = [\"a\"]\nready = { tcp = \"b\", notify = true, content = \"c\", http = \"h\" }\n", []string{
			`4:9: template x, ready: only one of http and tcp and notify can be used`,
			`4:9: template x, ready: http (a path) and port (the name of one of the ports) go together`,
			`4:17: template x, ready.tcp: there is no port "b"; there are: a`,
			`4:47: template x, ready.content: it goes with file`,
			`4:59: template x, ready.http: "h" must be a path that begins with /`,
		}},
		{"signal and grace", x + "stop = { signal = \"TERM\", grace = \"-1s\" }\n", []string{
			`3:19: template x, stop.signal: "TERM" is no signal; write it like "SIGTERM" or "SIGINT"`,
			`3:35: template x, stop.grace: it must be from 0 to 24h0m0s, not -1s`,
		}},
		{"limits", x + "limits = { cpu = nan, pids = -1 }\n", []string{
			`3:10: template x, limits: memory and pids must not be less than 0`,
			`3:18: template x, limits.cpu: it must be a number of cores from 0 to 1024, not NaN`,
		}},
		{"environment", x + "env = { \"a b\" = \"\", CADRE_SPAWN = \"\" }\n", []string{
			`3:17: template x, env."a b": the name of a variable is made of letters, digits and _`,
			`3:35: template x, env.CADRE_SPAWN: the host sets this one itself`,
		}},
		{"user", x + "user = \"a:b\"\n", []string{`3:8: template x, user: "a:b" is neither a user name nor a number`}},
		{"files", x + `[template.x.files]
"../up" = { content = "" }
"/abs" = { content = "", mode = "0999" }
"./a" = { mode = "4755" }
"a" = { }
`, []string{
			`4:11: template x, files."../up": "../up" must be a relative path that stays in the workdir`,
			`5:10: template x, files."/abs": "/abs" must be a relative path that stays in the workdir`,
			`5:33: template x, files."/abs".mode: "0999" is not a file mode; write it in octal like "0600", at most "0777"`,
			`6:18: template x, files."./a".mode: "4755" is not a file mode; write it in octal like "0600", at most "0777"`,
			`7:7: template x, files.a: there is another file with the path "a"`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { checkProblems(t, tt.toml, tt.want) })
	}
}

// TestPlaceholderProblems: whatever is wrong with a placeholder is found when the configuration is read.
func TestPlaceholderProblems(t *testing.T) {
	for _, tt := range []struct{ name, arg, want string }{
		{"typo", "{{.Wrokdir}}", `{{.Wrokdir}}: there is no such placeholder; there are: .Workdir, .ID, .Name, .Port, .StartupToken, .SeedToken, .OwnerKeys, .PartyID, .BootstrapNodes, .Profile, .UID`},
		{"typo in a branch not taken", "{{if .Profile}}{{.Wrokdir}}{{end}}", `{{.Wrokdir}}: there is no such placeholder; there are: .Workdir, .ID, .Name, .Port, .StartupToken, .SeedToken, .OwnerKeys, .PartyID, .BootstrapNodes, .Profile, .UID`},
		{"port", "{{.Port.htpp}}", `{{.Port.htpp}}: there is no such port; there are: .Port.http`},
		{"port as a whole", "{{.Port}}", `{{.Port}}: there is no such port; there are: .Port.http`},
		{"part of a text", "{{$.Workdir.X}}", `{{$.Workdir.X}}: .Workdir has no parts`},
		{"syntax", "a {{.Workdir", `"a {{.Workdir": unclosed action`},
		{"function", "{{upper .Name}}", `"{{upper .Name}}": function "upper" not defined`},
		{"built-in that isn't offered", `{{index .Port "x"}}`, `{{index}}: this function isn't offered; there are: and, eq, join, json, len, ne, not, oneof, or, print, printf, shellquote, toml`},
		{"wrong type", "{{shellquote .OwnerKeys}}", `{{.OwnerKeys}}: wrong type for value; expected string; got []string`},
		{"counting", "{{range 9999999999}}{{end}}", `{{9999999999}}: range goes over .OwnerKeys or .BootstrapNodes only`},
		{"definition", `{{define "a"}}{{end}}`, `{{define}} and {{block}} can't be used: each string stands alone`},
		{"inclusion", `{{template "a"}}`, `{{{{template "a"}}}}: {{template}} can't be used: each string stands alone`},
		{"NUL", `a\u0000`, `a NUL character can't be part of it`},
		{"NUL made", `{{printf \"%c\" 0}}`, `"{{printf \"%c\" 0}}": a value with a NUL character can't be part of it`},
		{"too much", `{{printf \"%999999d%999999d\" 1 1}}`, `"{{printf \"%999999d%999999d\" 1 1}}": it renders to more than 1MiB`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arg := tt.arg
			if !strings.Contains(arg, `\`) {
				arg = strings.ReplaceAll(arg, `"`, `\"`)
			}
			checkProblems(t, "[template.x]\ncommand = \"x\"\nports = [\"http\"]\nargs = [\"-a\", \""+arg+"\"]\n",
				[]string{`4:15: template x, args[1]: ` + tt.want})
		})
	}
}

func checkProblems(t *testing.T, toml string, want []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	var all *Error
	if !errors.As(err, &all) {
		t.Fatalf("got %v, want an *Error", err)
	}
	var got []string
	for _, p := range all.Problems {
		got = append(got, strings.TrimPrefix(p.String(), path+":"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(builtin)
	for _, s := range []string{
		"", "a = [", "[supervision]\nbackoff_base = 10\n", "[template.x]\ncommand = \"{{.Port.a}}\"\nports=[\"a\"]\n",
		"[[template.x]]\n", "template = 1\n", "[template]\nx = {command = 'a', files = {a = {content = '{{json .OwnerKeys}}'}}}\n",
		"[template.x]\ncommand='a'\nargs=['{{range .OwnerKeys}}{{.}}{{end}}']\n", "templates_dir = '/'\n", "\"\" = 1\n", "a.b.c.\"\" = {}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// The directory is left out: what fuzzing writes into templates_dir is none of this test's business.
		cfg, err := load("", data)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("config %v with error %v", cfg, err)
		}
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("an error without words")
			}
			return
		}
		for _, tmpl := range cfg.Templates {
			if _, err := tmpl.Render(*sampleValues(tmpl)); err != nil {
				t.Fatalf("loaded, but doesn't render: %v", err)
			}
			if tmpl.Stop.Number() <= 0 || tmpl.Command == "" || tmpl.Stop.Grace < 0 {
				t.Fatalf("loaded, but unusable: %+v", tmpl)
			}
		}
	})
}
