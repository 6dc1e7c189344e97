//go:build linux

package process

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"testbed/node/identity"
	"testbed/node/state"
)

// TestPortInUse has another program on the ports of a node: the error names
// the address.
func TestPortInUse(t *testing.T) {
	localhost := netip.MustParseAddr("127.0.0.1")
	authority, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := authority.Issue("w0")
	if err != nil {
		t.Fatal(err)
	}
	for port, open := range map[uint16]func() error{
		controlPort: func() error {
			_, err := (&CoordinatorSpec{Addr: localhost, Credentials: credentials}).config()
			return err
		},
		ringPort: func() error {
			_, err := (&WorkerSpec{Addr: localhost, Coordinator: localhost, Credentials: credentials}).config()
			return err
		},
	} {
		addr := netip.AddrPortFrom(localhost, port)
		taken, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			t.Fatal(err)
		}
		err = open()
		taken.Close()
		if err == nil || !strings.Contains(err.Error(), addr.String()) || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s taken: got %v", addr, err)
		}
	}
}

// TestSaver: a checkpoint is only written when the one before has been taken.
func TestSaver(t *testing.T) {
	memory, err := os.CreateTemp(t.TempDir(), "memory")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	taken, told := make(chan struct{}, 1), 0
	save := saver(memory, taken, func(state.Checkpoint) { told++ })
	write := func(text string, fails error) func(io.Writer) (state.Checkpoint, error) {
		return func(w io.Writer) (state.Checkpoint, error) {
			_, err := io.WriteString(w, text)
			return state.Checkpoint{}, errors.Join(err, fails)
		}
	}
	failed := errors.New("no")
	if err := save(write("a long first part", failed)); !errors.Is(err, failed) || told != 0 {
		t.Errorf("a failure: %v, told %d times", err, told)
	}
	if err := save(write("first", nil)); err != nil || told != 1 {
		t.Errorf("the first: %v, told %d times", err, told)
	}
	if err := save(write("second", nil)); err == nil || told != 1 {
		t.Errorf("the second, too early: %v, told %d times", err, told)
	}
	if text, err := os.ReadFile(memory.Name()); string(text) != "first" || err != nil {
		t.Errorf("in memory: %q, %v", text, err)
	}
	taken <- struct{}{}
	if err := save(write("third", nil)); err != nil || told != 2 {
		t.Errorf("the third: %v, told %d times", err, told)
	}
}
