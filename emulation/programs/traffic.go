//go:build linux

package programs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"testbed/internal/thread"
	"testbed/policy"
)

// AwaitTraffic returns a function that waits until this thread's network
// namespace sends the first IP packet to one of the addresses. Packets to other
// addresses, and ARP, do not count.
func AwaitTraffic(to []netip.Addr) (wait func() error, err error) {
	// Sockets of a single protocol do not see sent packets.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(bigEndian(unix.ETH_P_ALL)))
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "packets")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return func() error {
		defer file.Close()
		buf := make([]byte, ipv4Header)
		found := false
		for !found {
			var failed error
			err := raw.Read(func(fd uintptr) bool {
				n, from, err := unix.Recvfrom(int(fd), buf, 0)
				if errors.Is(err, unix.EAGAIN) {
					return false
				}
				failed = err
				link, is := from.(*unix.SockaddrLinklayer)
				found = err == nil && is && link.Pkttype == unix.PACKET_OUTGOING && link.Protocol == bigEndian(unix.ETH_P_IP) && sentTo(buf[:n], to)
				return true
			})
			if err = lasting(err, failed); err != nil {
				return os.NewSyscallError("recvfrom", err)
			}
		}
		return nil
	}, nil
}

// AwaitTraffic makes the job's goroutine call carried for each worker on this
// host that sends a first packet to another worker.
func (g *Ground) AwaitTraffic(carried func(from string) error) error {
	addrs := map[string]netip.Addr{}
	for _, n := range g.spec.Plan.Nodes {
		if _, is := policy.ParseNode(n.Name); is {
			addrs[n.Name] = n.Addr.Addr()
		}
	}
	for _, name := range g.Links.Kernel.Nodes() {
		if !addrs[name].IsValid() {
			continue
		}
		others := maps.Clone(addrs)
		delete(others, name)
		var wait func() error
		var err error
		thread.Do(func() {
			if err = unix.Setns(g.Links.NS(name), unix.CLONE_NEWNET); err == nil {
				wait, err = AwaitTraffic(slices.Collect(maps.Values(others)))
			}
		})
		if err != nil {
			return fmt.Errorf("watching for the first byte of %s: %w", name, err)
		}
		go func() {
			err := wait()
			g.S.Post(func() error {
				if err != nil {
					return fmt.Errorf("watching for the first byte of %s: %w", name, err)
				}
				return carried(name)
			})
		}()
	}
	return nil
}

// ipv4Header is the length of a header without options, RFC 791.
const ipv4Header = 20

// sentTo reports whether an IPv4 packet is for one of the addresses.
func sentTo(packet []byte, to []netip.Addr) bool {
	return len(packet) >= ipv4Header && packet[0]>>4 == 4 && slices.Contains(to, netip.AddrFrom4([4]byte(packet[16:20])))
}

// bigEndian converts a protocol's number to the kernel's format.
func bigEndian(protocol uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
}

// lasting is the first error that does not pass by itself.
func lasting(all ...error) error {
	for _, err := range all {
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENETDOWN) {
			return err
		}
	}
	return nil
}
