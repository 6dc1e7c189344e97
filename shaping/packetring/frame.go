// Package packetring receives the Ethernet frames of a network namespace through
// memory that is shared with the kernel (packet_mmap, TPACKET_V2).
package packetring

import "time"

// VnetHeader is the size in bytes of struct virtio_net_hdr. It precedes every
// frame, received or sent, and carries the state of its checksum, which between
// two namespaces is never computed.
const VnetHeader = 10

// Frame is one frame. Data is valid until the ring's Release.
type Frame struct {
	Interface int    // index
	Ethernet  bool   // and not of the loopback interface
	Data      []byte // VnetHeader bytes, and the frame from its MAC header on
	Length    int    // of the whole frame, also where Data holds less
	At        time.Time
}

// Waited is how long something has waited that the kernel has stamped, where the wall
// clock now shows wall. The wall clock may have been set in between: nothing has waited
// for longer than nobody has looked, nor for a second.
func Waited(wall, stamp time.Time, unseen time.Duration) time.Duration {
	return min(max(wall.Sub(stamp), 0), unseen, time.Second)
}
