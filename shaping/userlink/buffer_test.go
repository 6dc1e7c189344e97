package userlink

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

// TestCorruptFlipsOneBitAfterTheChecksum: the sum over a frame whose
// checksum was left to the device is right, but for the flipped bit.
func TestCorruptFlipsOneBitAfterTheChecksum(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		packet := rapid.SliceOfN(rapid.Byte(), 28, 1500).Draw(t, "packet")
		const start, field = etherHeader + 20, 6
		b := &buffer{}
		b.data[0] = 1
		binary.NativeEndian.PutUint16(b.data[6:], start)
		binary.NativeEndian.PutUint16(b.data[8:], field)
		b.n = vnetHeader + etherHeader + copy(b.data[vnetHeader+etherHeader:], packet)
		pseudo := sum16(packet[20+field : 20+field+2])

		whole := *b
		whole.completeChecksum()
		if whole.data[0] != 0 {
			t.Fatal("the checksum is still marked as missing")
		}
		// What a receiver does: pseudo-header and all the rest, checksum
		// included, give all ones.
		rest := sum16(whole.data[vnetHeader+start : whole.n])
		if total := sum16(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, pseudo), rest)); total != 0xffff {
			t.Fatalf("a receiver sums up to %04x", total)
		}
		b.corrupt(rapid.Uint64().Draw(t, "seed"))
		flipped := 0
		for i := range b.n {
			flipped += bits.OnesCount8(b.data[i] ^ whole.data[i])
		}
		if flipped != 1 || !bytes.Equal(b.data[:vnetHeader+etherHeader], whole.data[:vnetHeader+etherHeader]) {
			t.Fatalf("%d bits were flipped, or one of the headers before the packet", flipped)
		}
	})
}

func sum16(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
