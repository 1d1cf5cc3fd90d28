// This file keeps the nodes' logs within their bound. A node writes straight to its file; a checker looks at the
// size, the sooner the faster it grows, and cuts: the newest half of the limit is kept as node.log.1 and the file
// starts again from nothing. A log that a former spawn left between half and all of its limit becomes node.log.1
// whole. So neither file is larger than the limit, and a node's logs take at most twice that, plus what it can write
// within one check interval (1 s for a log that was quiet, 100 ms for one that is new or fills fast).

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// The bounds of the interval between two looks at a log, and the limit of a log that doesn't name one.
const (
	logCheckMin   = 100 * time.Millisecond
	logCheckMax   = time.Second
	DefaultLogMax = 10 << 20
)

// nodeLogFile is a node's log, open for as long as the node lives: what it writes into a file that somebody deleted
// is bounded too.
type nodeLogFile struct {
	file     *os.File
	donation string
	max      int64
	// next is when to look again, size and seen what the last look saw. Only the checker's loop uses them.
	next time.Time
	size int64
	seen time.Time
}

// openLog opens the log below the directory fd, appending. One that has used over half of its limit is
// put aside first if rotate says so; one that outgrew the limit before it was looked at isn't, for the checker cuts it
// as soon as it is told of the log.
func (w *workdirs) openLog(dir int, donation string, limit int64, rotate bool) (*nodeLogFile, error) {
	if limit <= 0 {
		limit = DefaultLogMax
	}
	for {
		fd, err := openBeneath(dir, logName, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT, 0o600)
		if err != nil {
			return nil, fmt.Errorf("log of the node: %w", err)
		}
		st, err := w.adoptLog(fd)
		if err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("log of the node: %w", err)
		}
		if rotate && st.Size > limit/2 && st.Size <= limit {
			rotate = false
			unix.Close(fd)
			if err := unix.Renameat(dir, logName, dir, logName+".1"); err != nil {
				return nil, fmt.Errorf("log of the node: %w", err)
			}
			continue
		}
		return &nodeLogFile{file: os.NewFile(uintptr(fd), filepath.Join(donation, logName)), donation: donation, max: limit}, nil
	}
}

// adoptLog gives the file to the peer and makes its writes block as usual.
func (w *workdirs) adoptLog(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return st, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return st, errors.New("it isn't a regular file")
	}
	if w.root && w.peer >= 0 && int(st.Uid) != w.peer {
		if err := unix.Fchown(fd, w.peer, -1); err != nil {
			return st, err
		}
	}
	return st, unix.SetNonblock(fd, false)
}

// reopenLog opens the log of an adopted node.
func (w *workdirs) reopenLog(donation string, limit int64) (*nodeLogFile, error) {
	top, err := w.open()
	if err != nil {
		return nil, err
	}
	defer unix.Close(top)
	dir, err := openBeneath(top, filepath.Join(donation, logDirName), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("log of the node: %w", err)
	}
	defer unix.Close(dir)
	return w.openLog(dir, donation, limit, false)
}

// logBound is the checker of all logs.
type logBound struct {
	w    *workdirs
	log  *zap.Logger
	wake chan struct{} // capacity 1: one pending wake-up is enough

	mu   sync.Mutex
	logs map[*nodeLogFile]struct{} // guarded by mu
}

func newLogBound(w *workdirs, log *zap.Logger) *logBound {
	return &logBound{w: w, log: log, wake: make(chan struct{}, 1), logs: make(map[*nodeLogFile]struct{})}
}

// add puts a log under control; remove closes it.
func (b *logBound) add(l *nodeLogFile) {
	b.mu.Lock()
	b.logs[l] = struct{}{}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *logBound) remove(l *nodeLogFile) {
	b.mu.Lock()
	delete(b.logs, l)
	b.mu.Unlock()
	_ = l.file.Close() // nothing of ours is buffered
}

// run checks until ctx ends.
func (b *logBound) run(ctx context.Context) {
	timer := time.NewTimer(logCheckMax)
	defer timer.Stop()
	for {
		timer.Reset(b.pass(time.Now()))
		select {
		case <-timer.C:
		case <-b.wake:
		case <-ctx.Done():
			return
		}
	}
}

// pass looks at the logs that are due and returns how long it is to the next look. Those that fall due soon are
// taken along, which saves a wake-up each.
func (b *logBound) pass(now time.Time) time.Duration {
	b.mu.Lock()
	var due []*nodeLogFile
	wait := logCheckMax
	for l := range b.logs {
		if d := l.next.Sub(now); d <= logCheckMin/2 {
			due = append(due, l)
		} else {
			wait = min(wait, d)
		}
	}
	b.mu.Unlock()
	for _, l := range due {
		every := b.check(l, now)
		l.next = now.Add(every)
		wait = min(wait, every)
	}
	return wait
}

// check cuts the log if it is over its limit, and says when to look again. Trouble is reported and tried
// again; it never reaches the node.
func (b *logBound) check(l *nodeLogFile, now time.Time) time.Duration {
	info, err := l.file.Stat()
	if errors.Is(err, os.ErrClosed) {
		return logCheckMax
	}
	if err != nil {
		b.log.Warn("log can't be checked", zap.String("donation", l.donation), zap.Error(err))
		return logCheckMax
	}
	size := info.Size()
	elapsed := now.Sub(l.seen)
	if l.seen.IsZero() {
		elapsed = 0 // the first look
	}
	every := nextLogCheck(l.size, size, l.max, elapsed)
	if size > l.max {
		if err := b.w.cutLog(l, size); err != nil {
			b.log.Warn("log can't be cut as it should", zap.String("donation", l.donation), zap.Error(err))
		}
		size = 0
	}
	l.size, l.seen = size, now
	return every
}

// nextLogCheck is half of the time that a log which grew from before to size in elapsed takes to fill up, but never more
// than twice elapsed, so that a new log is looked at soon, and within bounds.
func nextLogCheck(before, size, limit int64, elapsed time.Duration) time.Duration {
	next := 2 * elapsed
	if grown := size - before; grown > 0 {
		left := limit - size
		if left <= 0 {
			left = limit
		}
		fill := float64(left) / float64(grown) * float64(elapsed)
		next = time.Duration(min(fill/2, float64(next)))
	}
	return min(max(next, logCheckMin), logCheckMax)
}

// cutLog keeps the newest half of the limit beside the log and empties it. The node appends, so its next
// write goes to the beginning. What it writes in between is lost. If the copy fails the log is emptied all the
// same: the bound matters more.
func (w *workdirs) cutLog(l *nodeLogFile, size int64) error {
	err := w.copyTail(l, size)
	return errors.Join(err, l.file.Truncate(0))
}

func (w *workdirs) copyTail(l *nodeLogFile, size int64) error {
	top, err := w.open()
	if err != nil {
		return err
	}
	defer unix.Close(top)
	dir, err := openBeneath(top, filepath.Join(l.donation, logDirName), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	const name = logName + ".1"
	if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	fd, err := openBeneath(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	old := os.NewFile(uintptr(fd), name)
	defer old.Close()
	if _, err := w.adoptLog(fd); err != nil {
		return err
	}
	keep := l.max / 2
	_, err = io.Copy(old, io.NewSectionReader(l.file, size-keep, keep))
	return err
}
