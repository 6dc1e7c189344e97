//go:build !linux

package quicring

import "net"

// newSocket returns conn as quic-go reads and writes it best.
func newSocket(conn net.PacketConn, _ func() bool) net.PacketConn { return conn }
