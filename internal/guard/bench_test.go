// This file measures what the guard costs: a start from request to answer, and an end from exit to message.

package guard

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkStart measures a start from the request to the answer.
func BenchmarkStart(b *testing.B) {
	for _, tracking := range []string{"", TrackingSession} {
		b.Run("guard/"+tracking, func(b *testing.B) {
			r := newRig(b, func(r *rig) { r.cfg.Tracking = tracking })
			req := r.request("/bin/true")
			var sum time.Duration
			for b.Loop() {
				req = again(req)
				begun := time.Now()
				r.start(req)
				sum += time.Since(begun)
				r.exit(req.Spawn)
				r.ack(req.Spawn)
			}
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs/start")
		})
	}
}

// BenchmarkExitToMessage measures from the SIGKILL of a node to the message that its tree is gone.
func BenchmarkExitToMessage(b *testing.B) {
	for _, tracking := range []string{"", TrackingSession} {
		b.Run("guard/"+tracking, func(b *testing.B) {
			r := newRig(b, func(r *rig) { r.cfg.Tracking = tracking })
			req := r.request("/bin/sleep", "1000")
			var sum time.Duration
			for b.Loop() {
				req = again(req)
				p := r.start(req)
				begun := time.Now()
				if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
					b.Fatal(err)
				}
				r.exit(req.Spawn)
				sum += time.Since(begun)
				r.ack(req.Spawn)
			}
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs/exit")
		})
	}
}

// BenchmarkHello is the floor of a call: HTTP over the socket and nothing done.
func BenchmarkHello(b *testing.B) {
	r := newRig(b)
	for b.Loop() {
		if _, err := r.client.Hello(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
