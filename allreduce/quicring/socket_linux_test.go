package quicring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
)

// segments is the control message of a train of datagrams of a length: struct
// cmsghdr and UDP_SEGMENT.
func segments(length int) []byte {
	control := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(length))
	return control
}

// listenSocket returns a socket that nobody hurries. Where the kernel has no UDP
// GRO (before Linux 5.0) the test is skipped.
func listenSocket(t *testing.T) *socket {
	t.Helper()
	conn := newSocket(listenUDP(t), func() bool { return false }, new(atomic.Int64))
	s, ok := conn.(*socket)
	if !ok {
		conn.Close()
		testenv.Need(t, errors.New("this kernel has no UDP GRO"))
	}
	return s
}

// TestSocketTakesTrainsApart: datagrams sent as one train arrive one by one,
// however many the reader asks for.
func TestSocketTakesTrainsApart(t *testing.T) {
	s := listenSocket(t)
	defer s.Close()
	sender := listenUDP(t)
	defer sender.Close()
	const length, last, count = 1200, 700, 11
	var sent [][]byte
	for train := range 3 {
		var b []byte
		for i := range count {
			d := bytes.Repeat([]byte{byte(train*count + i)}, length)
			if i == count-1 {
				d = d[:last]
			}
			sent = append(sent, d)
			b = append(b, d...)
		}
		if _, _, err := sender.WriteMsgUDP(b, segments(length), s.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Fatal(err)
		}
	}
	s.SetReadDeadline(time.Now().Add(time.Minute))
	datagrams := make([]ipv4.Message, 4)
	for len(sent) > 0 {
		for i := range datagrams {
			datagrams[i].Buffers, datagrams[i].OOB = [][]byte{make([]byte, 1452)}, make([]byte, 128)
		}
		n, err := s.ReadBatch(datagrams, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range datagrams[:n] {
			if got := d.Buffers[0][:d.N]; !bytes.Equal(got, sent[0]) {
				t.Fatalf("got %d bytes of %v, want %d of %v", len(got), got[:1], len(sent[0]), sent[0][:1])
			}
			if fmt.Sprint(d.Addr) != fmt.Sprint(sender.LocalAddr()) {
				t.Fatalf("from %v, want %v", d.Addr, sender.LocalAddr())
			}
			sent = sent[1:]
		}
	}
}

// TestSocketKeepsOrder: whatever is written, in trains of any length or singly,
// each peer gets it whole and in order, and what was written before Close too.
func TestSocketKeepsOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		s := listenSocket(t)
		peers := []*net.UDPConn{listenUDP(t), listenUDP(t)}
		want := make([][][]byte, len(peers))
		addrs := make([]*net.UDPAddr, len(peers))
		for i, p := range peers {
			addrs[i] = p.LocalAddr().(*net.UDPAddr)
		}
		for total, next := 0, byte(0); total < 40_000; {
			to, length := random.IntN(len(peers)), 900+300*random.IntN(2)
			var b, control []byte
			for n := random.IntN(20); n >= 0; n-- {
				d := bytes.Repeat([]byte{next}, length)
				next++
				if n == 0 && random.IntN(4) == 0 {
					d = d[:1+random.IntN(length)]
				}
				if want[to], b = append(want[to], d), append(b, d...); len(b) == len(d) && random.IntN(4) == 0 {
					break // a single datagram
				}
			}
			if len(b) > length || random.IntN(2) == 0 {
				control = segments(length)
			}
			if _, _, err := s.WriteMsgUDP(b, control, addrs[to]); err != nil {
				t.Fatal(err)
			}
			total += len(b)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for i, p := range peers {
			p.SetReadDeadline(time.Now().Add(time.Minute))
			got := make([]byte, 2000)
			for k, d := range want[i] {
				n, err := p.Read(got)
				if err != nil {
					t.Fatalf("datagram %d of %d: %v", k, len(want[i]), err)
				}
				if !bytes.Equal(got[:n], d) {
					t.Fatalf("datagram %d of %d: %d bytes of %d, want %d of %d", k, len(want[i]), n, got[0], len(d), d[0])
				}
			}
			p.Close()
		}
	}
}

// TestSocketCouplesTrains: what one goroutine writes at a stretch leaves together,
// as far as the kernel takes it.
func TestSocketCouplesTrains(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else another thread may be quicker
	s := listenSocket(t)
	defer s.Close()
	receiver := listenSocket(t)
	defer receiver.Close()
	to := receiver.LocalAddr().(*net.UDPAddr)
	const length, count, trains = 1452, 14, 4
	for range 200 { // the runtime may interrupt a stretch, and the machine
		for range trains {
			if _, _, err := s.WriteMsgUDP(make([]byte, count*length), segments(length), to); err != nil {
				t.Fatal(err)
			}
		}
		receiver.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := receiver.reader.ReadBatch(receiver.trains[:1], 0)
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		first := receiver.trains[0].N
		for rest := trains*count*length - first; rest > 0; rest -= receiver.trains[0].N {
			if _, err := receiver.reader.ReadBatch(receiver.trains[:1], 0); err != nil {
				t.Fatal(err)
			}
		}
		if first == (trains-1)*count*length {
			return
		}
	}
	t.Error("four trains written at a stretch never left as three and one")
}

// TestCoalescing feeds reads of so many bytes, so long after each other, and
// looks at what is decided before the next one.
func TestCoalescing(t *testing.T) {
	const slow, fast = 12_000, 1 << 20
	for _, c := range []struct {
		name  string
		reads []int
		every time.Duration
		more  bool // reads leave some
		want  bool
	}{
		{"a link of 100 Mbit/s", []int{slow, slow, slow}, time.Millisecond, false, true},
		{"the first read", []int{slow}, time.Millisecond, false, false},
		{"few datagrams", []int{100, 100, 100}, 10 * time.Millisecond, false, false},
		{"full reads", []int{80_000, 80_000}, time.Millisecond, false, false},
		{"as many datagrams as a read takes", []int{23_000, 23_000}, time.Millisecond, true, false},
		{"no limit to the rate", []int{slow, fast, slow, slow}, time.Millisecond, false, false},
		{"no longer without limit", slices.Concat([]int{fast}, slices.Repeat([]int{slow}, fastReads)), time.Millisecond, false, true},
	} {
		var p coalescing
		now := time.Unix(1000, 0)
		for _, n := range c.reads {
			now = now.Add(c.every)
			p.found(n, c.more, now)
		}
		if got := p.worthwhile(); got != c.want {
			t.Errorf("%s: gather: %v, want %v", c.name, got, c.want)
		}
	}
}
