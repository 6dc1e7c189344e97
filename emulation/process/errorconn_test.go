//go:build linux

package process

import (
	"net"
	"testing"
	"time"
)

// TestUnreachable sends to a socket that is open and to one that is closed:
// only the latter is called unreachable, and the former still gets its packets.
func TestUnreachable(t *testing.T) {
	open := func() *net.UDPConn {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	conn, err := newErrorConn(open())
	if err != nil {
		t.Fatal(err)
	}
	alive, dead := open(), open()
	dead.Close()
	received := make(chan error, 1)
	go func() {
		b := make([]byte, 16)
		_, _, err := conn.ReadFrom(b)
		received <- err
	}()
	if _, err := conn.WriteTo([]byte("anybody?"), dead.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	select {
	case addr := <-conn.unreachable:
		if addr.String() != dead.LocalAddr().String() {
			t.Errorf("%v is called unreachable, not %v", addr, dead.LocalAddr())
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody says that the closed socket is unreachable")
	}
	if _, err := alive.WriteTo([]byte("hello"), conn.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err != nil {
		t.Errorf("the error about the one peer ended the reading: %v", err)
	}
}
