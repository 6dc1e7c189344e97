package packetring

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	slotSize  = 2048
	blockSize = 64 << 10
	// slots is how many frames may wait for their reader: 0.2 s of 80,000 frames a
	// second, which is 1 Gbit/s. A ring needs no privilege. A receive buffer of an
	// ordinary user would end at 200 frames.
	slots = 16384
)

// Ring holds unread frames.
type Ring struct {
	fd   int
	mem  []byte
	next int
}

// Open opens a ring for the frames that all interfaces of the calling thread's
// namespace receive and, if outgoing is set, for those that they send.
func Open(outgoing bool) (r *Ring, err error) {
	// Without a protocol the socket receives nothing before everything is set up.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	r = &Ring{fd: fd}
	defer func() {
		if err != nil {
			err = fmt.Errorf("setting up the packet ring: %w", err)
			r.Close()
		}
	}()
	type option struct{ name, value int }
	options := []option{{unix.PACKET_VERSION, unix.TPACKET_V2}, {unix.PACKET_VNET_HDR, 1}}
	if !outgoing {
		options = append(options, option{unix.PACKET_IGNORE_OUTGOING, 1})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, o.name, o.value); err != nil {
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	size := slots * slotSize
	req := unix.TpacketReq{Block_size: blockSize, Block_nr: uint32(size / blockSize), Frame_size: slotSize, Frame_nr: slots}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if r.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	all := binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(all)}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	return r, nil
}

// FD is the socket, which is readable while a frame waits.
func (r *Ring) FD() int { return r.fd }

func (r *Ring) header() *unix.Tpacket2Hdr {
	return (*unix.Tpacket2Hdr)(unsafe.Pointer(&r.mem[r.next*slotSize]))
}

// Read returns the next frame if there is one. Release frees its slot.
func (r *Ring) Read() (f Frame, ok bool) {
	h := r.header()
	if atomic.LoadUint32(&h.Status)&unix.TP_STATUS_USER == 0 {
		return Frame{}, false
	}
	slot := r.mem[r.next*slotSize:][:slotSize]
	from := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&slot[(unix.SizeofTpacket2Hdr+15)&^15]))
	return Frame{
		Interface: int(from.Ifindex),
		Ethernet:  from.Hatype == unix.ARPHRD_ETHER,
		Data:      slot[int(h.Mac)-VnetHeader : int(h.Mac)+int(h.Snaplen)],
		Length:    int(h.Len),
		At:        time.Unix(int64(h.Sec), int64(h.Nsec)),
	}, true
}

// Release frees the slot of the frame that Read has returned.
func (r *Ring) Release() {
	atomic.StoreUint32(&r.header().Status, unix.TP_STATUS_KERNEL)
	r.next = (r.next + 1) % slots
}

// Drops returns the number of frames dropped since the last call because the
// ring was full.
func (r *Ring) Drops() uint64 {
	s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

// Close releases the memory and the socket.
func (r *Ring) Close() {
	if r.mem != nil {
		unix.Munmap(r.mem)
	}
	unix.Close(r.fd)
}
