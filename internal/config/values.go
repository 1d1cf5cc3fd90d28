// This file holds the value types that TOML strings are read into: durations, sizes and port ranges.

package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Duration is a time.Duration written like "1m30s".
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write it like \"10s\" or \"5m\"", b)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes a duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// D returns the time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// Size is a number of bytes written like "64MiB" or "1GB".
type Size int64

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(b []byte) error {
	v, err := humanize.ParseBytes(string(b))
	if err != nil || v > 1<<62 {
		return fmt.Errorf("%q is not a size; write it like \"64MiB\"", b)
	}
	*s = Size(v)
	return nil
}

// sizeUnits are the units that a size is written in, largest first.
var sizeUnits = []struct {
	bytes Size
	name  string
}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}

// MarshalText writes a size exactly, in the largest unit that divides it.
func (s Size) MarshalText() ([]byte, error) {
	for _, u := range sizeUnits {
		if s != 0 && s%u.bytes == 0 {
			return fmt.Appendf(nil, "%d%s", s/u.bytes, u.name), nil
		}
	}
	return strconv.AppendInt(nil, int64(s), 10), nil
}

// String returns what MarshalText writes.
func (s Size) String() string {
	b, _ := s.MarshalText() // never fails
	return string(b)
}

// PortRange is a range of TCP ports, both ends included, written like "10000-20000".
type PortRange struct{ First, Last int }

// UnmarshalText reads a range.
func (r *PortRange) UnmarshalText(b []byte) error {
	first, last, ok := strings.Cut(string(b), "-")
	f, err1 := strconv.Atoi(strings.TrimSpace(first))
	l, err2 := strconv.Atoi(strings.TrimSpace(last))
	if !ok || err1 != nil || err2 != nil || f < 1 || l > 65535 || f > l {
		return fmt.Errorf("%q is not a range of ports; write it like \"10000-20000\"", b)
	}
	*r = PortRange{f, l}
	return nil
}

// MarshalText writes a range.
func (r PortRange) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d-%d", r.First, r.Last), nil
}

// Contains reports whether port lies in the range.
func (r PortRange) Contains(port int) bool { return port >= r.First && port <= r.Last }
