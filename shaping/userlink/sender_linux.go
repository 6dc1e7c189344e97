package userlink

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// sender sends frames through a pool of packet sockets. A frame counts against
// its socket until the receiver's HTB, if there is one, releases it, and an
// ordinary user's send buffer ends at 200 frames. So there are enough sockets
// to hold the queues of all nodes.
type sender struct {
	fds  []int
	next int
	addr unix.RawSockaddrLinklayer
}

// frameMemory is the memory that the kernel counts for a full frame.
const frameMemory = 2304

const maxSockets, maxBuffer = 256, 1 << 28

// sendMemory is the memory of the full queues of all nodes.
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

// growBuffer asks for a send buffer of so many bytes and returns its actual
// size.
func growBuffer(fd, bytes int) (got int, err error) {
	want := min(bytes/2, maxBuffer) // the kernel doubles the given value
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, want) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, want) // bounded by net.core.wmem_max
	}
	got, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	return got, os.NewSyscallError("getsockopt", err)
}

// reserve enlarges the existing sockets for HTB's queues of another plan.
// Further sockets would have to be opened in the router's namespace.
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
		return fmt.Errorf("the queues of the new plan need %d bytes of send buffers, but the router has %d bytes; plan shorter queues, raise net.core.wmem_max, or run as root", need, have)
	}
	return nil
}

// send sends a frame that begins with its virtio_net_hdr. ENOBUFS means that
// the queue of the interface was full, EAGAIN that every socket was. It never
// waits, so it bypasses the Go scheduler.
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
