// This file tests the queue: one worker a key, no trigger lost, the moments of later keys, the end.

package supervisor

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// collector takes keys and notes when.
type collector struct {
	q     *Queue
	start time.Time

	mu  sync.Mutex
	got []string // guarded by mu
}

// collect takes every key until the queue closes; call it as a goroutine.
func (c *collector) collect() {
	for {
		id, ok := c.q.Get()
		if !ok {
			return
		}
		c.mu.Lock()
		c.got = append(c.got, fmt.Sprintf("%s %s", id, time.Since(c.start)))
		c.mu.Unlock()
		c.q.Done(id)
	}
}

func collecting() *collector {
	c := &collector{q: NewQueue(), start: time.Now()}
	go c.collect()
	return c
}

func (c *collector) want(t *testing.T, keys ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.got, keys) {
		t.Errorf("got %q, want %q", c.got, keys)
	}
}

func TestQueueHandsOutInOrderEachKeyOnce(t *testing.T) {
	q := NewQueue()
	for _, id := range []donation.ID{"a", "b", "a", "c", "b"} {
		q.Add(id)
	}
	for _, id := range []donation.ID{"a", "b", "c"} {
		got, ok := q.Get()
		if !ok || got != id {
			t.Fatalf("got %q, %t; want %q", got, ok, id)
		}
		q.Done(id)
	}
	if dirty, later := q.Depth(); dirty != 0 || later != 0 {
		t.Errorf("left are %d and %d", dirty, later)
	}
}

func TestS20_OneWorkerAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		q.Add("a")
		first, _ := q.Get()
		var second donation.ID
		go func() { second, _ = q.Get() }()
		for range 100 {
			q.Add("a") // dirty while busy
		}
		synctest.Wait()
		want(t, "what a second worker got", second, "")
		if dirty, _ := q.Depth(); dirty != 1 {
			t.Errorf("%d keys are dirty, want 1", dirty)
		}
		q.Done(first)
		synctest.Wait()
		want(t, "what a second worker got once the first was done", second, "a")
		q.Done(second)
		if dirty, _ := q.Depth(); dirty != 0 {
			t.Errorf("%d keys are dirty, want none: a hundred triggers are one look", dirty)
		}
	})
}

func TestQueueKeysDontWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		q.Add("slow")
		slow, _ := q.Get()
		c := &collector{q: q, start: time.Now()}
		go c.collect()
		q.Add(slow)
		q.Add("a")
		q.Add("b")
		c.want(t, "a 0s", "b 0s")
		q.Done(slow)
		c.want(t, "a 0s", "b 0s", "slow 0s")
		q.Close()
	})
}

func TestS09_LaterKeysComeAtTheirMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collecting()
		in := func(id donation.ID, d time.Duration) { c.q.AddAt(id, c.start.Add(d)) }
		in("c", 30*time.Second)
		in("a", 10*time.Second)
		in("b", 20*time.Second)
		in("past", -time.Second)
		c.want(t, "past 0s")
		time.Sleep(20 * time.Second)
		c.want(t, "past 0s", "a 10s", "b 20s")
		in("d", 25*time.Second) // before the timer that is set
		time.Sleep(time.Hour)
		c.want(t, "past 0s", "a 10s", "b 20s", "d 25s", "c 30s")
		c.q.Close()
	})
}

func TestQueueTheEarliestMomentWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collecting()
		for _, d := range []time.Duration{30, 10, 20} {
			c.q.AddAt("a", c.start.Add(d*time.Second))
		}
		if _, later := c.q.Depth(); later != 1 {
			t.Errorf("%d keys are for later, want 1", later)
		}
		time.Sleep(time.Hour)
		c.want(t, "a 10s")
		c.q.Close()
	})
}

func TestQueueAMomentDuringTheWorkIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		q.Add("a")
		a, _ := q.Get()
		q.AddAt("a", time.Now().Add(time.Second))
		time.Sleep(time.Minute)
		if dirty, later := q.Depth(); dirty != 1 || later != 0 {
			t.Errorf("%d dirty and %d later, want it dirty behind its worker", dirty, later)
		}
		q.Done(a)
		if again, ok := q.Get(); !ok || again != "a" {
			t.Errorf("got %q, %t", again, ok)
		}
	})
}

func TestS23_CloseEndsEveryWaitAndKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		ended := make(chan bool, 3)
		for range cap(ended) {
			go func() { _, ok := q.Get(); ended <- ok }()
		}
		q.AddAt("later", time.Now().Add(time.Minute))
		synctest.Wait()
		q.Close()
		for range cap(ended) {
			want(t, "got a key", <-ended, false)
		}
		q.Add("a")
		q.AddAt("b", time.Now().Add(time.Second))
		q.Done("c")
		time.Sleep(time.Hour)
		if dirty, _ := q.Depth(); dirty != 0 {
			t.Errorf("%d keys are dirty after the end", dirty)
		}
		_, ok := q.Get()
		want(t, "got a key after the end", ok, false)
	})
}

func TestQueueCloseLeavesWhatIsDirtyUndone(t *testing.T) {
	q := NewQueue()
	q.Add("a")
	a, _ := q.Get()
	q.Add("a")
	q.Add("b")
	q.Close()
	q.Done(a)
	_, ok := q.Get()
	want(t, "got a key", ok, false)
}
