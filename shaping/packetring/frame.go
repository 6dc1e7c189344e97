// Package packetring receives the Ethernet frames of a network namespace
// through memory shared with the kernel (packet_mmap, TPACKET_V2).
package packetring

import "time"

// VnetHeader is the size in bytes of struct virtio_net_hdr. It precedes every
// frame, received or sent, and carries the state of its checksum, which is
// never computed between two namespaces.
const VnetHeader = 10

// Frame is one frame. Data is valid until the ring's Release.
type Frame struct {
	Interface int    // index
	Ethernet  bool   // not of the loopback interface
	Data      []byte // VnetHeader bytes, and the frame from its MAC header on
	Length    int    // of the whole frame, even if Data has less
	At        time.Time
}

// Waited is the time since a kernel's stamp, when the wall clock shows wall.
// The wall clock may have been set in between, so the result is limited to
// unseen, the time since the last look, and to a second.
func Waited(wall, stamp time.Time, unseen time.Duration) time.Duration {
	return min(max(wall.Sub(stamp), 0), unseen, time.Second)
}
