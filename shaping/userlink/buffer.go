package userlink

import (
	"encoding/binary"

	"testbed/shaping"
	"testbed/shaping/packetring"
)

const (
	vnetHeader  = packetring.VnetHeader
	etherHeader = 14
)

// buffer is a frame in the queue, with its virtio_net_hdr.
type buffer struct {
	n    int
	data [vnetHeader + shaping.FrameSize]byte
}

// corrupt flips one bit of the IP packet. The checksum is computed before,
// as by netem, so that the receiver finds the error instead of trusting a
// packet that never left the machine.
func (b *buffer) corrupt(seed uint64) {
	b.completeChecksum()
	if packet := b.data[vnetHeader+etherHeader : b.n]; len(packet) > 0 {
		bit := seed % uint64(8*len(packet))
		packet[bit/8] ^= 1 << (bit % 8)
	}
}

// completeChecksum completes the checksum that an offloading sender left
// incomplete: the field holds the sum of the pseudo-header only.
func (b *buffer) completeChecksum() {
	const needsChecksum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	header, frame := b.data[:vnetHeader], b.data[vnetHeader:b.n]
	if header[0]&needsChecksum == 0 {
		return
	}
	header[0] = 0
	start := int(binary.NativeEndian.Uint16(header[6:]))
	field := start + int(binary.NativeEndian.Uint16(header[8:]))
	if field+2 > len(frame) {
		return
	}
	var sum uint64
	for i := start; i < len(frame); i += 2 {
		word := uint64(frame[i]) << 8
		if i+1 < len(frame) {
			word |= uint64(frame[i+1])
		}
		sum += word
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	checksum := ^uint16(sum)
	if checksum == 0 {
		checksum = 0xffff // in UDP zero would mean no checksum
	}
	binary.BigEndian.PutUint16(frame[field:], checksum)
}
