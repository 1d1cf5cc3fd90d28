// This file asks what stdout is: a terminal with its size, or a pipe whose reader may leave.

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// errNoReader ends a command that goes on and on when nobody reads what it writes any more. Nothing is said about
// it: as for a program that SIGPIPE has ended, it is how 'cadre-hostd logs -f x | head' is meant to end.
var errNoReader = errors.New("nobody reads the output any more")

// readerCheck is how often a quiet pipe is asked for its reader.
const readerCheck = 250 * time.Millisecond

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// terminalSize returns the columns and rows of the terminal that w is, 0 if it is none or doesn't know.
func terminalSize(w io.Writer) (width, height int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// whileRead does work under a context that ends, with errNoReader as its cause, when w is a pipe or socket whose
// reader has left. A write would tell too, but a quiet node or daemon gives nothing to write.
func whileRead(ctx context.Context, w io.Writer, work func(ctx context.Context) error) error {
	f, ok := w.(*os.File)
	if !ok {
		return work(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(readerCheck)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			// Without asking for any event poll tells only that there is nobody at the other end.
			fds := []unix.PollFd{{Fd: int32(f.Fd())}}
			if n, err := unix.Poll(fds, 0); err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
				cancel(errNoReader)
			}
		}
	}()
	err := work(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errNoReader) {
		err = cause
	}
	cancel(nil)
	<-ended
	return err
}
