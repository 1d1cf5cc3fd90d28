// This file tells the two meanings of SIGHUP apart: read the configuration again, and the terminal has gone.

package daemon

import (
	"os"
	"os/signal"
	"syscall"
)

// hangUps returns a function that tells whether the terminal which this process was started from has gone: a SIGHUP
// means that then, and else that the configuration is to be read again. It never has for a daemon without a terminal,
// or one that was started to outlive it (nohup). It is called before SIGHUP is listened to.
func hangUps() func() bool {
	if signal.Ignored(syscall.SIGHUP) || !hasTerminal() {
		return func() bool { return false }
	}
	return func() bool { return !hasTerminal() }
}

// hasTerminal reports whether this process's session has a terminal.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	return tty.Close() == nil
}
