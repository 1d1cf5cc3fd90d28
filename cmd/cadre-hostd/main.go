// Command cadre-hostd keeps lent nodes running: the daemon, its guard, its reference node and the client
// of the daemon are one binary. Everything is in internal/cli; main only turns its result into an exit code.
package main

import (
	"os"

	"github.com/serfab/cadre-hostd/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
