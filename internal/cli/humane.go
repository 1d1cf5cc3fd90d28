// This file holds how times, durations and ports read in tables. JSON has RFC 3339 instead.

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// humane writes a duration in its two largest units: 12s, 3m12s, 5h3m, 2d4h. A negative one is 0s: a clock
// that was set back is no news of the node.
func humane(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	two := func(big int64, bigUnit string, small int64, smallUnit string) string {
		if small == 0 {
			return fmt.Sprintf("%d%s", big, bigUnit)
		}
		return fmt.Sprintf("%d%s%d%s", big, bigUnit, small, smallUnit)
	}
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return two(s/60, "m", s%60, "s")
	case s < 86400:
		return two(s/3600, "h", s%3600/60, "m")
	default:
		return two(s/86400, "d", s%86400/3600, "h")
	}
}

// ago says how long before now t was.
func ago(t, now time.Time) string {
	if now.Sub(t) < time.Second {
		return "just now"
	}
	return humane(now.Sub(t)) + " ago"
}

// in says how far after now t is; what is due is due now.
func in(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	// Rounded up, so that it never says 0s of what is still to come.
	return "in " + humane(t.Sub(now)+time.Second-time.Nanosecond)
}

// moment writes a time in the local zone, to the second.
func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// portList writes ports as "health 10000, p2p 10001".
func portList(ports map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		list = append(list, fmt.Sprintf("%s %d", name, ports[name]))
	}
	return strings.Join(list, ", ")
}

// oneLine makes text that came from elsewhere safe for a table and a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
}
