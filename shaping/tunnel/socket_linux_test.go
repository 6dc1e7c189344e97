package tunnel

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openPair returns two tunnels over loopback.
func openPair(t testing.TB) (a, b *Tunnel) {
	t.Helper()
	c := Config{Secret: bytes.Repeat([]byte{1}, SecretSize)}
	var fds []int
	for _, name := range []string{"a", "b"} {
		file, port, err := Listen("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		c.Hosts = append(c.Hosts, Host{name, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)})
	}
	tunnels := make([]*Tunnel, 2)
	for k, fd := range fds {
		c.Self = k
		var err error
		if tunnels[k], err = Open(fd, c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tunnels[k].Close() })
	}
	return tunnels[0], tunnels[1]
}

// drain receives until that many frames have come, or nothing more comes.
func drain(t testing.TB, from *Tunnel, frames int, handle func(Frame)) (came int) {
	for tries := 0; came < frames && tries < 10_000; tries++ {
		some, _, err := from.Receive(0, time.Now(), func(f Frame) {
			came++
			handle(f)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !some {
			time.Sleep(100 * time.Microsecond)
		}
	}
	return came
}

func TestFramesCrossSockets(t *testing.T) {
	a, b := openPair(t)
	for _, gso := range []bool{a.gso, false} {
		for _, fits := range []bool{true, false} {
			a.gso, a.peers[1].fits = gso, fits
			next := 0
			for k := range 100 { // of three sizes, more than a batch
				a.Send(1, &Frame{From: k, Data: bytes.Repeat([]byte{byte(k)}, []int{60, 1524, 1524, 700}[k%4])})
			}
			if err := a.flush(); err != nil {
				t.Fatal(err)
			}
			came := drain(t, b, 100, func(f Frame) {
				if f.From != next || len(f.Data) == 0 || f.Data[0] != byte(f.From) || f.Data[len(f.Data)-1] != byte(f.From) {
					t.Errorf("frame %d came where %d was due, or changed", f.From, next)
				}
				next++
			})
			if came != 100 {
				t.Errorf("%d of 100 frames came (gso %v, whole %v, not sent %d)", came, gso, fits, a.Unsent)
			}
		}
	}
}

// BenchmarkTunnel is the processor time of both ends for a full frame, in batches.
func BenchmarkTunnel(b *testing.B) {
	for name, fits := range map[string]bool{"whole": true, "halves": false} {
		b.Run(name, func(b *testing.B) {
			from, to := openPair(b)
			from.peers[1].fits = fits
			data := make([]byte, 1524)
			const together = 16
			lost := 0
			for range (b.N + together - 1) / together {
				for range together {
					from.Send(1, &Frame{Data: data})
				}
				if err := from.flush(); err != nil {
					b.Fatal(err)
				}
				lost += together - drain(b, to, together, func(Frame) {})
			}
			if lost > 0 {
				b.Errorf("%d frames lost", lost)
			}
		})
	}
}

// TestErrorsOfTheUnderlayAreLosses: what the kernel refuses for a while is lost, and
// counted, and the tunnel goes on as before.
func TestErrorsOfTheUnderlayAreLosses(t *testing.T) {
	a, b := openPair(t)
	gso, to := a.gso, a.addrs[1]
	for _, count := range []int{5, 1} { // a train, and one alone
		before := a.Unsent
		a.addrs[1].Addr = [4]byte{240, 0, 0, 1} // nobody can send there: EINVAL
		for range count {
			a.Send(1, &Frame{Data: make([]byte, 1000)})
		}
		if err := a.flush(); err != nil {
			t.Errorf("sending %d: %v", count, err)
		}
		if a.gso != gso {
			t.Errorf("after an error of %d, trains are given up", count)
		}
		if a.Unsent != before+uint64(count) {
			t.Errorf("%d datagrams are counted as not sent, want %d", a.Unsent-before, count)
		}
	}
	a.addrs[1] = to
	a.Send(1, &Frame{Data: make([]byte, 1000)})
	if err := a.flush(); err != nil {
		t.Fatal(err)
	}
	if drain(t, b, 1, func(Frame) {}) != 1 {
		t.Error("nothing comes after the errors")
	}
	for _, errno := range []syscall.Errno{unix.EINVAL, unix.EACCES, unix.ENETDOWN, unix.ENETUNREACH} {
		if !underlay(errno) {
			t.Errorf("%v is none of the underlay", errno)
		}
	}
	if underlay(unix.EBADF) || underlay(unix.EFAULT) {
		t.Error("a fault of the program is one of the underlay")
	}
}
