//go:build linux

package programs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPcapWriter(t *testing.T) {
	var out bytes.Buffer
	w := newPcapWriter(&out, 24+2*(16+60))
	at := time.Unix(1700000000, 123456789)
	for range 4 {
		w.write(at, make([]byte, 60), 1514)
	}
	if err := w.flush(); err != nil || w.frames != 2 || w.beyond != 2 || out.Len() != 24+2*76 {
		t.Fatalf("%v; %d frames, %d beyond, %d bytes", err, w.frames, w.beyond, out.Len())
	}
	var words []uint32
	for b := out.Bytes(); len(b) >= 4 && len(words) < 10; b = b[4:] {
		words = append(words, binary.LittleEndian.Uint32(b))
	}
	want := []uint32{0xa1b23c4d, 4<<16 | 2, 0, 0, 65535, 1, 1700000000, 123456789, 60, 1514}
	for k := range want {
		if words[k] != want[k] {
			t.Errorf("word %d is %#x, want %#x", k, words[k], want[k])
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestPcapWriterTellsOfFailure(t *testing.T) {
	w := newPcapWriter(full{}, 1<<30)
	for range 1000 {
		w.write(time.Now(), make([]byte, 1514), 1514)
	}
	if err := w.flush(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
}
