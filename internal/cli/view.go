// This file holds what tables say of a donation: the words for its status, attempts and end.

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/serfab/cadre-hostd/internal/api"
	"github.com/serfab/cadre-hostd/internal/donation"
)

// nameOf is what people call a donation.
func nameOf(v api.View) string {
	if v.Name == "" {
		return string(v.ID)
	}
	return fmt.Sprintf("%s (%s)", v.ID, v.Name)
}

// statusWords is the status, and what its process does unless that goes without saying.
func statusWords(v api.View, now time.Time) string {
	words := string(v.Status)
	switch {
	case v.KillSince != nil:
		return fmt.Sprintf("%s, kill sent, still alive since %s", words, humane(now.Sub(*v.KillSince)))
	case v.StopSince != nil:
		return fmt.Sprintf("%s, stopping for %s", words, humane(now.Sub(*v.StopSince)))
	case v.Running && !v.Ready:
		return words + ", not ready"
	case v.Status.IsSupervised() && !v.Running:
		return words + ", down"
	default:
		return words
	}
}

// pidWords is the process id, if there is a process.
func pidWords(v api.View) string {
	if !v.Running || v.PID == 0 {
		return "-"
	}
	return fmt.Sprint(v.PID)
}

// uptime is how long the process has been running.
func uptime(v api.View, now time.Time) string {
	if !v.Running || v.StartedAt == nil {
		return "-"
	}
	return humane(now.Sub(*v.StartedAt))
}

// leaseLeft is how long the node would outlive its host from now on; "!" says that it is too little.
func leaseLeft(v api.View, now time.Time) string {
	switch l := v.Lease; {
	case l == nil:
		return ""
	case l.Low:
		return humane(l.ExpiresAt.Sub(now)) + "!"
	default:
		return humane(l.ExpiresAt.Sub(now))
	}
}

// leaseWords is the lease with what is wrong with it.
func leaseWords(v api.View, now time.Time) string {
	l := v.Lease
	if l == nil {
		return ""
	}
	words := fmt.Sprintf("%s left of %s", humane(l.ExpiresAt.Sub(now)), humane(time.Duration(l.TTLSeconds*float64(time.Second))))
	if l.RenewedAt != nil {
		words += ", renewed " + ago(*l.RenewedAt, now)
	}
	if l.Failures > 0 {
		words += fmt.Sprintf("; renewals that failed since: %d, the last: %s", l.Failures, oneLine(l.LastError))
	}
	return words
}

// lowLeases warns of the nodes that will be stopped unless something is done.
func lowLeases(views []api.View, now time.Time) []string {
	var list []string
	for _, v := range views {
		if v.Lease != nil && v.Lease.Low {
			list = append(list, fmt.Sprintf("the lease of %s has only %s", nameOf(v), leaseWords(v, now)))
		}
	}
	return list
}

// attemptWords is "1/5", and when the next one is due.
func attemptWords(v api.View, now time.Time) string {
	words := fmt.Sprintf("%d/%d", v.Attempts, v.MaxAttempts)
	if v.NextAttempt != nil && v.Status.IsSupervised() && !v.Running {
		words += fmt.Sprintf(" (next %s)", in(*v.NextAttempt, now))
	}
	return words
}

// lastExit is how the last process ended, and how long ago.
func lastExit(v api.View, now time.Time) string {
	if v.LastExit == nil {
		return "-"
	}
	return exitWords(*v.LastExit, now)
}

// shortExit is lastExit without what the note says anyway.
func shortExit(v api.View, now time.Time) string {
	if v.LastExit == nil {
		return "-"
	}
	e := *v.LastExit
	if what, why, ok := strings.Cut(oneLine(e.Words), ": "); ok && strings.Contains(note(v), why) {
		e.Words = what
	}
	return exitWords(e, now)
}

func exitWords(e api.ExitView, now time.Time) string {
	words := oneLine(e.Words)
	if !e.At.IsZero() {
		words += ", " + ago(e.At, now)
	}
	return words
}

// usageWords is what a process used, if that is known.
func usageWords(e api.ExitView) string {
	var used []string
	if e.CPUSeconds > 0 {
		used = append(used, fmt.Sprintf("%s of processor time", time.Duration(e.CPUSeconds*float64(time.Second)).Round(time.Millisecond)))
	}
	if e.MaxRSS > 0 {
		used = append(used, "at most "+humanize.IBytes(uint64(e.MaxRSS))+" of memory")
	}
	return strings.Join(used, ", ")
}

// note is why the status is what it is, or what holds the next spawn up.
func note(v api.View) string {
	var parts []string
	for _, p := range []string{v.Message, v.Hold} {
		if p != "" {
			parts = append(parts, oneLine(p))
		}
	}
	return strings.Join(parts, "; ")
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// warnings are what the owner should know of the daemon before reading any table.
func warnings(o api.Overview) []string {
	var list []string
	for _, f := range o.Faults {
		list = append(list, oneLine(f.Message))
	}
	if len(list) > 0 {
		if o.Mode == "caretaker" {
			list = append([]string{"the daemon is a caretaker: it keeps nodes alive and decides nothing until this is mended"}, list...)
		}
		return list
	}
	switch {
	case o.Mode != "running":
		list = append(list, "the daemon is "+o.Mode)
	case o.Guard.State == "silent":
		list = append(list, fmt.Sprintf("the guard (pid %d) does not answer", o.Guard.PID))
	case o.Guard.State != "connected":
		list = append(list, "the guard is "+o.Guard.State)
	}
	return list
}

// ended reports whether nothing more will happen by itself.
func ended(v api.View) bool { return v.Status == donation.Failed || v.Status == donation.Terminated }
