//go:build !linux

package quicring

import (
	"net"
	"sync/atomic"
)

// newSocket returns conn in the form that is fastest for quic-go.
func newSocket(conn net.PacketConn, _ func() bool, _ *atomic.Int64) net.PacketConn { return conn }
