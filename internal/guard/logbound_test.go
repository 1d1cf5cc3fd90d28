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
		"half of the rest": {0, 100, 500, time.Second, 2 * time.Second},
		"flood":            {0, 1 << 30, 1 << 30, time.Second, 500 * time.Millisecond},
		"over, fast":       {0, 1 << 30, 1 << 20, time.Second, logCheckMin},
		"first look":       {0, 10, 1000, 0, logCheckMax},
	} {
		if got := nextLogCheck(c.before, c.size, c.limit, c.elapsed); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// scratchLog is a log that no process writes to, and the checker that bounds it.
func scratchLog(t *testing.T, limit int64) (*logBound, *nodeLogFile, string) {
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
	l, err := w.openLog(d.log, donation, limit, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.file.Close() })
	return newLogBound(w, zap.NewNop()), l, NodeLog(w.dir, donation)
}

func TestP11_CutKeepsTheNewestHalf(t *testing.T) {
	b, l, path := scratchLog(t, 100)
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
	b, l, path := scratchLog(t, 100)
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	l.file.WriteString(strings.Repeat("x", 1000))
	b.check(l, time.Now())
	if info, err := l.file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info.Size(), err)
	}
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
		var sum int64
		for _, path := range []string{log, log + ".1"} {
			if info, err := os.Stat(path); err == nil {
				sum += info.Size()
			}
		}
		return sum <= limit*3/2
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
