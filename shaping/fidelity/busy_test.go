package fidelity_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/shaping"
	"testbed/shaping/fidelity"
)

// TestBusyLinkSeesTheRateAndNothingElse feeds a queue at random and serves it
// at a share of its rate: only the time in which it was surely busy counts, and
// the share comes out.
func TestBusyLinkSeesTheRateAndNothingElse(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		const rate, tick = shaping.Rate(80e6), 5 * time.Millisecond // 50 kB a tick
		share := rapid.Float64Range(0.2, 1).Draw(t, "share")
		perTick := uint64(share * float64(rate) / 8 * tick.Seconds())
		var b fidelity.BusyLink
		var sent, waiting uint64
		busyTicks := time.Duration(0)
		was := uint64(0)
		for k := range 200 {
			b.Read(fidelity.Reading{At: time.Duration(k) * tick, Rate: rate, Bytes: sent, Waiting: waiting})
			if k > 0 && was >= 50e3 {
				busyTicks += tick
			}
			was = waiting
			waiting += uint64(rapid.IntRange(0, 120_000).Draw(t, "arrivals"))
			served := min(waiting, perTick)
			sent, waiting = sent+served, waiting-served
		}
		busy, got := b.Take()
		if busy != busyTicks || busy > 0 && math.Abs(got-share) > 0.001 {
			t.Fatalf("busy for %v at %v of the rate, want %v at %v", busy, got, busyTicks, share)
		}
		if busy, share := b.Take(); busy != 0 || share != 1 {
			t.Fatalf("taken twice: %v, %v", busy, share)
		}
	})
}

func TestBusyLinkKeepsGapsAndChangesApart(t *testing.T) {
	at := func(k int, rate shaping.Rate, bytes uint64) fidelity.Reading {
		return fidelity.Reading{At: time.Duration(k) * time.Millisecond, Rate: rate, Bytes: bytes, Waiting: 1 << 20}
	}
	var b fidelity.BusyLink
	b.Read(at(0, 8e6, 0))
	b.Read(at(1, 8e6, 1000)) // counts: 1 kB in 1 ms at 8 Mbit/s
	b.Read(at(2, 4e6, 1700)) // the rate has changed
	b.Skip()
	b.Read(at(9, 4e6, 9999)) // nothing is known of before
	b.Read(at(10, 4e6, 9999+500))
	if busy, share := b.Take(); busy != 2*time.Millisecond || share != 1 {
		t.Errorf("busy for %v at %v of the rate, want 2 ms at 1", busy, share)
	}
	var m fidelity.Measurements
	m.Busy("w0", time.Second, 0.99)
	m.Busy("w1", time.Second, 1.02)
	m.Busy("w2", time.Millisecond, 5) // too short to say anything
	if m.BusyLink != "w1" || m.BusyShare != 1.02 {
		t.Errorf("the worst link is %s with %v", m.BusyLink, m.BusyShare)
	}
}
