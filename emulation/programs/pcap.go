//go:build linux

package programs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Sizes and values of the pcap format (draft-ietf-opsawg-pcap).
const (
	pcapNanoseconds  = 0xa1b23c4d
	pcapEthernet     = 1
	pcapHeaderSize   = 24
	pcapRecordSize   = 16
	pcapSnapLength   = 65535
	pcapMajor        = 2
	pcapMinor        = 4
	pcapBufferSize   = 256 << 10
	pcapLeastAllowed = pcapHeaderSize + pcapRecordSize + 1514
)

// pcapWriter writes frames as a pcap file with nanoseconds, up to a limit.
type pcapWriter struct {
	out     *bufio.Writer
	left    int64
	frames  int
	beyond  int // frames beyond the limit
	problem error
}

func newPcapWriter(out io.Writer, limit int64) *pcapWriter {
	w := &pcapWriter{out: bufio.NewWriterSize(out, pcapBufferSize), left: limit - pcapHeaderSize}
	var h []byte
	h = binary.LittleEndian.AppendUint32(h, pcapNanoseconds)
	h = binary.LittleEndian.AppendUint16(h, pcapMajor)
	h = binary.LittleEndian.AppendUint16(h, pcapMinor)
	h = append(h, make([]byte, 8)...) // time zone and accuracy: unused
	h = binary.LittleEndian.AppendUint32(h, pcapSnapLength)
	h = binary.LittleEndian.AppendUint32(h, pcapEthernet)
	_, w.problem = w.out.Write(h)
	return w
}

// write adds a frame of the given length on the wire. flush returns failures.
func (w *pcapWriter) write(at time.Time, frame []byte, length int) {
	if w.problem != nil {
		return
	}
	size := int64(pcapRecordSize + len(frame))
	// The first frame beyond the limit ends the file: a file with gaps would
	// mislead.
	if w.beyond > 0 || size > w.left {
		w.beyond++
		return
	}
	w.left -= size
	w.frames++
	var h [pcapRecordSize]byte
	binary.LittleEndian.PutUint32(h[0:], uint32(at.Unix()))
	binary.LittleEndian.PutUint32(h[4:], uint32(at.Nanosecond()))
	binary.LittleEndian.PutUint32(h[8:], uint32(len(frame)))
	binary.LittleEndian.PutUint32(h[12:], uint32(length))
	if _, w.problem = w.out.Write(h[:]); w.problem == nil {
		_, w.problem = w.out.Write(frame)
	}
}

func (w *pcapWriter) flush() error {
	if w.problem == nil {
		w.problem = w.out.Flush()
	}
	if w.problem != nil {
		return fmt.Errorf("writing the capture: %w", w.problem)
	}
	return nil
}
