package quicring

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// TestSocketTakesTrainsApart: datagrams sent as one train arrive one by one,
// however many the reader asks for.
func TestSocketTakesTrainsApart(t *testing.T) {
	receiver := newSocket(listenUDP(t), func() bool { return false })
	defer receiver.Close()
	s, ok := receiver.(*socket)
	if !ok {
		t.Skip("this kernel has no UDP GRO")
	}
	sender := listenUDP(t)
	defer sender.Close()
	const length, last, count = 1200, 700, 11
	var sent [][]byte
	for train := range 3 {
		var b []byte
		for i := range count {
			d := bytes.Repeat([]byte{byte(train*count + i)}, length)
			if i == count-1 {
				d = d[:last]
			}
			sent = append(sent, d)
			b = append(b, d...)
		}
		// struct cmsghdr and the length of the datagrams: UDP_SEGMENT
		control := make([]byte, unix.CmsgSpace(2))
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], length)
		if _, _, err := sender.WriteMsgUDP(b, control, receiver.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Fatal(err)
		}
	}
	s.SetReadDeadline(time.Now().Add(5 * time.Second))
	datagrams := make([]ipv4.Message, 4)
	for len(sent) > 0 {
		for i := range datagrams {
			datagrams[i].Buffers, datagrams[i].OOB = [][]byte{make([]byte, 1452)}, make([]byte, 128)
		}
		n, err := s.ReadBatch(datagrams, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range datagrams[:n] {
			if got := d.Buffers[0][:d.N]; !bytes.Equal(got, sent[0]) {
				t.Fatalf("got %d bytes of %v, want %d of %v", len(got), got[:1], len(sent[0]), sent[0][:1])
			}
			if fmt.Sprint(d.Addr) != fmt.Sprint(sender.LocalAddr()) {
				t.Fatalf("from %v, want %v", d.Addr, sender.LocalAddr())
			}
			sent = sent[1:]
		}
	}
}
