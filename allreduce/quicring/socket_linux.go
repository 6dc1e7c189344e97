package quicring

import (
	"encoding/binary"
	"net"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	// batchLen is how many datagrams one system call reads at most.
	batchLen = 16
	// trainLen is the longest train of datagrams, in bytes: what IP can carry.
	trainLen = 1 << 16
	// controlLen holds what the kernel says about a train: its type of service,
	// its address, and the length of its datagrams.
	controlLen = 128
	// gatherTime is what a round trip may become longer by at each end, for
	// reads of more than one datagram.
	gatherTime = time.Millisecond
	// denseTime is between reads that follow closely: the time of a packet at
	// 4 Mbit/s, where there is little to save.
	denseTime = 3 * time.Millisecond
	// fullRead is worth its system call, in bytes: three trains of quic-go's.
	fullRead = 60_000
)

// socket reads trains of datagrams, which the kernel has left together (UDP
// GRO), and hands the datagrams out one by one. quic-go sends trains, so that
// both sides pay the price of the kernel's network once for a dozen packets.
type socket struct {
	*net.UDPConn
	reader *ipv4.PacketConn // reads IPv6 as well
	trains []ipv4.Message
	// next is the first train in trains[:n] not yet handed out whole, rest what
	// is left of it, in datagrams of length each.
	next, n int
	rest    []byte
	length  int
	// sparse is set when reads find little, though they follow closely.
	sparse bool
	last   time.Time
}

// newSocket returns conn as quic-go reads it best.
func newSocket(conn net.PacketConn) net.PacketConn {
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
	s := &socket{UDPConn: udp, reader: ipv4.NewPacketConn(udp), trains: make([]ipv4.Message, batchLen)}
	for i := range s.trains {
		s.trains[i].Buffers = [][]byte{make([]byte, trainLen)}
		s.trains[i].OOB = make([]byte, controlLen)
	}
	return s
}

// ReadBatch fills datagrams. It is what quic-go reads with, from one goroutine.
func (s *socket) ReadBatch(datagrams []ipv4.Message, flags int) (int, error) {
	if s.next == s.n {
		s.wait()
		n, err := s.reader.ReadBatch(s.trains, flags)
		if err != nil {
			return 0, err
		}
		s.n, s.next = n, 0
		s.couple()
		s.note()
	}
	filled := 0
	for filled < len(datagrams) && s.next < s.n {
		train, to := &s.trains[s.next], &datagrams[filled]
		length := min(s.length, len(s.rest))
		to.N = copy(to.Buffers[0], s.rest[:length])
		to.NN = copy(to.OOB, train.OOB[:train.NN])
		to.Addr, to.Flags = train.Addr, train.Flags
		filled++
		if s.rest = s.rest[length:]; len(s.rest) == 0 {
			s.next++
			s.couple()
		}
	}
	return filled, nil
}

// wait lets datagrams gather where they come one by one but closely, as from a
// link of some hundred Mbit/s. Each would wake this goroutine, the connection's
// and the stream's, and every second be acknowledged: that is where most of the
// processor time of such links goes.
func (s *socket) wait() {
	if s.sparse {
		time.Sleep(gatherTime)
	}
}

// note remembers what the last read has found.
func (s *socket) note() {
	bytes := 0
	for _, t := range s.trains[:s.n] {
		bytes += t.N
	}
	now := time.Now()
	s.sparse = bytes < fullRead && now.Sub(s.last) < denseTime
	s.last = now
}

// couple makes the next train the one to be handed out.
func (s *socket) couple() {
	if s.next == s.n {
		return
	}
	train := &s.trains[s.next]
	s.rest = train.Buffers[0][:train.N]
	s.length = max(1, datagramLen(train.OOB[:train.NN], train.N))
}

// datagramLen is the length of a train's datagrams but for the last, which may
// be shorter: all of it where the kernel says nothing else.
func datagramLen(control []byte, all int) int {
	for len(control) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO && len(data) >= 4 {
			return int(binary.NativeEndian.Uint32(data))
		}
		control = rest
	}
	return all
}
