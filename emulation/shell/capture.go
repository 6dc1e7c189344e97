//go:build linux

package shell

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/emulation/network"
)

// The ring of a capture: the kernel hands over blocks of frames, full or old
// (packet_mmap, TPACKET_V3), which costs little even at a million frames a
// second.
const (
	captureBlockSize = 1 << 20
	captureBlocks    = 16
	captureRetire    = 50 * time.Millisecond
)

type captureSpec struct {
	File  string
	Limit int64
}

// captured is how much a capture has seen.
type captured struct {
	Frames int
	Beyond int // frames beyond the limit of the file
	Missed int // frames that came too fast
}

// capture is one under way.
type capture struct {
	node  string
	child *network.Child
	saw   *captured // nil before its end
}

// startCapture starts to write the frames of a node.
func startCapture(s *network.Supervisor, links *network.Network, name string, spec captureSpec) (*capture, error) {
	c := &capture{node: name}
	var err error
	c.child, err = s.StartChild(network.ChildSpec{
		Name: "capture-" + name, NetNS: links.NS(name), Kind: KindCapture, Spec: spec,
		OnData: func(data json.RawMessage) error {
			c.saw = new(captured)
			return json.Unmarshal(data, c.saw)
		},
	})
	if err != nil {
		return nil, err
	}
	return c, s.Await(network.StartupPatience, "the capture of "+name, func() bool { return c.child.Ready || c.child.Ended })
}

// endCaptures has the captures write what is left, and tells what they saw.
func endCaptures(s *network.Supervisor, all []*capture) error {
	for _, c := range all {
		c.child.CloseCommands()
	}
	for _, c := range all {
		if err := s.Await(network.StartupPatience, c.child.Name+" to end", func() bool { return c.child.Ended }); err != nil {
			return err
		}
		if c.saw == nil {
			return c.child.Err()
		}
		s.Tell("%s.pcap: %s", c.node, c.saw)
	}
	return nil
}

func (c *captured) String() string {
	text := fmt.Sprintf("%d frames", c.Frames)
	if n := c.Beyond; n > 0 {
		text += fmt.Sprintf("; %d more did not fit the limit of the file", n)
	}
	if n := c.Missed; n > 0 {
		text += fmt.Sprintf("; %d MISSED, they came too fast", n)
	}
	return text
}

// RunCapture is the process of a capture: it runs in the node's namespace
// until its commands end.
func RunCapture(self *network.Self) error {
	var s captureSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	file, err := os.Create(s.File)
	if err != nil {
		return err
	}
	defer file.Close()
	ring, err := openCaptureRing()
	if err != nil {
		return err
	}
	w := newPcapWriter(file, s.Limit)
	var ending atomic.Bool
	go func() {
		var none struct{}
		_ = self.Commands().Decode(&none) // returns at the end of the file
		time.Sleep(captureRetire)         // what is under way comes too
		ending.Store(true)
	}()
	self.Ready()
	if err := ring.drain(w, ending.Load); err != nil {
		return err
	}
	if err := errors.Join(w.flush(), file.Close()); err != nil {
		return err
	}
	self.Tell(captured{Frames: w.frames, Beyond: w.beyond, Missed: ring.missed()})
	return nil
}

type captureRing struct {
	fd  int
	mem []byte
}

func openCaptureRing() (*captureRing, error) {
	// Without a protocol nothing is received before all is set.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	r := &captureRing{fd: fd}
	if r.mem, err = r.setUp(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("setting up a packet socket: %w", err)
	}
	return r, nil
}

func (r *captureRing) setUp() ([]byte, error) {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return nil, os.NewSyscallError("setsockopt PACKET_VERSION", err)
	}
	const slot = 2048
	req := unix.TpacketReq3{
		Block_size: captureBlockSize, Block_nr: captureBlocks, Frame_size: slot,
		Frame_nr:       captureBlockSize / slot * captureBlocks,
		Retire_blk_tov: uint32(captureRetire / time.Millisecond),
	}
	if err := unix.SetsockoptTpacketReq3(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, os.NewSyscallError("setsockopt PACKET_RX_RING", err)
	}
	mem, err := unix.Mmap(r.fd, 0, captureBlockSize*captureBlocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	all := binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)
	if err := unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(all)}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	return mem, nil
}

// drain writes blocks as the kernel hands them over, until it is ending and
// there is none.
func (r *captureRing) drain(w *pcapWriter, ending func() bool) error {
	for k := 0; ; {
		block := r.mem[k*captureBlockSize:][:captureBlockSize]
		h := (*unix.TpacketHdrV1)(unsafe.Pointer(&(*unix.TpacketBlockDesc)(unsafe.Pointer(&block[0])).Hdr))
		if atomic.LoadUint32(&h.Block_status)&unix.TP_STATUS_USER == 0 {
			if ending() {
				return nil
			}
			wait := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(wait, int(captureRetire/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
				return os.NewSyscallError("poll", err)
			}
			continue
		}
		at := int(h.Offset_to_first_pkt)
		for range h.Num_pkts {
			p := (*unix.Tpacket3Hdr)(unsafe.Pointer(&block[at]))
			from := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&block[at+(unix.SizeofTpacket3Hdr+15)&^15]))
			if from.Hatype == unix.ARPHRD_ETHER { // and not the loopback's
				start := at + int(p.Mac)
				w.write(time.Unix(int64(p.Sec), int64(p.Nsec)), block[start:start+int(p.Snaplen)], int(p.Len))
			}
			at += int(p.Next_offset)
		}
		atomic.StoreUint32(&h.Block_status, unix.TP_STATUS_KERNEL)
		k = (k + 1) % captureBlocks
	}
}

// missed is how many frames found the ring full.
func (r *captureRing) missed() int {
	s, err := unix.GetsockoptTpacketStatsV3(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return int(s.Drops)
}
