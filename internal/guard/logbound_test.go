// This file tests the bound of the nodes' logs.

package guard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

func TestNextLogCheck(t *testing.T) {
	for name, c := range map[string]struct {
		before, size, limit int64
		elapsed, want       time.Duration
	}{
		"quiet":            {100, 100, 1000, time.Second, logCheckMax},
		"cut meanwhile":    {900, 10, 1000, time.Second, logCheckMax},
		"half of the rest": {0, 100, 500, 200 * time.Millisecond, 400 * time.Millisecond},
		"quiet at first":   {0, 0, 1000, 100 * time.Millisecond, 200 * time.Millisecond},
		"slow":             {0, 1, 1000, 300 * time.Millisecond, 600 * time.Millisecond},
		"flood":            {0, 1 << 30, 1 << 30, time.Second, 500 * time.Millisecond},
		"over, fast":       {0, 1 << 30, 1 << 20, time.Second, logCheckMin},
		"first look":       {0, 10, 1000, 0, logCheckMin},
	} {
		if got := nextLogCheck(c.before, c.size, c.limit, c.elapsed); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// scratchLog is a log that no process writes to, and the checker that bounds it; text is what a former spawn left.
func scratchLog(t *testing.T, limit int64, text string) (*logBound, *nodeLogFile, string) {
	t.Helper()
	dir := openDir(t)
	w, err := openWorkdirs(Config{NodesDir: filepath.Join(dir, "nodes"), PeerUID: os.Getuid()})
	if err != nil {
		t.Fatal(err)
	}
	donation := "don_" + randomID()
	d, err := w.prepare(donation, uint32(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	path := NodeLog(w.dir, donation)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := w.openLog(d.log, donation, limit, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.file.Close() })
	return newLogBound(w, zap.NewNop()), l, path
}

func TestP11_CutKeepsTheNewestHalf(t *testing.T) {
	b, l, path := scratchLog(t, 100, "")
	for range 20 {
		if _, err := l.file.WriteString("0123456789"); err != nil {
			t.Fatal(err)
		}
	}
	l.file.WriteString("newest")
	b.check(l, time.Now())
	if got, want := readString(path+".1"), strings.Repeat("0123456789", 5)[6:]+"newest"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
	l.file.WriteString("next") // an appending descriptor goes on at the beginning
	if got := readString(path); got != "next" {
		t.Errorf("log %q", got)
	}
}

func TestP11_DeletedLogIsBoundedToo(t *testing.T) {
	b, l, path := scratchLog(t, 100, "")
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	l.file.WriteString(strings.Repeat("x", 1000))
	b.check(l, time.Now())
	if info, err := l.file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info.Size(), err)
	}
}

func TestP11_LogsTakeTwiceTheLimitAtMost(t *testing.T) {
	const limit = 100
	for name, c := range map[string]struct{ left, kept, now int64 }{
		"nothing":            {0, 0, 0},
		"half":               {50, 0, 50},
		"over half":          {51, 51, 0},
		"full":               {100, 100, 0},
		"died before a look": {101, 50, 0},
		"died in a flood":    {5000, 50, 0},
	} {
		b, l, path := scratchLog(t, limit, strings.Repeat("x", int(c.left)))
		b.add(l)
		b.pass(time.Now()) // the checker's first, as soon as it is told
		if got, want := [2]int64{sizeOf(path + ".1"), sizeOf(path)}, [2]int64{c.kept, c.now}; got != want {
			t.Errorf("%s: put aside %d bytes and left %d, want %v", name, got[0], got[1], want)
		}
		// The new spawn fills its log up to the brim, which isn't cut yet.
		l.file.WriteString(strings.Repeat("y", int(limit-c.now)))
		b.check(l, time.Now())
		if sum := sizeOf(path+".1") + sizeOf(path); sum > 2*limit {
			t.Errorf("%s: the logs take %d bytes", name, sum)
		}
	}
}

// sizeOf is the file's size; one that isn't there has none.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func TestP11_RotatesAtSpawn(t *testing.T) {
	r := newRig(t)
	req := r.sh("head -c 600 /dev/zero | tr '\\0' x")
	req.LogMax = 1000
	r.start(req)
	r.exit(req.Spawn)
	req = again(req)
	req.Args = []string{"-c", "echo second"}
	r.start(req)
	r.exit(req.Spawn)
	log := NodeLog(r.cfg.NodesDir, req.Donation)
	if old, now := readString(log+".1"), readString(log); len(old) != 600 || now != "second\n" {
		t.Errorf("before %d bytes, now %q", len(old), now)
	}
}

func TestP11_FloodIsBoundedAndNeverBlocks(t *testing.T) {
	r := newRig(t)
	const limit = 1 << 20
	// Binary, without a line's end, as fast as it can; it says when it has written a hundred times its limit.
	req := r.sh("dd if=/dev/zero bs=65536 count=1600 2>/dev/null; : > written; exec sleep 1000")
	req.LogMax = limit
	p := r.start(req)
	eventually(t, "all is written", func() bool {
		_, err := os.Stat(r.work(req, "written"))
		return err == nil
	})
	log := NodeLog(r.cfg.NodesDir, req.Donation)
	eventually(t, "the log is within its bound", func() bool {
		return sizeOf(log) <= limit && sizeOf(log+".1") <= limit/2 // of a single spawn there is no more
	})
	if !alive(p.PID) {
		t.Error("the node has died of it")
	}
}

func TestF37_DeletedLogComesBackAtTheNextSpawn(t *testing.T) {
	r := newRig(t)
	req := r.sh("echo up; read x < /dev/null; sleep 1000")
	p := r.start(req)
	r.output(req, "up")
	if err := os.Remove(NodeLog(r.cfg.NodesDir, req.Donation)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.exit(req.Spawn)
	req = again(req)
	r.start(req)
	r.output(req, "up")
}
