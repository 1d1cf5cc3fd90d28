// This file reads a node's output: the last lines, and what comes after them, through the rotations that keep
// the log within its bound.

package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serfab/cadre-hostd/internal/donation"
	"github.com/serfab/cadre-hostd/internal/guard"
)

// outputPoll is how often a followed log is looked at. Nothing of ours stands between a node and its log, so
// nothing tells of a new line.
const outputPoll = 100 * time.Millisecond

// outputChunk is how much is read at a time, in bytes, from the end of a log backwards.
const outputChunk = 64 << 10

// logPath is where the donation's node writes its output.
func (b backend) logPath(id donation.ID) string {
	if path := b.d.link.orch.LogPath(id); path != "" {
		return path
	}
	return guard.NodeLog(b.d.opts.NodesDir, string(id))
}

// output is a node's log: the file, and what was cut off from it in path.1.
type output struct {
	path string
	// ended reports whether no file will come at path any more; it is asked while there is none.
	ended func() bool
}

// copy writes the last lines (all if negative) to w and, with follow, what comes until ctx or the output ends.
func (o output) copy(ctx context.Context, w io.Writer, lines int, follow bool) error {
	f, err := openLog(o.path)
	if err != nil {
		return err
	}
	defer func() { closeLog(f) }()
	if err := o.tail(w, f, lines); err != nil || !follow {
		return err
	}
	ticker := time.NewTicker(outputPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if f, err = o.more(w, f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// more writes what has been added since the last look; it returns the file that the next look reads, and io.EOF
// when there won't be one.
func (o output) more(w io.Writer, f *os.File) (*os.File, error) {
	if err := o.added(w, f); err != nil {
		return f, err
	}
	now, err := os.Lstat(o.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.ended():
		return f, cmp.Or(o.added(w, f), io.EOF) // it may have been written to since the look above
	case errors.Is(err, fs.ErrNotExist):
		return f, nil // between two spawns, or before the first
	case err != nil:
		return f, fmt.Errorf("look at the node's output: %w", err)
	}
	if f != nil {
		open, err := f.Stat()
		if err != nil {
			return f, fmt.Errorf("look at the node's output: %w", err)
		}
		if os.SameFile(open, now) {
			return f, nil
		}
	}
	// A spawn has begun a new file. What came into the old one since the look above is all that will come.
	next, err := openLog(o.path)
	if err != nil || next == nil {
		return f, err
	}
	if err := o.added(w, f); err != nil {
		closeLog(next)
		return f, err
	}
	closeLog(f)
	return next, o.added(w, next)
}

// added writes what f has more than at the last look, from its beginning if it was emptied since. It stops at the
// size that it found, for a node may write faster than a client reads.
func (o output) added(w io.Writer, f *os.File) error {
	if f == nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at the node's output: %w", err)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err == nil && info.Size() < at {
		at, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("look at the node's output: %w", err)
	}
	if _, err := io.Copy(w, io.LimitReader(f, info.Size()-at)); err != nil {
		return fmt.Errorf("pass on %s: %w", o.path, err)
	}
	return nil
}

// tail writes the last lines of the log, some of them from the part that was cut off, and leaves f at its end.
func (o output) tail(w io.Writer, f *os.File, lines int) error {
	if f == nil {
		return o.tailOld(w, lines) // it was put aside just now
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("read %s: %w", o.path, err)
	}
	from, found, err := lastLines(f, end, lines)
	if err != nil {
		return fmt.Errorf("read %s: %w", o.path, err)
	}
	if lines < 0 || found < lines {
		if err := o.tailOld(w, lines-found); err != nil { // all stays all: nothing was counted then
			return err
		}
	}
	_, err = io.Copy(w, io.NewSectionReader(f, from, end-from))
	return err
}

// tailOld writes the last lines (all if negative) of what was cut off.
func (o output) tailOld(w io.Writer, lines int) error {
	old, err := openLog(o.path + ".1")
	if err != nil || old == nil {
		return err
	}
	defer closeLog(old)
	end, err := old.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("read %s.1: %w", o.path, err)
	}
	from, _, err := lastLines(old, end, lines)
	if err != nil {
		return fmt.Errorf("read %s.1: %w", o.path, err)
	}
	_, err = io.Copy(w, io.NewSectionReader(old, from, end-from))
	return err
}

// lastLines returns where the last n lines of the first end bytes begin, and how many there are (n at most). A
// last line without its newline counts. It holds one chunk in memory, however long a line is.
func lastLines(r io.ReaderAt, end int64, n int) (from int64, found int, err error) {
	if n < 0 || end == 0 {
		return 0, 0, nil
	}
	if n == 0 {
		return end, 0, nil
	}
	buf := make([]byte, outputChunk)
	for at := end; at > 0; {
		size := min(at, outputChunk)
		at -= size
		chunk := buf[:size]
		if _, err := r.ReadAt(chunk, at); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		for {
			i := bytes.LastIndexByte(chunk, '\n')
			if i < 0 {
				break
			}
			// The newline that ends the file ends its last line; every other one begins one.
			if begin := at + int64(i) + 1; begin < end {
				if found++; found == n {
					return begin, found, nil
				}
			}
			chunk = chunk[:i]
		}
	}
	return 0, found + 1, nil
}

// openLog opens a log without being led elsewhere or held up by what is in its place; nil if there is none yet.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the node's output: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		closeLog(f)
		return nil, fmt.Errorf("open the node's output: %w", err)
	}
	return f, nil
}

// closeLog closes a log that was only read; there is nothing to lose.
func closeLog(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}
