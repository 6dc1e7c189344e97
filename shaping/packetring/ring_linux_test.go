package packetring_test

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
	"testbed/shaping/kernel"
	"testbed/shaping/packetring"
)

// TestBothWays: a datagram on the loopback interface leaves once and arrives once.
func TestBothWays(t *testing.T) {
	testenv.Need(t, kernel.Probe().Supports(kernel.BackendUser))
	testenv.InNewNamespace(t, func() {
		if err := raiseLoopback(); err != nil {
			t.Error(err)
			return
		}
		for outgoing, want := range map[bool]int{false: 1, true: 2} {
			seen, err := seeDatagram(outgoing, []byte("a datagram"))
			if err != nil || seen != want {
				t.Errorf("with outgoing %v the ring has %d frames, want %d; error %v", outgoing, seen, want, err)
			}
		}
	})
}

// seeDatagram counts the frames with a datagram's payload.
func seeDatagram(outgoing bool, payload []byte) (seen int, err error) {
	ring, err := packetring.Open(outgoing)
	if err != nil {
		return 0, err
	}
	defer ring.Close()
	to, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer to.Close()
	if _, err := to.WriteTo(payload, to.LocalAddr()); err != nil {
		return 0, err
	}
	if _, _, err := to.ReadFrom(make([]byte, 64)); err != nil {
		return 0, err
	}
	for f, ok := ring.Read(); ok; f, ok = ring.Read() {
		if !f.Ethernet && f.Length == len(f.Data)-packetring.VnetHeader && bytes.HasSuffix(f.Data, payload) {
			seen++
		}
		ring.Release()
	}
	return seen, nil
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
