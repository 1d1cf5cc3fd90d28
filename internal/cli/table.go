// This file holds the pages that status prints: the table of donations, and all about one.

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/serfab/cadre-hostd/internal/api"
)

// writeJSON prints v for machines.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// newTable aligns columns with two spaces between.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func row(w io.Writer, cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }

func flush(t *tabwriter.Writer) error {
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// writeViews prints one line for each donation, of at most width characters if that can be had by shortening
// words (0: never; all of them are in the page about one donation).
func writeViews(w io.Writer, views []api.View, wide bool, width int, now time.Time) error {
	notes := false
	for _, v := range views {
		notes = notes || note(v) != ""
	}
	head := []string{"ID", "NAME", "TEMPLATE", "STATUS", "PID", "UPTIME", "ATTEMPTS", "PORTS", "LEASE", "LAST EXIT"}
	if wide {
		head = append(head, "SPAWN", "GENERATION", "UID", "WORKDIR", "CREATED")
	}
	if notes {
		head = append(head, "NOTE")
	}
	rows := [][]string{head}
	for _, v := range views {
		cells := []string{
			string(v.ID), dash(v.Name), v.Template, statusWords(v, now), pidWords(v), uptime(v, now),
			attemptWords(v, now), dash(portList(v.Ports)), dash(leaseLeft(v, now)), shortExit(v, now),
		}
		if wide {
			cells = append(cells, dash(v.Spawn), fmt.Sprint(v.Generation), uidWords(v), dash(v.Workdir), ago(v.CreatedAt, now))
		}
		if notes {
			cells = append(cells, dash(note(v)))
		}
		rows = append(rows, cells)
	}
	if width > 0 && !wide {
		fit(rows, width)
	}
	t := newTable(w)
	for _, cells := range rows {
		row(t, cells...)
	}
	return flush(t)
}

// wordsColumn is the first of the columns that hold whole sentences; shortest is how far one of those is cut.
const (
	wordsColumn = 9
	shortest    = 12
)

// fit shortens the sentences in rows, the last column first, until the lines have width characters or there is
// nothing left to shorten.
func fit(rows [][]string, width int) {
	columns := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i, c := range cells {
			columns[i] = max(columns[i], utf8.RuneCountInString(c))
		}
	}
	excess := 2*(len(columns)-1) - width
	for _, c := range columns {
		excess += c
	}
	for i := len(columns) - 1; i >= wordsColumn && excess > 0; i-- {
		to := max(columns[i]-excess, shortest)
		if to >= columns[i] {
			continue
		}
		excess -= columns[i] - to
		for _, cells := range rows {
			cells[i] = shorten(cells[i], to)
		}
	}
}

// shorten cuts text to n characters, the last of which says so.
func shorten(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

func uidWords(v api.View) string {
	if v.UID == 0 {
		return "-"
	}
	return fmt.Sprint(v.UID)
}

// writeDetail prints all about one donation and the history of its spawns.
func writeDetail(w io.Writer, v api.View, now time.Time) error {
	t := newTable(w)
	fact := func(name, value string) {
		if value != "" {
			row(t, name+":", value)
		}
	}
	fact("ID", string(v.ID))
	fact("Name", v.Name)
	fact("Template", v.Template)
	fact("Status", statusWords(v, now))
	fact("Message", oneLine(v.Message))
	fact("Held up", oneLine(v.Hold))
	if v.Running {
		fact("Process", fmt.Sprintf("pid %d, up %s", v.PID, uptime(v, now)))
	}
	fact("Attempts", attemptWords(v, now))
	fact("Ports", portList(v.Ports))
	fact("Lease", leaseWords(v, now))
	if v.UID != 0 {
		fact("User", fmt.Sprintf("uid %d", v.UID))
	}
	fact("Workdir", v.Workdir)
	if v.LastExit != nil {
		fact("Last exit", exitWords(*v.LastExit, now))
		fact("It used", usageWords(*v.LastExit))
	}
	fact("Created", fmt.Sprintf("%s (%s)", moment(v.CreatedAt), ago(v.CreatedAt, now)))
	fact("Changed", fmt.Sprintf("%s (%s)", moment(v.UpdatedAt), ago(v.UpdatedAt, now)))
	if err := flush(t); err != nil {
		return err
	}
	if v.Lease != nil && len(v.Lease.History) > 0 {
		fmt.Fprintln(w, "\nTroubles of the lease, newest first:")
		t = newTable(w)
		for _, e := range v.Lease.History {
			row(t, moment(e.At), e.Kind, oneLine(e.Detail))
		}
		if err := flush(t); err != nil {
			return err
		}
	}
	if len(v.Spawns) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nSpawns, newest first:")
	t = newTable(w)
	row(t, "SPAWN", "GENERATION", "STATE", "PID", "STARTED", "LASTED", "READY AFTER", "EXIT")
	for _, s := range v.Spawns {
		writeSpawn(t, s, now)
	}
	return flush(t)
}

func writeSpawn(t io.Writer, s api.SpawnView, now time.Time) {
	pid, started, lasted, ready, exit := "-", "-", "-", "-", "-"
	if s.PID != 0 {
		pid = fmt.Sprint(s.PID)
	}
	if s.StartedAt != nil {
		started, lasted = moment(*s.StartedAt), humane(now.Sub(*s.StartedAt))
		if s.ReadyAt != nil {
			ready = s.ReadyAt.Sub(*s.StartedAt).Round(time.Millisecond).String()
		}
	}
	if s.Exit != nil {
		exit = oneLine(s.Exit.Words)
		if s.StartedAt != nil {
			lasted = humane(s.Exit.At.Sub(*s.StartedAt))
		}
	}
	row(t, string(s.ID), fmt.Sprint(s.Generation), string(s.State), pid, started, lasted, ready, exit)
}
