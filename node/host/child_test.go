//go:build linux

package host

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"testbed/node"
	"testbed/node/identity"
	"testbed/scenarios"
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
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	report := func(r node.Report) { t.Errorf("the node reported %+v", r) }
	for port, run := range map[uint16]func() error{
		controlPort: func() error {
			return runCoordinator(&coordinatorSpec{Scenario: s, Policy: "baseline", Addr: localhost, Credentials: credentials}, nil, quiet, report)
		},
		ringPort: func() error {
			return runWorker(&workerSpec{Scenario: s, Addr: localhost, Coordinator: localhost, Credentials: credentials}, nil, quiet, func(r nodeReport) { report(r.Report) })
		},
	} {
		addr := netip.AddrPortFrom(localhost, port)
		taken, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			t.Fatal(err)
		}
		err = run()
		taken.Close()
		if err == nil || !strings.Contains(err.Error(), addr.String()) || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s taken: got %v", addr, err)
		}
	}
}
