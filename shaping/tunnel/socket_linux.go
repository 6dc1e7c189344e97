package tunnel

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/shaping/packetring"
)

const (
	// batch is the most messages that one system call reads or sends.
	batch = 16
	// maxTrain is the longest message in bytes, and maxSegments the most datagrams
	// that the kernel takes as one (64 before Linux 6.9).
	maxTrain, maxSegments = 64000, 64
	// bufferSize is the size of the socket's buffers, if the kernel allows it: 50
	// ms of 1 Gbit/s.
	bufferSize  = 8 << 20
	controlSize = 128
)

// Tunnel is an end of the tunnel with its socket, for one goroutine. It does
// not block: FD is readable when there is something to Receive.
type Tunnel struct {
	*ends
	fd  int
	gso bool
	in  messages
	out messages
	// filled is the number of messages of out that wait to be sent. All but the
	// last are complete.
	filled int
	trains [batch]train
	addrs  []unix.RawSockaddrInet4 // of the hosts
	// Unsent counts datagrams that the kernel refused.
	Unsent  uint64
	emptied time.Duration // when the socket was last found empty
}

// train is a message of datagrams of one size. Only the last may be shorter.
type train struct {
	host, size, count, bytes int
	ended                    bool
}

// messages are the arguments of recvmmsg and sendmmsg.
type messages struct {
	headers [batch]mmsghdr
	iov     [batch]unix.Iovec
	names   [batch]unix.RawSockaddrInet4
	control [batch][controlSize]byte
	buffers [batch][1 << 16]byte
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

// Listen opens a socket for a tunnel on the host's own network, at any port of
// the address, or of all addresses if it is empty. The process that calls Open
// inherits the socket.
func Listen(address string) (file *os.File, port uint16, err error) {
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, 0, fmt.Errorf("opening a socket for the tunnel: %w", err)
	}
	defer conn.Close()
	udp := conn.(*net.UDPConn)
	if file, err = udp.File(); err != nil {
		return nil, 0, fmt.Errorf("opening a socket for the tunnel: %w", err)
	}
	return file, udp.LocalAddr().(*net.UDPAddr).AddrPort().Port(), nil
}

// Open returns the end of a tunnel at a socket of Listen, which then belongs to
// the tunnel.
func Open(fd int, c Config) (*Tunnel, error) {
	t := &Tunnel{fd: fd}
	var err error
	if t.ends, err = newEnds(c, t); err != nil {
		return nil, fmt.Errorf("opening the tunnel: %w", err)
	}
	for _, h := range c.Hosts {
		if !h.Addr.Addr().Unmap().Is4() {
			return nil, fmt.Errorf("opening the tunnel: host %s has the address %v, which is not an IPv4 address; name hosts by IPv4 addresses", h.Name, h.Addr)
		}
		a := unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: h.Addr.Addr().Unmap().As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&a.Port))[:], h.Addr.Port())
		t.addrs = append(t.addrs, a)
	}
	if err := t.setUp(); err != nil {
		return nil, fmt.Errorf("opening the tunnel: setting up its socket: %w", err)
	}
	t.in.point()
	t.out.point()
	return t, nil
}

func (t *Tunnel) setUp() error {
	if err := unix.SetNonblock(t.fd, true); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	// A datagram that does not fit must not arrive in pieces: the opening tests
	// this.
	if err := unix.SetsockoptInt(t.fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	for _, o := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, o[0], bufferSize) != nil {
			_ = unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, o[1], bufferSize) // bounded by net.core.rmem_max
		}
	}
	_ = unix.SetsockoptInt(t.fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) // before Linux 5.0 datagrams come one by one
	_, err := unix.GetsockoptInt(t.fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
	t.gso = err == nil
	return nil
}

// point sets the messages' pointers to their buffers.
func (m *messages) point() {
	for k := range m.headers {
		h := &m.headers[k].header
		m.iov[k].Base = &m.buffers[k][0]
		m.iov[k].SetLen(len(m.buffers[k]))
		h.Iov = &m.iov[k]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&m.names[k]))
		h.Namelen = unix.SizeofSockaddrInet4
		h.Control = &m.control[k][0]
		h.SetControllen(controlSize)
	}
}

// FD is the descriptor of the socket, to be polled.
func (t *Tunnel) FD() int { return t.fd }

// Close closes the socket.
func (t *Tunnel) Close() error { return unix.Close(t.fd) }

// Next is the time at which Work has something to do even if nothing arrives.
func (t *Tunnel) Next() (at time.Duration, ok bool) { return t.nextAsk() }

// Receive receives up to a batch of messages, at time now, and calls handle
// with each frame. A frame's data is valid until handle returns. wall is the
// time now by the kernel's stamps. some reports that there were messages, more
// that there may be others.
func (t *Tunnel) Receive(now time.Duration, wall time.Time, handle func(Frame)) (some, more bool, err error) {
	for k := range t.in.headers {
		t.in.headers[k].header.SetControllen(controlSize)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(t.fd), uintptr(unsafe.Pointer(&t.in.headers[0])), batch, unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
	case unix.EAGAIN:
		t.emptied = now
		return false, false, nil
	case unix.EINTR, unix.ECONNREFUSED, unix.EMSGSIZE:
		return false, false, nil // the errors are of sent datagrams, which are lost
	default:
		if underlay(errno) {
			return false, false, nil // likewise
		}
		return false, false, os.NewSyscallError("recvmmsg", errno)
	}
	for k := range int(n) {
		m := &t.in.headers[k]
		data := t.in.buffers[k][:m.length]
		size, stamp := readControl(t.in.control[k][:m.header.Controllen])
		at := now
		if !stamp.IsZero() {
			at -= packetring.Waited(wall, stamp, now-t.emptied)
		}
		if size == 0 {
			size = max(len(data), 1)
		}
		for len(data) > 0 {
			d := data[:min(size, len(data))]
			data = data[len(d):]
			if f, ok := t.take(d, at, now); ok {
				handle(f)
			}
		}
	}
	if n < batch {
		t.emptied = now
	}
	return n > 0, n == batch, nil
}

// readControl reads the size of the datagrams in a message, zero if there is
// only one, and the time at which the kernel received it.
func readControl(control []byte) (size int, stamp time.Time) {
	const head = unix.SizeofCmsghdr
	for len(control) >= head {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		if h.Len < head || int(h.Len) > len(control) {
			return size, stamp
		}
		data := control[head:h.Len]
		switch {
		case h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			size = int(binary.NativeEndian.Uint32(data))
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPNS && len(data) >= 16:
			stamp = time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:])))
		}
		control = control[min(unix.CmsgSpace(len(data)), len(control)):]
	}
	return size, stamp
}

// Work asks for clocks when it is time, and sends all that waits.
func (t *Tunnel) Work(now time.Duration) error {
	t.ask(now)
	return t.flush()
}

// reserve returns room for a datagram to a host, at the end of a train to it if
// one is open.
func (t *Tunnel) reserve(host, size int) []byte {
	for k := t.filled - 1; k >= 0; k-- {
		o := &t.trains[k]
		if o.host != host {
			continue
		}
		if t.gso && !o.ended && size <= o.size && o.count < maxSegments && o.bytes+size <= maxTrain {
			return t.add(k, size)
		}
		break // a host's datagrams keep their order
	}
	if t.filled == batch {
		_ = t.flush() // failures are counted
	}
	t.trains[t.filled] = train{host: host, size: size}
	t.filled++
	return t.add(t.filled-1, size)
}

func (t *Tunnel) add(k, size int) []byte {
	o := &t.trains[k]
	d := t.out.buffers[k][o.bytes : o.bytes+size : o.bytes+size]
	o.bytes += size
	o.count++
	o.ended = size < o.size
	return d
}

// flush sends all trains.
func (t *Tunnel) flush() error {
	for k := range t.filled {
		o, h := &t.trains[k], &t.out.headers[k].header
		t.out.names[k] = t.addrs[o.host]
		t.out.iov[k].SetLen(o.bytes)
		h.SetControllen(0)
		if o.count > 1 {
			c := (*unix.Cmsghdr)(unsafe.Pointer(&t.out.control[k][0]))
			c.Level, c.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
			c.SetLen(unix.CmsgLen(2))
			binary.NativeEndian.PutUint16(t.out.control[k][unix.CmsgLen(0):], uint16(o.size))
			h.SetControllen(unix.CmsgSpace(2))
		}
	}
	first, filled := 0, t.filled
	t.filled = 0
	for first < filled {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(t.fd), uintptr(unsafe.Pointer(&t.out.headers[first])), uintptr(filled-first), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == 0:
			first += int(n)
		case errno == unix.EINTR, errno == unix.ECONNREFUSED: // of earlier datagrams
		case (errno == unix.EIO || errno == unix.EINVAL) && t.trains[first].count > 1:
			// If the device computes no checksums, the train is sent one by one.
			if t.single(first) > 0 {
				t.gso = false
			}
			first++
		case errno == unix.EMSGSIZE: // an ask that tests exactly this
			first++
		case errno == unix.EAGAIN, underlay(errno):
			t.Unsent += uint64(t.trains[first].count)
			first++
		default:
			return os.NewSyscallError("sendmmsg", errno)
		}
	}
	return nil
}

// underlay reports whether an error comes from the network between the hosts
// and may pass: an address or a device that is gone for a moment, a firewall, a
// route, memory. Datagrams sent meanwhile are lost. The leases of the hosts
// limit how long that may go on.
func underlay(errno syscall.Errno) bool {
	switch errno {
	case unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENETDOWN, unix.ENETRESET, unix.ENONET,
		unix.EPERM, unix.EACCES, unix.EINVAL, unix.EIO, unix.EADDRNOTAVAIL, unix.ENODEV, unix.ENXIO, unix.ENOBUFS, unix.ENOMEM:
		return true
	}
	return false
}

// single sends the datagrams of a train one by one, and returns how many the
// kernel accepted.
func (t *Tunnel) single(k int) (sent int) {
	o := &t.trains[k]
	for from := 0; from < o.bytes; from += o.size {
		d := t.out.buffers[k][from:min(from+o.size, o.bytes)]
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(t.fd), uintptr(unsafe.Pointer(&d[0])), uintptr(len(d)), unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(&t.out.names[k])), unix.SizeofSockaddrInet4)
		if errno != 0 {
			t.Unsent++
			continue
		}
		sent++
	}
	return sent
}
