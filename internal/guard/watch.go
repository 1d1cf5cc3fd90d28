// This file hands changes to those who watch. Nobody can hold the guard up: one who doesn't keep up is dropped,
// connects again and gets the full list.

package guard

import (
	"bufio"
	"encoding/json"
	"net/http"
	"time"

	"go.uber.org/zap"
)

const (
	// watchBuffer is how many changes may wait for one watcher.
	watchBuffer = 4096
	// watchWrite is how long one batch may take to be taken by a watcher.
	watchWrite = 10 * time.Second
)

// hub is the set of watchers. It is guarded by table.mu.
type hub struct {
	subscribers map[*subscriber]struct{}
	dropped     int
}

// subscriber is one watcher. changes is closed when it is dropped.
type subscriber struct{ changes chan Process }

func (h *hub) add() *subscriber {
	s := &subscriber{changes: make(chan Process, watchBuffer)}
	h.subscribers[s] = struct{}{}
	return s
}

func (h *hub) drop(s *subscriber) {
	if _, ok := h.subscribers[s]; ok {
		delete(h.subscribers, s)
		close(s.changes)
	}
}

func (h *hub) publish(p Process) {
	for s := range h.subscribers {
		select {
		case s.changes <- p:
		default:
			h.dropped++
			h.drop(s)
		}
	}
}

// watch answers GET /v1/watch: the list, then changes until the watcher goes, is dropped, or the guard leaves.
func (g *Guard) watch(w http.ResponseWriter, r *http.Request) {
	list, sub := g.table.subscribe()
	defer g.table.unsubscribe(sub)
	out := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(out)
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := func() error {
		if err := rc.SetWriteDeadline(time.Now().Add(watchWrite)); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		return rc.Flush()
	}
	if enc.Encode(Message{Hello: &g.hello, List: list}) != nil || flush() != nil {
		return
	}
	for {
		select {
		case p, ok := <-sub.changes:
			if !ok {
				g.log.Warn("watcher dropped: it did not keep up", zap.Int("buffer", watchBuffer))
				return
			}
			if encodeBatch(enc, sub, p) != nil || flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-g.closing:
			// What has been published is delivered; nothing follows it.
			select {
			case p, ok := <-sub.changes:
				if ok && encodeBatch(enc, sub, p) == nil {
					_ = flush() // nobody is left to tell
				}
			default:
			}
			return
		}
	}
}

// encodeBatch writes p and all that waits behind it.
func encodeBatch(enc *json.Encoder, sub *subscriber, p Process) error {
	for {
		if err := enc.Encode(Message{Process: &p}); err != nil {
			return err
		}
		select {
		case next, ok := <-sub.changes:
			if !ok {
				return nil // the caller's next receive sees it
			}
			p = next
		default:
			return nil
		}
	}
}
