// This file tests how things read, and that the page about the command line says what is so.

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestHumane(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour:                        "0s",
		999 * time.Millisecond:            "0s",
		59 * time.Second:                  "59s",
		60 * time.Second:                  "1m",
		3*time.Minute + 12*time.Second:    "3m12s",
		time.Hour:                         "1h",
		5*time.Hour + 3*time.Minute:       "5h3m",
		52 * time.Hour:                    "2d4h",
		400 * 24 * time.Hour:              "400d",
		24*time.Hour + 59*time.Minute:     "1d",
		23*time.Hour + 59*time.Minute + 1: "23h59m",
	} {
		if got := humane(d); got != want {
			t.Errorf("humane(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestStatusWords(t *testing.T) {
	now := time.Now()
	since := now.Add(-12 * time.Second)
	for want, v := range map[string]api.View{
		"seeded":                       {Status: donation.Seeded, Running: true, Ready: true},
		"seeded, not ready":            {Status: donation.Seeded, Running: true},
		"awaiting_seed, down":          {Status: donation.AwaitingSeed},
		"error":                        {Status: donation.Failed},
		"terminated, stopping for 12s": {Status: donation.Terminated, Running: true, StopSince: &since},
		"terminated, kill sent, still alive since 12s": {Status: donation.Terminated, Running: true, StopSince: &since, KillSince: &since},
	} {
		if got := statusWords(v, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// page returns docs/cli.md.
func docsPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDocsHaveEveryExitCode(t *testing.T) {
	text := docsPage(t)
	for _, e := range exitMeanings {
		if row := fmt.Sprintf("| %d | %s |", e.code, e.meaning); !strings.Contains(text, row) {
			t.Errorf("docs/cli.md lacks the row %s", row)
		}
	}
}

func TestEveryCommandIsExplained(t *testing.T) {
	text := docsPage(t)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
			return
		}
		path := cmd.CommandPath()
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a text or an example", path)
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if len(strings.TrimSpace(line)) > 120 {
				t.Errorf("%s has a line of %d characters: %s", path, len(line), line)
			}
		}
		if !strings.Contains(text, "`"+path) {
			t.Errorf("docs/cli.md doesn't mention %s", path)
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot(&app{stdout: os.Stdout, stderr: os.Stderr}))
}

func TestTableFitsTheTerminal(t *testing.T) {
	why := "starting /opt/program: no such file or directory: install it, or correct the template's command"
	now := time.Now()
	v := api.View{
		ID: "don_a", Template: "web", Status: donation.Failed, MaxAttempts: 5, Message: why,
		LastExit: &api.ExitView{Words: "did not start: " + why, At: now.Add(-time.Minute)},
	}
	for width, want := range map[int]string{
		0:   "don_a  -     web       error   -    -       0/5       -      -      did not start, 1m ago  " + why,
		200: "don_a  -     web       error   -    -       0/5       -      -      did not start, 1m ago  " + why,
		107: "don_a  -     web       error   -    -       0/5       -      -      did not start, 1m ago  starting /opt/p…",
		97:  "don_a  -     web       error   -    -       0/5       -      -      did not start,…  starting /o…",
		20:  "don_a  -     web       error   -    -       0/5       -      -      did not sta…  starting /o…",
	} {
		var b strings.Builder
		if err := writeViews(&b, []api.View{v}, false, width, now); err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(b.String(), "\n")
		if line = strings.TrimSuffix(line, "\n"); line != want {
			t.Errorf("in %d columns:\n got %s\nwant %s", width, line, want)
		}
	}
}
