package userlink

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/shaping"
)

const (
	slotSize  = 2048
	blockSize = 64 << 10
	// ringSlots is how many frames may wait for the router: 0.2 s of
	// 80,000 frames a second, which is 1 Gbit/s. A ring needs no privilege,
	// where a receive buffer of an ordinary user ends at 200 frames.
	ringSlots = 16384
)

// ring receives the frames of all interfaces of a namespace through memory
// shared with the kernel (packet_mmap, TPACKET_V2).
type ring struct {
	fd   int
	mem  []byte
	next int
}

// frame is one received frame; data begins with the virtio_net_hdr and is
// valid until the slot is released.
type frame struct {
	ifindex   int
	data      []byte
	length    int // of the whole Ethernet frame, also where data holds less
	sec, nsec uint32
}

func openRing() (r *ring, err error) {
	// Without a protocol nothing is received before all is set.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	r = &ring{fd: fd}
	defer func() {
		if err != nil {
			err = fmt.Errorf("setting up the packet ring: %w", err)
			r.close()
		}
	}()
	for _, o := range []struct{ name, value int }{
		{unix.PACKET_VERSION, unix.TPACKET_V2},
		{unix.PACKET_VNET_HDR, 1},
		{unix.PACKET_IGNORE_OUTGOING, 1},
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, o.name, o.value); err != nil {
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	size := ringSlots * slotSize
	req := unix.TpacketReq{Block_size: blockSize, Block_nr: uint32(size / blockSize), Frame_size: slotSize, Frame_nr: ringSlots}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if r.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL)}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	return r, nil
}

func (r *ring) header() *unix.Tpacket2Hdr {
	return (*unix.Tpacket2Hdr)(unsafe.Pointer(&r.mem[r.next*slotSize]))
}

// read returns the next frame if there is one; release gives its slot back.
func (r *ring) read() (f frame, ok bool) {
	h := r.header()
	if atomic.LoadUint32(&h.Status)&unix.TP_STATUS_USER == 0 {
		return frame{}, false
	}
	slot := r.mem[r.next*slotSize:][:slotSize]
	from := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&slot[(unix.SizeofTpacket2Hdr+15)&^15]))
	return frame{
		ifindex: int(from.Ifindex),
		data:    slot[int(h.Mac)-vnetHeader : int(h.Mac)+int(h.Snaplen)],
		length:  int(h.Len),
		sec:     h.Sec, nsec: h.Nsec,
	}, true
}

func (r *ring) release() {
	atomic.StoreUint32(&r.header().Status, unix.TP_STATUS_KERNEL)
	r.next = (r.next + 1) % ringSlots
}

// drops returns the frames that found the ring full since the last call.
func (r *ring) drops() uint64 {
	s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

func (r *ring) close() {
	if r.mem != nil {
		unix.Munmap(r.mem)
	}
	unix.Close(r.fd)
}

// sender sends frames through a pool of packet sockets. A frame counts
// against its socket until the receiver's HTB, if there is one, lets it go, and
// an ordinary user's send buffer ends at 200 frames: so there are as many
// sockets as hold the queues of all nodes.
type sender struct {
	fds  []int
	next int
	addr unix.RawSockaddrLinklayer
}

// frameMemory is what the kernel accounts for a full frame.
const frameMemory = 2304

const maxSockets, maxBuffer = 256, 1 << 28

// sendMemory is what the queues of all nodes take when they are full.
func sendMemory(plan *shaping.Plan, htb bool) int {
	need := 1 << 20
	if !htb {
		return need
	}
	for _, n := range plan.Nodes {
		need += n.QueueBytes(n.RateDown) / shaping.FrameSize * frameMemory
	}
	return need
}

func openSender(plan *shaping.Plan, htb bool) (*sender, error) {
	need := sendMemory(plan, htb)
	s := &sender{addr: unix.RawSockaddrLinklayer{Family: unix.AF_PACKET, Halen: 6}}
	for have := 0; have < need && len(s.fds) < maxSockets; {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("opening a packet socket to send: %w", err)
		}
		s.fds = append(s.fds, fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			s.close()
			return nil, fmt.Errorf("setting up a packet socket to send: %w", os.NewSyscallError("setsockopt", err))
		}
		got, err := growBuffer(fd, need-have)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("setting up a packet socket to send: %w", err)
		}
		have += got
	}
	return s, nil
}

// growBuffer asks for a send buffer of that many bytes and says what it got.
func growBuffer(fd, bytes int) (got int, err error) {
	want := min(bytes/2, maxBuffer) // the kernel doubles what it is given
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, want) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, want) // bounded by net.core.wmem_max
	}
	got, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	return got, os.NewSyscallError("getsockopt", err)
}

// reserve makes room for HTB's queues of another plan, in the sockets that
// there are: further ones would have to be opened in the router's namespace.
func (s *sender) reserve(plan *shaping.Plan) error {
	need, have, first := sendMemory(plan, true), 0, 0
	for k, fd := range s.fds {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		if err != nil {
			return os.NewSyscallError("getsockopt", err)
		}
		if have += got; k == 0 {
			first = got
		}
	}
	if have >= need {
		return nil
	}
	got, err := growBuffer(s.fds[0], first+need-have)
	if err != nil {
		return err
	}
	if have += got - first; have < need {
		return fmt.Errorf("the queues of the new plan take %d bytes of send buffers, and there are %d: open the router with the plan of the longest queues, raise net.core.wmem_max, or run as root", need, have)
	}
	return nil
}

// send sends a frame that begins with its virtio_net_hdr. ENOBUFS means that
// the queue of the interface was full, EAGAIN that every socket was. It never
// waits, so the Go scheduler need not know of it.
func (s *sender) send(ifindex int, data []byte) unix.Errno {
	s.addr.Ifindex = int32(ifindex)
	for range s.fds {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fds[s.next]),
			uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(&s.addr)), unsafe.Sizeof(s.addr))
		if errno != unix.EAGAIN {
			return errno
		}
		s.next = (s.next + 1) % len(s.fds)
	}
	return unix.EAGAIN
}

func (s *sender) close() {
	for _, fd := range s.fds {
		unix.Close(fd)
	}
}

// bigEndian is htons: the kernel wants the protocol in network order.
func bigEndian(v uint16) uint16 {
	b := [2]byte{byte(v >> 8), byte(v)}
	return *(*uint16)(unsafe.Pointer(&b))
}
