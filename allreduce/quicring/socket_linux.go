package quicring

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	// batchLen is the most datagrams that one system call reads.
	batchLen = 16
	// trainLen is the longest train of datagrams, in bytes: the limit of IP.
	trainLen = 1 << 16
	// controlLen is room for the kernel's description of a train: its type of
	// service, its address, and the length of its datagrams.
	controlLen = 128
	// gatherTime is the time by which each end may lengthen a round trip, for
	// reads of more than one datagram.
	gatherTime = time.Millisecond
	// denseTime is the largest distance of reads that follow closely: the time of
	// a packet at 4 Mbit/s, below which there is little to save.
	denseTime = 3 * time.Millisecond
	// fullRead is the number of bytes that is worth a system call: three of
	// quic-go's trains.
	fullRead = 60_000
	// fastRead is more bytes than a link of 1 Gbit/s delivers while datagrams
	// accumulate. Waiting then costs more than it saves: it lengthens round trips,
	// for which congestion windows do not compensate. The fastReads after it do
	// not wait.
	fastRead, fastReads = 1 << 18, 32
	// maxSegments is the most datagrams that the kernel takes as one train (64
	// before Linux 6.9), maxPayload the most bytes of IPv4.
	maxSegments, maxPayload = 64, 65_507
)

// socket reads trains of datagrams, which the kernel has kept together (UDP
// GRO), and passes the datagrams on one by one. quic-go sends trains (GSO), so
// that both sides pay for the kernel's network once per dozen packets. Its
// trains have 20 kB at most. The socket joins consecutive trains, up to the
// kernel's limit.
type socket struct {
	*net.UDPConn
	// waitsForLast reports whether a reduction waits for its last few frames.
	waitsForLast func() bool
	reader       *ipv4.PacketConn // reads IPv6 as well
	trains       []ipv4.Message
	// next is the first train in trains[:n] that has not been passed on whole,
	// rest is the rest of it, in datagrams of length each.
	next, n    int
	rest       []byte
	length     int
	coalescing coalescing

	reached *atomic.Int64 // bytes in datagrams of data

	sending sync.Mutex
	out     batch
	filled  chan struct{} // tells flusher that out waits; nil when closed
	ended   chan struct{} // closed after flusher has returned
}

// batch is trains of one connection that are sent together.
type batch struct {
	to      *net.UDPAddr
	control []byte
	bytes   []byte
	err     error // of the last batch, not yet returned
}

// newSocket returns conn in the form that is fastest for quic-go, if the kernel
// supports it: datagrams cross the kernel's network in trains (UDP GSO and
// GRO), and reads wait for datagrams to accumulate. waitsForLast reports, at
// any time and on any goroutine, whether a reduction waits for its last few
// frames, so that reads must not wait. reached grows by the bytes that come in
// datagrams of data.
func newSocket(conn net.PacketConn, waitsForLast func() bool, reached *atomic.Int64) net.PacketConn {
	udp, ok := conn.(*net.UDPConn)
	if !ok {
		return conn
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return conn
	}
	var unsupported error
	err = raw.Control(func(fd uintptr) {
		unsupported = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	})
	if err != nil || unsupported != nil {
		return conn // before Linux 5.0
	}
	s := &socket{
		UDPConn: udp, waitsForLast: waitsForLast, reached: reached,
		reader: ipv4.NewPacketConn(udp), trains: make([]ipv4.Message, batchLen),
		filled: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	for i := range s.trains {
		s.trains[i].Buffers = [][]byte{make([]byte, trainLen)}
		s.trains[i].OOB = make([]byte, controlLen)
	}
	go s.flusher(s.filled)
	return s
}

// WriteMsgUDP sends datagrams. quic-go calls it, from a goroutine for each
// connection. The error may be that of earlier datagrams. If a connection has
// nothing more to write, it takes its failed datagrams for lost.
func (s *socket) WriteMsgUDP(b, control []byte, to *net.UDPAddr) (n, controlLen int, err error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	o := &s.out
	length := segmentLen(control)
	follows := o.to == to && len(o.bytes) > 0 && bytes.Equal(control, o.control) &&
		len(o.bytes)+len(b) <= min(maxPayload, maxSegments*length)
	if o.to == to {
		if !follows {
			s.flush() // a connection's datagrams keep their order
		}
		if err, o.err = o.err, nil; err != nil {
			return 0, 0, err
		}
	}
	last := length == 0 || len(b)%length != 0 // nothing may follow a shorter one
	switch {
	case !follows && (last || s.filled == nil):
		return s.UDPConn.WriteMsgUDP(b, control, to)
	case !follows:
		s.flush()
		o.to, o.err = to, nil
		o.control = append(o.control[:0], control...)
		select {
		case s.filled <- struct{}{}:
		default:
		}
	}
	o.bytes = append(o.bytes, b...)
	if last {
		s.flush()
	}
	return len(b), len(control), nil
}

// flush sends the batch, if there is one.
func (s *socket) flush() {
	if o := &s.out; len(o.bytes) > 0 {
		_, _, o.err = s.UDPConn.WriteMsgUDP(o.bytes, o.control, o.to)
		o.bytes = o.bytes[:0]
	}
}

// flusher sends batches to which nothing was added by the time it runs. The
// writer has woken it, so it runs when the writer has nothing left to write.
func (s *socket) flusher(filled <-chan struct{}) {
	defer close(s.ended)
	for range filled {
		s.sending.Lock()
		s.flush()
		s.sending.Unlock()
	}
}

// Close closes the socket, once flusher has sent what waits.
func (s *socket) Close() error {
	s.sending.Lock()
	if s.filled != nil {
		close(s.filled)
		s.filled = nil
	}
	s.sending.Unlock()
	<-s.ended
	return s.UDPConn.Close()
}

// ReadBatch fills datagrams. quic-go calls it, from one goroutine.
func (s *socket) ReadBatch(datagrams []ipv4.Message, flags int) (int, error) {
	if s.next == s.n {
		if s.coalescing.worthwhile() && !s.waitsForLast() {
			time.Sleep(gatherTime)
		}
		n, err := s.reader.ReadBatch(s.trains, flags)
		if err != nil {
			return 0, err
		}
		s.n, s.next = n, 0
		s.nextTrain()
		read := 0
		for _, t := range s.trains[:n] {
			read += t.N
		}
		s.coalescing.found(read, n == len(s.trains), time.Now())
	}
	filled := 0
	for filled < len(datagrams) && s.next < s.n {
		train, to := &s.trains[s.next], &datagrams[filled]
		length := min(s.length, len(s.rest))
		if length >= leastData {
			s.reached.Add(int64(length))
		}
		to.N = copy(to.Buffers[0], s.rest[:length])
		to.NN = copy(to.OOB, train.OOB[:train.NN])
		to.Addr, to.Flags = train.Addr, train.Flags
		filled++
		if s.rest = s.rest[length:]; len(s.rest) == 0 {
			s.next++
			s.nextTrain()
		}
	}
	return filled, nil
}

// leastData is the least size in bytes of a datagram with data, rather than an
// acknowledgement or a probe.
const leastData = 512

// coalescing decides when reads wait for datagrams to accumulate: when they
// come one by one but closely, as from a link of some hundred Mbit/s. Otherwise
// each would wake the reader, the connection's goroutine and the stream's, and
// every second one would be acknowledged. Most of the processor time of such
// links goes there.
type coalescing struct {
	sparse bool // reads find little, though they follow closely
	fast   int  // reads that must not wait
	last   time.Time
}

// worthwhile reports whether to wait for gatherTime before the next read.
func (c *coalescing) worthwhile() bool { return c.sparse && c.fast == 0 }

// found records the number of bytes of a read, whether more may be left, and
// the time.
func (c *coalescing) found(bytes int, more bool, now time.Time) {
	switch {
	case bytes > fastRead:
		c.fast = fastReads
	case c.fast > 0:
		c.fast--
	}
	c.sparse = bytes < fullRead && !more && now.Sub(c.last) < denseTime
	c.last = now
}

// nextTrain makes the next train the current one.
func (s *socket) nextTrain() {
	if s.next == s.n {
		return
	}
	train := &s.trains[s.next]
	s.rest = train.Buffers[0][:train.N]
	s.length = max(1, datagramLen(train.OOB[:train.NN], train.N))
}

// datagramLen is the length of a train's datagrams, except for the last, which
// may be shorter. Without information from the kernel it is the whole train.
func datagramLen(control []byte, all int) int {
	if data := udpControl(control, unix.UDP_GRO); len(data) >= 4 {
		return int(binary.NativeEndian.Uint32(data))
	}
	return all
}

// segmentLen is the length of the datagrams of a train to be sent, except for
// the last; 0 if it is a single datagram.
func segmentLen(control []byte) int {
	if data := udpControl(control, unix.UDP_SEGMENT); len(data) >= 2 {
		return int(binary.NativeEndian.Uint16(data))
	}
	return 0
}

// udpControl returns the data of UDP's control message of a type, or nil.
func udpControl(control []byte, of int32) []byte {
	for len(control) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == of {
			return data
		}
		control = rest
	}
	return nil
}
