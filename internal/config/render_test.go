// This file tests what placeholders turn into, with the built-in templates as the first customers.

package config

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

func values() Values {
	return Values{
		Workdir: "/n/don_1/work", ID: "don_1", Name: "it's",
		Port:         map[string]int{"health": 10000, "metrics": 10001, "p2p": 10002, "admin": 10003, "ws": 10004},
		StartupToken: "startup", SeedToken: "seed",
		OwnerKeys: []string{"k1", "k2"}, PartyID: `a "party" <&>`, BootstrapNodes: []string{"/dns4/n/tcp/1"}, UID: 70000,
	}
}

// TestBuiltInCadre holds the contract at the end of docs/conformance.md.
func TestBuiltInCadre(t *testing.T) {
	cfg, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	tmpl := cfg.Templates["cadre"]
	if !tmpl.Seed {
		t.Error("a cadre node waits for a seed")
	}
	if diff := cmp.Diff([]string{"health", "metrics", "p2p", "admin", "ws"}, tmpl.Ports); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct{ profile, config string }{
		{"", `{"controlNetwork":{"partyId":"a \"party\" <&>","bootstrapNodes":["/dns4/n/tcp/1"]},"profile":"storage","strandFilter":"all","storage":{"type":"file","path":"/n/don_1/work/storage"}}`},
		{"storage", `{"controlNetwork":{"partyId":"a \"party\" <&>","bootstrapNodes":["/dns4/n/tcp/1"]},"profile":"storage","strandFilter":"all","storage":{"type":"file","path":"/n/don_1/work/storage"}}`},
		{"transaction", `{"controlNetwork":{"partyId":"a \"party\" <&>","bootstrapNodes":["/dns4/n/tcp/1"]},"profile":"transaction","strandFilter":"all"}`},
	} {
		v := values()
		v.Profile = tt.profile
		got, err := tmpl.Render(v)
		if err != nil {
			t.Fatal(err)
		}
		var gotConfig, wantConfig any
		if err := json.Unmarshal([]byte(got.Files[0].Content), &gotConfig); err != nil {
			t.Fatalf("cadre.json: %v\n%s", err, got.Files[0].Content)
		}
		if err := json.Unmarshal([]byte(tt.config), &wantConfig); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantConfig, gotConfig); diff != "" {
			t.Errorf("profile %q (-want +got):\n%s", tt.profile, diff)
		}
		got.Files = nil
		want := &Rendered{
			Command: "cadre",
			Args: []string{
				"start", "-c", "/n/don_1/work/cadre.json", "--health-port", "10000", "--metrics-port", "10001",
				"--startup-token-file", "/n/don_1/work/.startup-token",
			},
			Env: map[string]string{
				"CADRE_STARTUP_TOKEN": "startup", "CADRE_SEED_TOKEN": "seed", "CADRE_HEALTH_PORT": "10000", "CADRE_METRICS_PORT": "10001",
				"CADRE_LISTEN_ADDRS": "/ip4/0.0.0.0/tcp/10002,/ip4/0.0.0.0/tcp/10004/ws", "CADRE_OWNER_KEYS": "k1,k2",
			},
			ReadyFile: ".startup-token", ReadyContent: "startup",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	v := values()
	v.Profile = "gold"
	_, err = tmpl.Render(v)
	const want = `template cadre, files."cadre.json".content: {{oneof .Profile "storage" "transaction"}}: "gold" isn't allowed; allowed are: storage, transaction`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	v = values()
	v.BootstrapNodes = nil
	got, err := tmpl.Render(v)
	if err != nil || !strings.Contains(got.Files[0].Content, `"bootstrapNodes": []`) {
		t.Errorf("no bootstrap nodes: %v, %v", got, err)
	}
}

func TestBuiltInReference(t *testing.T) {
	cfg, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	tmpl := cfg.Templates["reference"]
	got, err := tmpl.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	want := &Rendered{
		Command: SelfCommand,
		Args:    []string{"node", "--workdir", "/n/don_1/work", "--health-port", "10000", "--startup-token-file", "/n/don_1/work/.startup-token"},
		Env:     map[string]string{"CADRE_STARTUP_TOKEN": "startup", "CADRE_SEED_TOKEN": "seed", "CADRE_OWNER_KEYS": "k1,k2"},

		ReadyFile: ".startup-token", ReadyContent: "startup",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if tmpl.Seed {
		t.Error("the reference template goes straight to seeded")
	}
}

func TestPlaceholders(t *testing.T) {
	v := values()
	v.PartyID = "a\x7f\n'\"\u2028é"
	for _, tt := range []struct{ text, want string }{
		{"plain }} text", "plain }} text"},
		{"{{.ID}}/{{.Port.health}}/{{.UID}}", "don_1/10000/70000"},
		{`{{join .OwnerKeys "+"}}`, "k1+k2"},
		{`{{range .OwnerKeys}}<{{.}}:{{$.ID}}>{{else}}{{.Name}}{{end}}`, "<k1:don_1><k2:don_1>"},
		{`{{if and .OwnerKeys (not .Profile)}}{{len .OwnerKeys}}{{end}}`, "2"},
		{`{{with .Profile}}{{.}}{{else}}none{{end}}`, "none"},
		{`{{or .Profile "small" | printf "%q"}}`, `"small"`},
		{`{{json .PartyID}}`, `"a` + "\x7f" + `\n'\"\u2028é"`},
		{`{{toml .PartyID}}`, `"a\u007f\n'\"\u2028é"`},
		{`{{toml .OwnerKeys}} {{toml .Port.health}}`, `["k1","k2"] 10000`},
		{`{{shellquote .Name}}`, `'it'\''s'`},
	} {
		tmpl := &Template{Name: "x", Command: tt.text, Ports: []string{"health"}}
		got, err := expand(tmpl, tt.text, &v)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.text, got, err, tt.want)
		}
	}
}

// TestQuotingSurvives reads hostile text back through what will read it.
func TestQuotingSurvives(t *testing.T) {
	for _, s := range []string{"", "plain", `a'b"c\d`, "$(id) `id` ; rm -rf *\n\ttwo", "\x7f\x01\u2028é🙂"} {
		v := Values{Name: s}
		text := func(placeholder string) string {
			t.Helper()
			out, err := expand(&Template{Name: "x"}, placeholder, &v)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+text("{{shellquote .Name}}")).Output()
		if err != nil || string(out) != s {
			t.Errorf("sh read %q as %q, %v", s, out, err)
		}
		var fromTOML, fromJSON struct{ A string }
		if err := toml.Unmarshal([]byte("a = "+text("{{toml .Name}}")), &fromTOML); err != nil || fromTOML.A != s {
			t.Errorf("TOML read %q as %q, %v", s, fromTOML.A, err)
		}
		if err := json.Unmarshal([]byte(`{"a": `+text("{{json .Name}}")+`}`), &fromJSON); err != nil || fromJSON.A != s {
			t.Errorf("JSON read %q as %q, %v", s, fromJSON.A, err)
		}
	}
}
