package tunnel

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

// wires collects what is sent.
type wires struct{ sent [][]byte }

func (w *wires) reserve(_, size int) []byte {
	w.sent = append(w.sent, make([]byte, size))
	return w.sent[len(w.sent)-1]
}

func (w *wires) take() (sent [][]byte) {
	sent, w.sent = w.sent, nil
	return sent
}

// newPair returns two hosts, of which the second one's clock is ahead.
func newPair(t testing.TB) (a, b *ends, fromA, fromB *wires) {
	t.Helper()
	secret := bytes.Repeat([]byte{7}, SecretSize)
	fromA, fromB = &wires{}, &wires{}
	hosts := []Host{{Name: "a"}, {Name: "b"}}
	var err error
	if a, err = newEnds(Config{Self: 0, Hosts: hosts, Secret: secret}, fromA); err != nil {
		t.Fatal(err)
	}
	if b, err = newEnds(Config{Self: 1, Hosts: hosts, Secret: secret}, fromB); err != nil {
		t.Fatal(err)
	}
	return a, b, fromA, fromB
}

// TestFramesCrossOnceAndUnchanged whatever the underlay does with datagrams: it
// loses, doubles and reorders them.
func TestFramesCrossOnceAndUnchanged(t *testing.T) {
	rapidtest.Check(t, func(rt *rapid.T) {
		a, b, out, _ := newPair(t)
		a.peers[1].fits = rapid.Bool().Draw(rt, "whole frames fit")
		b.peers[0].clock.Offset = 5 * time.Second
		sizes := rapid.SliceOfN(rapid.IntRange(0, MaxFrame), 1, 40).Draw(rt, "sizes")
		chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		lossless := rapid.Bool().Draw(rt, "lossless")
		var sent [][]byte
		for k, n := range sizes {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(chance.Uint32())
			}
			sent = append(sent, data)
			a.Send(1, &Frame{Due: time.Duration(k), From: k, To: k + 1, Data: data})
		}
		datagrams := out.take()
		count := uint64(len(datagrams))
		var arriving [][]byte
		for _, d := range datagrams {
			copies := 1
			if !lossless {
				copies = chance.IntN(3)
			}
			for range copies {
				arriving = append(arriving, slices.Clone(d))
			}
		}
		chance.Shuffle(len(arriving), func(i, j int) { arriving[i], arriving[j] = arriving[j], arriving[i] })
		came := map[int]bool{}
		for _, d := range arriving {
			f, ok := b.take(d, 0, 0)
			if !ok {
				continue
			}
			if came[f.From] || f.To != f.From+1 || f.Due != 5*time.Second+time.Duration(f.From) || !bytes.Equal(f.Data, sent[f.From]) {
				rt.Fatalf("frame %d came twice or changed", f.From)
			}
			came[f.From] = true
		}
		s := b.Stats()[0]
		if lossless && (len(came) != len(sizes) || s.Lost != 0 || s.Replayed != 0) || s.Forged != 0 || s.Frames != uint64(len(came)) {
			rt.Fatalf("%d frames of %d came in %d datagrams: %+v", len(came), len(sizes), count, s)
		}
	})
}

// TestNothingForgedIsAccepted: a changed bit anywhere, the right datagram to
// another host, or back to its sender.
func TestNothingForgedIsAccepted(t *testing.T) {
	a, b, out, _ := newPair(t)
	for _, n := range []int{0, 60, MaxFrame} {
		a.Send(1, &Frame{Data: make([]byte, n)})
	}
	a.ask(0)
	for _, d := range out.take() {
		for bit := range 8 * len(d) {
			changed := slices.Clone(d)
			changed[bit/8] ^= 1 << (bit % 8)
			if _, ok := b.take(changed, 0, 0); ok {
				t.Fatalf("accepted with bit %d changed", bit)
			}
		}
		if _, ok := a.take(slices.Clone(d), 0, 0); ok {
			t.Fatal("accepted by its sender")
		}
	}
	if s := b.Stats()[0]; s.Frames != 0 || s.Forged == 0 {
		t.Errorf("%+v", s)
	}
}

// TestTheClockIsWithinItsBound for any two ways that take any time: the error is
// at most half of the shortest round trip, plus what the clocks ran apart.
func TestTheClockIsWithinItsBound(t *testing.T) {
	rapidtest.Check(t, func(rt *rapid.T) {
		ahead := time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(rt, "ahead")) // of the other one
		var c Clock
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(rt, "asks") {
			there := time.Duration(rapid.Int64Range(0, 2e6).Draw(rt, "there"))
			back := time.Duration(rapid.Int64Range(0, 2e6).Draw(rt, "back"))
			inside := time.Duration(rapid.Int64Range(0, 1e6).Draw(rt, "inside"))
			heard := now + there + ahead
			end := now + there + inside + back
			if rtt := c.take(now, heard, heard+inside, end); rtt != there+back {
				rt.Fatalf("a round trip of %v counts as %v", there+back, rtt)
			}
			if off := (c.Offset + ahead).Abs(); off > c.Bound+1 {
				rt.Fatalf("the clock is off by %v, and its bound is %v", off, c.Bound)
			}
			now = end + askGap
		}
	})
}

// TestTheWindowKnowsWhatHasCome compares it with a set.
func TestTheWindowKnowsWhatHasCome(t *testing.T) {
	rapidtest.Check(t, func(rt *rapid.T) {
		var w window
		seen := map[uint64]bool{}
		newest := uint64(0)
		for _, step := range rapid.SliceOfN(rapid.Int64Range(-5000, 5000), 1, 300).Draw(rt, "steps") {
			n := uint64(max(int64(newest)+step, 0))
			isNew := w.isNew(n)
			if isNew && seen[n] {
				rt.Fatalf("%d came twice", n)
			}
			if !isNew && !seen[n] && newest-n < windowBits-128 {
				rt.Fatalf("%d is new and refused, %d behind", n, newest-n)
			}
			if isNew {
				w.take(n)
				seen[n] = true
				newest = max(newest, n)
			}
		}
	})
}

func TestTheOpeningFindsTheWay(t *testing.T) {
	a, b, fromA, fromB := newPair(t)
	const ahead, mtu = 1000 * time.Second, 1472
	now := time.Duration(0)
	for k := range 2*openingAsks + 1 { // half of the asks do not fit
		if ok, who, _ := a.Opened(); k <= openingAsks && (ok || who != "b") {
			t.Fatalf("after %d asks opened %v, waiting for %q", k, ok, who)
		}
		if _, _, answered := a.Opened(); k == openingAsks && answered != now-2*openingGap+250*time.Microsecond {
			t.Errorf("at %v the last answer is of %v", now, answered) // the last ask does not fit
		}
		a.ask(now)
		for _, d := range fromA.take() {
			if len(d) <= mtu {
				b.take(d, now+ahead+100*time.Microsecond, now+ahead+150*time.Microsecond)
			}
		}
		for _, d := range fromB.take() {
			a.take(d, now+250*time.Microsecond, now+260*time.Microsecond)
		}
		now += openingGap
	}
	if ok, _, _ := a.Opened(); !ok || a.peers[1].fits || a.OneWay(1) != 100*time.Microsecond {
		t.Errorf("opened %v, whole frames fit %v, one way takes %v", ok, a.peers[1].fits, a.OneWay(1))
	}
	if s := a.Stats()[0]; s.Offset != -ahead || s.Bound != 100*time.Microsecond {
		t.Errorf("the clock is off by %v ± %v, not %v", s.Offset, s.Bound, -ahead)
	}
}

func FuzzTake(f *testing.F) {
	a, _, out, _ := newPair(f)
	a.Send(1, &Frame{Data: []byte("frame")})
	a.Send(1, &Frame{Data: make([]byte, MaxFrame)})
	a.ask(0)
	for _, d := range out.take() {
		f.Add(d, true)
		f.Add(d[headerSize:len(d)-tagSize], false)
	}
	f.Fuzz(func(t *testing.T, d []byte, raw bool) {
		a, b, out, _ := newPair(t)
		if raw { // nobody of the run has sent it
			if _, ok := b.take(slices.Clone(d), 0, 0); ok && b.peers[0].stats.Replayed+b.peers[0].stats.Forged > 0 {
				t.Fatal("accepted")
			}
			return
		}
		// A host of the run has: it may be refused, and must do no harm.
		for kind := byte(0); kind < 7; kind++ {
			slot := a.begin(1, kind, len(d))
			copy(slot[headerSize:], d)
			a.peers[1].finish(slot)
		}
		for _, s := range out.take() {
			b.take(s, 0, 0)
		}
	})
}
