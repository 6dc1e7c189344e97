//go:build !linux

package quicring

import "net"

// newSocket returns conn as quic-go reads it best.
func newSocket(conn net.PacketConn) net.PacketConn { return conn }
