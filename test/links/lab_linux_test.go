package links

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
	"testbed/internal/thread"
	"testbed/shaping"
	"testbed/shaping/kernel"
	"testbed/shaping/userlink"
)

// needNamespaces skips unless user and HTB links can be built here: as root, or
// inside a user namespace.
func needNamespaces(t testing.TB) {
	t.Helper()
	testenv.Need(t, kernel.Probe().Supports(kernel.BackendHTB))
}

// needNetem skips where the kernel has no netem, in CI too: CI's kernels may
// lack it, and real netem is tested in a guest with a kernel of its own.
func needNetem(t testing.TB) {
	t.Helper()
	needNamespaces(t)
	err := kernel.Probe().Supports(kernel.BackendNetem)
	if errors.Is(err, unix.ENOENT) {
		t.Skip(err)
	}
	testenv.Need(t, err)
}

// lab is an installed network in a hub of its own, carried by a router
// where the backend wants one.
type lab struct {
	testing.TB
	plan   *shaping.Plan
	net    *kernel.Network
	router *userlink.Router // nil with netem
	board  *userlink.Board  // the router's
}

// newLab is called inside a fresh namespace; f ends before the network does.
func newLab(t *testing.T, backend kernel.Backend, spec shaping.Spec, nodes []string, f func(*lab)) {
	t.Helper()
	plan, err := shaping.NewPlan(spec, nodes, 0, 42)
	if err != nil {
		t.Fatal(err)
	}
	testenv.InNewNamespace(t, func() {
		l := &lab{TB: t, plan: plan}
		if l.net, err = kernel.Build(plan, backend, nil); err != nil {
			t.Error(err)
			return
		}
		defer l.net.Close()
		if backend.Routed() {
			defer l.startRouter(backend)()
		}
		f(l)
	})
}

func (l *lab) startRouter(backend kernel.Backend) (stop func()) {
	board, file, err := userlink.NewBoard(len(l.plan.Nodes))
	if err != nil {
		l.Error(err)
		return func() {}
	}
	file.Close()
	router, err := userlink.Open(l.plan, userlink.Options{HTB: backend == kernel.BackendHTB, Board: board})
	if err != nil {
		l.Error(errors.Join(err, board.Close()))
		return func() {}
	}
	l.router, l.board = router, board
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := router.Run(ctx); err != nil {
			l.Error(err)
		}
	}()
	return func() {
		cancel()
		<-done
		l.checkStats(router.Stats())
		router.Close()
		if err := board.Close(); err != nil {
			l.Error(err)
		}
	}
}

// change makes the network that of another plan.
func (l *lab) change(plan *shaping.Plan) {
	if err := l.net.Change(plan); err != nil {
		l.Error(err)
	}
	if l.router != nil {
		if err := l.router.Change(plan); err != nil {
			l.Error(err)
		}
	}
}

// compose lays faults over the lab's plan.
func (l *lab) compose(faults ...shaping.Fault) *shaping.Plan {
	plan, err := shaping.Compose(l.plan, faults)
	if err != nil {
		l.Error(err)
		return l.plan
	}
	return plan
}

// checkStats fails the test for drops that no plan asks for.
func (l *lab) checkStats(s userlink.Stats) {
	l.Logf("router: %+v", s)
	if s.Overflow+s.SocketDrops+s.SendDrops+s.Unknown+s.Oversize != 0 {
		l.Errorf("the router dropped packets that no plan asks for: %+v", s)
	}
}

// in runs f on a thread in the namespace of the node. Sockets that f opens
// stay in it.
func (l *lab) in(node string, f func() error) error {
	var err error
	thread.Do(func() {
		if err = netns.Set(l.net.NS(node)); err == nil {
			err = f()
		}
	})
	if err != nil {
		return fmt.Errorf("in node %s: %w", node, err)
	}
	return nil
}

func (l *lab) addr(node string) netip.Addr { return l.plan.Nodes[l.plan.Index(node)].Addr.Addr() }

// udp opens a socket in the node.
func (l *lab) udp(node string) *net.UDPConn {
	var conn *net.UDPConn
	err := l.in(node, func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: l.addr(node).AsSlice()})
		return err
	})
	if err != nil {
		l.Error(err)
		return nil
	}
	_ = conn.SetReadBuffer(4 << 20)
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute)) // no test waits for ever
	return conn
}

// tcp opens a connection from one node to another.
func (l *lab) tcp(from, to string) (client, server net.Conn, err error) {
	var listener net.Listener
	err = l.in(to, func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(l.addr(to), 0).String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	err = l.in(from, func() (err error) {
		client, err = net.DialTimeout("tcp4", listener.Addr().String(), 10*time.Second)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	server, err = listener.Accept()
	return client, server, err
}

// rtts measures n round trips, spaced by gap, of small UDP packets.
func (l *lab) rtts(from, to string, n int, gap time.Duration) (all []time.Duration) {
	here, there := l.udp(from), l.udp(to)
	if here == nil || there == nil {
		return nil
	}
	defer here.Close()
	go func() {
		defer there.Close()
		buf := make([]byte, 64)
		for range n {
			k, addr, err := there.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = there.WriteToUDPAddrPort(buf[:k], addr)
		}
	}()
	buf := make([]byte, 64)
	peer := there.LocalAddr().(*net.UDPAddr).AddrPort()
	for range n {
		start := time.Now()
		if _, err := here.WriteToUDPAddrPort(buf, peer); err != nil {
			l.Error(err)
			return all
		}
		if _, _, err := here.ReadFromUDPAddrPort(buf); err != nil {
			l.Errorf("echo from %s to %s: %v", from, to, err)
			return all
		}
		all = append(all, time.Since(start))
		time.Sleep(gap)
	}
	return all
}
