// This file tests the reading of a node's output: the last lines of anything that a node may write, and the following
// of a log that is cut, put aside and deleted.

package daemon

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
)

func TestLastLines(t *testing.T) {
	long := strings.Repeat("x", outputChunk+1)
	for _, tc := range []struct {
		name, text string
		n          int
		want       string
		found      int
	}{
		{"nothing", "", 5, "", 0},
		{"all of nothing", "", -1, "", 0},
		{"no lines", "a\nb\n", 0, "", 0},
		{"all", "a\nb\n", -1, "a\nb\n", 0},
		{"the last", "a\nb\n", 1, "b\n", 1},
		{"exactly as many", "a\nb\n", 2, "a\nb\n", 2},
		{"more than there are", "a\nb\n", 3, "a\nb\n", 2},
		{"no newline at the end", "a\nb", 1, "b", 1},
		{"one line without a newline", "a", 1, "a", 1},
		{"only a newline", "\n", 1, "\n", 1},
		{"empty lines", "a\n\n\n", 2, "\n\n", 2},
		{"an empty first line", "\na\n", 2, "\na\n", 2},
		{"binary", "a\x00\xff\nb\x00\r\x1b\n", 1, "b\x00\r\x1b\n", 1},
		{"a line longer than a chunk", "a\n" + long + "\nb\n", 2, long + "\nb\n", 2},
		{"an endless line", long + long, 3, long + long, 1},
		{"a newline at a chunk's edge", long[:outputChunk-1] + "\n" + long[:outputChunk-1] + "\n", 1, long[:outputChunk-1] + "\n", 1},
		{"a line that begins at a chunk's edge", "a\n" + long[:outputChunk-1] + "\n", 1, long[:outputChunk-1] + "\n", 1},
		{"a huge number", "a\nb\n", 1<<62 - 1, "a\nb\n", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, found, err := lastLines(strings.NewReader(tc.text), int64(len(tc.text)), tc.n)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.text[from:]; got != tc.want || found != tc.found {
				t.Errorf("got %.40q (%d bytes), %d lines; want %.40q (%d bytes), %d", got, len(got), found, tc.want, len(tc.want), tc.found)
			}
		})
	}
}

func TestLastLinesReadError(t *testing.T) {
	broken := readerAt{iotest.ErrReader(io.ErrClosedPipe)}
	if _, _, err := lastLines(broken, 10, 1); err == nil {
		t.Error("the error of the file is lost")
	}
}

// readerAt reads the same everywhere.
type readerAt struct{ r io.Reader }

func (r readerAt) ReadAt(b []byte, _ int64) (int, error) { return r.r.Read(b) }

// nodeLog is a log that the test writes as a node does, and cuts and puts aside as the guard does.
type nodeLog struct {
	t    *testing.T
	path string
	f    *os.File
}

func newNodeLog(t *testing.T) *nodeLog {
	l := &nodeLog{t: t, path: filepath.Join(t.TempDir(), "node.log")}
	l.begin()
	t.Cleanup(func() { _ = l.f.Close() })
	return l
}

func (l *nodeLog) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// begin opens the log as at a spawn.
func (l *nodeLog) begin() {
	l.t.Helper()
	var err error
	l.f, err = os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	l.check(err)
}

func (l *nodeLog) write(text string) {
	l.t.Helper()
	_, err := l.f.WriteString(text)
	l.check(err)
}

// cut keeps the end beside the log and empties it.
func (l *nodeLog) cut(keep string) {
	l.t.Helper()
	l.check(os.WriteFile(l.path+".1", []byte(keep), 0o600))
	l.check(l.f.Truncate(0))
}

// rotate puts the log aside and begins another.
func (l *nodeLog) rotate() {
	l.t.Helper()
	l.check(l.f.Close())
	l.check(os.Rename(l.path, l.path+".1"))
	l.begin()
}

// never is an output that goes on.
func never() bool { return false }

func TestOutputTailReachesIntoWhatWasCutOff(t *testing.T) {
	l := newNodeLog(t)
	l.write("one\ntwo\nthree\n")
	l.cut("two\nthree\n")
	l.write("four\nfive")
	for n, want := range map[int]string{
		0:  "",
		1:  "five",
		2:  "four\nfive",
		3:  "three\nfour\nfive",
		9:  "two\nthree\nfour\nfive",
		-1: "two\nthree\nfour\nfive",
	} {
		var got bytes.Buffer
		if err := (output{l.path, never}).copy(t.Context(), &got, n, false); err != nil || got.String() != want {
			t.Errorf("the last %d: %q, %v; want %q", n, &got, err, want)
		}
	}
	l.check(os.Remove(l.path)) // between the putting aside and the next spawn
	var got bytes.Buffer
	if err := (output{l.path, never}).copy(t.Context(), &got, 1, false); err != nil || got.String() != "three\n" {
		t.Errorf("without a log: %q, %v", &got, err)
	}
}

func TestP15_OutputIsNotLedElsewhere(t *testing.T) {
	dir := t.TempDir()
	for name, plant := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(dir, name)
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := (output{path, never}).copy(t.Context(), &got, -1, false); err == nil || got.Len() > 0 {
			t.Errorf("a %s in the log's place: %q, %v", name, &got, err)
		}
	}
}

// follower collects what copy writes; wait returns when it has come to a text.
type follower struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
	ended   chan error
}

func follow(ctx context.Context, o output, lines int) *follower {
	f := &follower{changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	go func() { f.ended <- o.copy(ctx, f, lines, true) }()
	return f
}

func (f *follower) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text.Write(b)
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return len(b), nil
}

// wait waits until all that was written is want.
func (f *follower) wait(t *testing.T, want string) {
	t.Helper()
	bound := time.After(20 * time.Second)
	for {
		f.mu.Lock()
		got := f.text.String()
		f.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-f.changed:
		case <-bound:
			t.Fatalf("followed %q, want %q", got, want)
		}
	}
}

func TestOutputIsFollowedThroughCutsAndSpawns(t *testing.T) {
	l := newNodeLog(t)
	l.write("zero\none\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := follow(ctx, output{l.path, never}, 1)
	want := "one\n"
	grow := func(text string) {
		t.Helper()
		l.write(text)
		want += text
		f.wait(t, want)
	}
	f.wait(t, want)
	grow("a part")
	grow(" of a line\n")
	grow("\x00\xff binary\n")
	l.cut("a line\n")
	grow("cut\n") // shorter than what was there
	l.rotate()
	grow("rotated\n")
	l.rotate()
	grow("again\n")
	l.check(l.f.Close())
	l.check(os.Remove(l.path))
	l.begin()
	grow("after an absence\n")
	cancel()
	if err := <-f.ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}

func TestOutputIsFollowedToItsEnd(t *testing.T) {
	l := newNodeLog(t)
	l.write("words\n")
	// The node writes until the very moment in which its end is seen.
	gone := func() bool { l.write("last words"); return true }
	f := follow(t.Context(), output{l.path, gone}, -1)
	f.wait(t, "words\n")
	l.check(os.Remove(l.path))
	if err := <-f.ended; err != nil {
		t.Errorf("the end: %v", err)
	}
	f.wait(t, "words\nlast words")
}

func TestOutputIsFollowedFromBeforeItsBeginning(t *testing.T) {
	l := newNodeLog(t)
	l.check(os.Remove(l.path))
	f := follow(t.Context(), output{l.path, never}, 10)
	l.begin()
	l.write("first\n")
	f.wait(t, "first\n")
}

func TestOutputThatGrowsFasterThanItIsReadEnds(t *testing.T) {
	l := newNodeLog(t)
	l.write("begin\n")
	f, err := openLog(l.path)
	l.check(err)
	defer closeLog(f)
	grows := writerFunc(func(b []byte) (int, error) { l.write("more\n"); return len(b), nil })
	for range 3 { // each look ends at what it found at its beginning
		l.check(output{l.path, never}.added(grows, f))
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }
