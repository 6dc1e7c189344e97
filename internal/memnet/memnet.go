// Package memnet lets tests run many nodes in one process: a network of packet
// connections with the links of a plan, virtual time, and certificates.
package memnet

import (
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"testbed/shaping"
	"testbed/shaping/userlink"
)

// Net is a network inside this process: packet connections between the nodes
// of a plan, with the delays, losses and cuts of the user links' queue. Inside a
// synctest bubble it runs in virtual time.
type Net struct {
	Began time.Time
	Base  *shaping.Plan
	// Tap, if set before the first packet, is called with every packet sent, by
	// one goroutine at a time.
	Tap func(Packet)

	mu      sync.Mutex
	queue   *userlink.Queue[Packet]
	timer   *time.Timer // for the next packet that is due
	sockets map[netip.AddrPort]*Socket
	faults  map[string][]shaping.Fault // active ones, by the name of their cause
	port    uint16
}

// Packet is a UDP datagram.
type Packet struct {
	From, To netip.AddrPort
	Data     []byte
}

const maxPackets = 1 << 16 // in flight at a time; more are lost

// New makes the network of a plan. Its time begins now.
func New(plan *shaping.Plan) *Net {
	n := &Net{
		Began: time.Now(), Base: plan, queue: userlink.NewQueue[Packet](plan, maxPackets),
		sockets: map[netip.AddrPort]*Socket{}, faults: map[string][]shaping.Fault{}, port: 7000,
	}
	n.queue.Clone = func(p Packet) Packet { return Packet{p.From, p.To, append([]byte{}, p.Data...)} }
	n.queue.Corrupt = func(p Packet, seed uint64) { p.Data[seed%uint64(len(p.Data))] ^= 1 << (seed >> 32 % 8) }
	n.timer = time.AfterFunc(time.Hour, n.deliver)
	n.timer.Stop()
	return n
}

// Listen opens a socket of a node.
func (n *Net) Listen(node string) *Socket {
	n.mu.Lock()
	n.port++
	port := n.port
	n.mu.Unlock()
	return n.ListenAt(node, port)
}

// ListenAt opens a socket of a node at a port.
func (n *Net) ListenAt(node string, port uint16) *Socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := n.Base.Index(node)
	s := &Socket{
		net: n, node: i, Addr: netip.AddrPortFrom(n.Base.Nodes[i].Addr.Addr(), port),
		in: make(chan Packet, 4096), Unreachable: make(chan netip.AddrPort, 16), closed: make(chan struct{}), expired: make(chan struct{}),
	}
	n.sockets[s.Addr] = s
	return s
}

// Fault applies faults to the links under the name of their cause. Without
// faults it removes the cause's.
func (n *Net) Fault(t testing.TB, name string, faults ...shaping.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.faults[name] = faults; faults == nil {
		delete(n.faults, name)
	}
	var all []shaping.Fault
	for _, f := range n.faults { // their changes do not overlap, or are equal
		all = append(all, f...)
	}
	plan, err := shaping.Compose(n.Base, all)
	if err != nil {
		t.Errorf("faults of the in-process network: %v", err)
		return
	}
	n.queue.Change(plan, maxPackets)
}

func (n *Net) send(s *Socket, to netip.AddrPort, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, node := range n.Base.Nodes {
		if node.Addr.Addr() != to.Addr() {
			continue
		}
		p := Packet{s.Addr, to, append([]byte{}, data...)}
		if n.Tap != nil {
			n.Tap(p)
		}
		n.queue.Push(time.Since(n.Began), s.node, i, shaping.UDPHeaders+len(data), p)
		n.schedule()
	}
}

// Inject puts a packet with any sender into the network near its receiver.
func (n *Net) Inject(p Packet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sockets[p.To]; s != nil {
		select {
		case s.in <- Packet{p.From, p.To, append([]byte{}, p.Data...)}:
		default:
		}
	}
}

// Sockets returns the open sockets, by address.
func (n *Net) Sockets() map[netip.AddrPort]*Socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.sockets)
}

// schedule sets the timer for the next packet. The caller holds the lock.
func (n *Net) schedule() {
	if due, ok := n.queue.Next(); ok {
		n.timer.Reset(due - time.Since(n.Began))
	}
}

func (n *Net) deliver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		p, _, _, ok := n.queue.Pop(time.Since(n.Began))
		if !ok {
			break
		}
		s := n.sockets[p.To]
		if s == nil {
			// The host reports it, at once, as with an ICMP message.
			if from := n.sockets[p.From]; from != nil {
				select {
				case from.Unreachable <- p.To:
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

// Socket is a net.PacketConn of a Net.
type Socket struct {
	Addr netip.AddrPort
	// Unreachable delivers addresses to which packets were sent in vain.
	Unreachable chan netip.AddrPort

	net    *Net
	node   int
	in     chan Packet
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	expired chan struct{} // closed when the read deadline has come
}

func (s *Socket) ReadFrom(b []byte) (int, net.Addr, error) {
	s.mu.Lock()
	expired := s.expired
	s.mu.Unlock()
	select {
	case p := <-s.in:
		return copy(b, p.Data), net.UDPAddrFromAddrPort(p.From), nil
	case <-s.closed:
		return 0, nil, net.ErrClosed
	case <-expired:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (s *Socket) WriteTo(b []byte, to net.Addr) (int, error) {
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
	}
	s.net.send(s, to.(*net.UDPAddr).AddrPort(), b)
	return len(b), nil
}

func (s *Socket) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.net.mu.Lock()
		if s.net.sockets[s.Addr] == s {
			delete(s.net.sockets, s.Addr)
		}
		s.net.mu.Unlock()
	})
	return nil
}

func (s *Socket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.Addr) }

// SetReadDeadline supports deadlines in the past, which end a read at once, and
// no deadline. The transport uses no others.
func (s *Socket) SetReadDeadline(t time.Time) error {
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

func (s *Socket) SetDeadline(t time.Time) error    { return s.SetReadDeadline(t) }
func (s *Socket) SetWriteDeadline(time.Time) error { return nil }
