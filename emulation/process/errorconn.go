//go:build linux

package process

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errorConn is a UDP socket that reports unreachable peers: if a process has
// died, the kernel of its node answers with an ICMP message. An unconnected
// socket gets these messages only through its error queue.
type errorConn struct {
	udp         *net.UDPConn
	raw         syscall.RawConn
	unreachable chan netip.AddrPort // addresses without room are dropped
}

func newErrorConn(udp *net.UDPConn) (*errorConn, error) {
	raw, err := udp.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("watching for unreachable peers: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1) })
	if err := errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("watching for unreachable peers: %w", err)
	}
	return &errorConn{udp: udp, raw: raw, unreachable: make(chan netip.AddrPort, 64)}, nil
}

func (c *errorConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, addr, err := c.udp.ReadFrom(b)
		if !c.reported(err) {
			return n, addr, err
		}
	}
}

// WriteTo drops a packet if the error of an earlier one shows, as the network
// may drop any packet.
func (c *errorConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	n, err := c.udp.WriteTo(b, addr)
	if c.reported(err) {
		return len(b), nil
	}
	return n, err
}

// reported reports whether the error is about an earlier packet, and passes on
// the content of the error queue.
func (c *errorConn) reported(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok || errno != unix.ECONNREFUSED && errno != unix.EHOSTUNREACH && errno != unix.ENETUNREACH && errno != unix.EPROTO && errno != unix.ENOPROTOOPT {
		return false
	}
	var packet, control [512]byte
	_ = c.raw.Control(func(fd uintptr) { // fails only if the socket is closed
		for {
			_, _, _, from, err := unix.Recvmsg(int(fd), packet[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			// The address is the packet's destination.
			if to, ok := from.(*unix.SockaddrInet4); ok && errno == unix.ECONNREFUSED {
				select {
				case c.unreachable <- netip.AddrPortFrom(netip.AddrFrom4(to.Addr), uint16(to.Port)):
				default:
				}
			}
		}
	})
	return true
}

func (c *errorConn) Close() error                          { return c.udp.Close() }
func (c *errorConn) LocalAddr() net.Addr                   { return c.udp.LocalAddr() }
func (c *errorConn) SetReadBuffer(n int) error             { return c.udp.SetReadBuffer(n) }
func (c *errorConn) SetWriteBuffer(n int) error            { return c.udp.SetWriteBuffer(n) }
func (c *errorConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
func (c *errorConn) SetDeadline(t time.Time) error         { return c.udp.SetDeadline(t) }
func (c *errorConn) SetReadDeadline(t time.Time) error     { return c.udp.SetReadDeadline(t) }
func (c *errorConn) SetWriteDeadline(t time.Time) error    { return c.udp.SetWriteDeadline(t) }
