// This file holds the signal that something has changed, for the commands that look again when it has.

package cli

import (
	"context"
	"time"

	"github.com/serfab/cadre-hostd/internal/api"
)

// follow returns a channel that gets nil as soon as the daemon listens and after one or more new events of ref (""
// for all), and an error once the stream has ended. stop ends the stream and waits for it.
func follow(ctx context.Context, c *api.Client, ref string, answerWithin time.Duration) (changes <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	// Capacity 1: an event while one waits to be noticed is noticed with it.
	ch := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := c.Changes(ctx, ref, answerWithin, func() {
			select {
			case ch <- nil:
			default:
			}
		})
		select {
		case ch <- err:
		case <-ctx.Done():
		}
	}()
	return ch, func() { cancel(); <-ended }
}
