// This file tests a guard whose disk is full, on a file system of its own.

package guard

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestF44_FullDiskLosesNoExitAndPasses(t *testing.T) {
	r := newRig(t, func(r *rig) {
		if err := os.Mkdir(r.cfg.RuntimeDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", r.cfg.RuntimeDir, "tmpfs", 0, "size=256k,mode=700"); err != nil {
			t.Skipf("no file system can be mounted here: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(r.cfg.RuntimeDir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	})
	running := r.sh("mkfifo fifo; echo up; read x < fifo; exit 6")
	r.start(running)
	r.output(running, "up")
	filler := filepath.Join(r.cfg.RuntimeDir, "filler")
	for size := 256 << 10; size > 0; size /= 2 {
		f, err := os.OpenFile(filler, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write(make([]byte, size)) // until nothing more fits
		f.Close()
	}
	req := r.sh("exit 0")
	if e := r.refused(req); e.Code != CodeTransient {
		t.Errorf("%+v", e)
	}
	writeFifo(t, r.work(running, "fifo"))
	if e := r.exit(running.Spawn); e.Code != 6 || !e.Known {
		t.Errorf("exit %+v", e)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	r.start(req)
	r.exit(req.Spawn)
}
