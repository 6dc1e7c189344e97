package node

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"testbed/shaping"
	"testbed/shaping/userlink"
)

// memnet is a network inside this process: packet connections between the
// nodes of a plan, with the delays, losses and cuts of the user links' queue.
// Inside a synctest bubble it runs in virtual time.
type memnet struct {
	began time.Time
	base  *shaping.Plan

	mu      sync.Mutex
	queue   *userlink.Queue[packet]
	timer   *time.Timer // for the next packet that is due
	sockets map[netip.AddrPort]*socket
	faults  map[string][]shaping.Fault // active ones, by the name of their cause
	port    uint16
	tap     func(packet) // is told of every packet sent, under the lock
}

type packet struct {
	from, to netip.AddrPort
	data     []byte
}

const memnetPackets = 1 << 16 // in flight at a time; more are lost

func newMemnet(plan *shaping.Plan) *memnet {
	n := &memnet{
		began: time.Now(), base: plan, queue: userlink.NewQueue[packet](plan, memnetPackets),
		sockets: map[netip.AddrPort]*socket{}, faults: map[string][]shaping.Fault{}, port: 7000,
	}
	n.queue.Clone = func(p packet) packet { return packet{p.from, p.to, append([]byte{}, p.data...)} }
	n.queue.Corrupt = func(p packet, seed uint64) { p.data[seed%uint64(len(p.data))] ^= 1 << (seed >> 32 % 8) }
	n.timer = time.AfterFunc(time.Hour, n.deliver)
	n.timer.Stop()
	return n
}

// listen opens a socket of a node.
func (n *memnet) listen(node string) *socket {
	n.mu.Lock()
	n.port++
	port := n.port
	n.mu.Unlock()
	return n.listenAt(node, port)
}

func (n *memnet) listenAt(node string, port uint16) *socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := n.base.Index(node)
	s := &socket{
		net: n, node: i, addr: netip.AddrPortFrom(n.base.Nodes[i].Addr.Addr(), port),
		in: make(chan packet, 4096), unreachable: make(chan netip.AddrPort, 16), closed: make(chan struct{}), expired: make(chan struct{}),
	}
	n.sockets[s.addr] = s
	return s
}

// blame lays faults under a name, or with none lifts those of that name.
func (n *memnet) blame(t testing.TB, name string, faults ...shaping.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.faults[name] = faults; faults == nil {
		delete(n.faults, name)
	}
	var all []shaping.Fault
	for _, f := range n.faults { // what they change does not overlap, or alike
		all = append(all, f...)
	}
	plan, err := shaping.Compose(n.base, all)
	if err != nil {
		t.Errorf("faults of the in-process network: %v", err)
		return
	}
	n.queue.Change(plan, memnetPackets)
}

func (n *memnet) send(s *socket, to netip.AddrPort, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, node := range n.base.Nodes {
		if node.Addr.Addr() != to.Addr() {
			continue
		}
		p := packet{s.addr, to, append([]byte{}, data...)}
		if n.tap != nil {
			n.tap(p)
		}
		n.queue.Push(time.Since(n.began), s.node, i, p)
		n.schedule()
	}
}

// inject puts a packet with whatever sender into the network near its
// receiver.
func (n *memnet) inject(p packet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sockets[p.to]; s != nil {
		select {
		case s.in <- packet{p.from, p.to, append([]byte{}, p.data...)}:
		default:
		}
	}
}

// schedule sets the timer for the next packet. The caller holds the lock.
func (n *memnet) schedule() {
	if due, ok := n.queue.Next(); ok {
		n.timer.Reset(due - time.Since(n.began))
	}
}

func (n *memnet) deliver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		p, _, _, ok := n.queue.Pop(time.Since(n.began))
		if !ok {
			break
		}
		s := n.sockets[p.to]
		if s == nil {
			// The host says so, at once, as with an ICMP message.
			if from := n.sockets[p.from]; from != nil {
				select {
				case from.unreachable <- p.to:
				default:
				}
			}
			continue
		}
		select {
		case s.in <- p:
		default: // the socket's buffer is full
		}
	}
	n.schedule()
}

// socket is a net.PacketConn of a memnet.
type socket struct {
	net    *memnet
	node   int
	addr   netip.AddrPort
	in     chan packet
	closed chan struct{}
	once   sync.Once
	// unreachable gives addresses that packets were sent to in vain.
	unreachable chan netip.AddrPort

	mu      sync.Mutex
	expired chan struct{} // closed when the read deadline has come
}

func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	s.mu.Lock()
	expired := s.expired
	s.mu.Unlock()
	select {
	case p := <-s.in:
		return copy(b, p.data), net.UDPAddrFromAddrPort(p.from), nil
	case <-s.closed:
		return 0, nil, net.ErrClosed
	case <-expired:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (s *socket) WriteTo(b []byte, to net.Addr) (int, error) {
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
	}
	s.net.send(s, to.(*net.UDPAddr).AddrPort(), b)
	return len(b), nil
}

func (s *socket) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.net.mu.Lock()
		if s.net.sockets[s.addr] == s {
			delete(s.net.sockets, s.addr)
		}
		s.net.mu.Unlock()
	})
	return nil
}

func (s *socket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.addr) }

// SetReadDeadline knows deadlines in the past, which end a read at once, and
// none at all; the transport uses no others.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := !t.IsZero() && !t.After(time.Now())
	select {
	case <-s.expired:
		if !past {
			s.expired = make(chan struct{})
		}
	default:
		if past {
			close(s.expired)
		}
	}
	return nil
}

func (s *socket) SetDeadline(t time.Time) error    { return s.SetReadDeadline(t) }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
