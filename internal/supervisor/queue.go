// This file is the keyed queue: a donation is dirty or it isn't. One worker at a time has a key, a key that
// gets dirty meanwhile comes again, and a key can be asked for later.

package supervisor

import (
	"container/heap"
	"sync"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// Queue holds the dirty donations. Its zero value is not usable; make one with NewQueue.
type Queue struct {
	mu   sync.Mutex
	cond *sync.Cond // signalled when ready grows or the queue closes; uses mu

	// All below are guarded by mu.
	ready  []donation.ID            // in the order they got dirty
	dirty  map[donation.ID]struct{} // in ready, or to be put there when its worker is done
	busy   map[donation.ID]struct{} // with a worker now
	later  laterHeap
	byID   map[donation.ID]*laterKey // the one entry of each key in later
	timer  *time.Timer               // fires for later[0]; one timer for all keys
	closed bool
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	q := &Queue{
		dirty: make(map[donation.ID]struct{}),
		busy:  make(map[donation.ID]struct{}),
		byID:  make(map[donation.ID]*laterKey),
	}
	q.cond = sync.NewCond(&q.mu)
	return q
}

// Add makes the key dirty. Adding it again before a worker takes it changes nothing.
func (q *Queue) Add(id donation.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(id)
}

func (q *Queue) add(id donation.ID) {
	if _, ok := q.dirty[id]; ok || q.closed {
		return
	}
	q.dirty[id] = struct{}{}
	if _, ok := q.busy[id]; !ok {
		q.ready = append(q.ready, id)
		q.cond.Signal()
	}
}

// AddAt makes the key dirty at t. A key has one such moment: the earliest asked for.
func (q *Queue) AddAt(id donation.ID, t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if k, ok := q.byID[id]; ok {
		if !t.Before(k.at) {
			return
		}
		k.at = t
		heap.Fix(&q.later, k.index)
	} else {
		k := &laterKey{id: id, at: t}
		q.byID[id] = k
		heap.Push(&q.later, k)
	}
	q.schedule()
}

// Get waits for a dirty key and hands it to the caller, who must call Done; ok is false once the queue is closed.
func (q *Queue) Get() (id donation.ID, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) == 0 && !q.closed {
		q.cond.Wait()
	}
	if q.closed {
		return "", false
	}
	id = q.ready[0]
	q.ready = q.ready[1:]
	delete(q.dirty, id)
	q.busy[id] = struct{}{}
	return id, true
}

// Done gives the key back; if it got dirty meanwhile it is ready again.
func (q *Queue) Done(id donation.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, id)
	if _, ok := q.dirty[id]; ok && !q.closed {
		q.ready = append(q.ready, id)
		q.cond.Signal()
	}
}

// Depth returns how many keys are dirty and how many wait for their moment.
func (q *Queue) Depth() (dirty, later int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.dirty), len(q.later)
}

// Close ends every Get; what is still dirty stays undone, for the next start to find.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.cond.Broadcast()
}

// schedule sets the timer for the earliest key; mu is held.
func (q *Queue) schedule() {
	if len(q.later) == 0 {
		return
	}
	d := max(0, time.Until(q.later[0].at))
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.fire)
		return
	}
	q.timer.Reset(d)
}

// fire moves the keys whose moment has come.
func (q *Queue) fire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for len(q.later) > 0 && !q.later[0].at.After(now) {
		k := heap.Pop(&q.later).(*laterKey)
		delete(q.byID, k.id)
		q.add(k.id)
	}
	if !q.closed {
		q.schedule()
	}
}

type laterKey struct {
	id    donation.ID
	at    time.Time
	index int
}

// laterHeap orders keys by their moment; it implements heap.Interface.
type laterHeap []*laterKey

func (h laterHeap) Len() int           { return len(h) }
func (h laterHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h laterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *laterHeap) Push(x any) {
	k := x.(*laterKey)
	k.index = len(*h)
	*h = append(*h, k)
}

func (h *laterHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return k
}
