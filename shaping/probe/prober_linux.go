package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// Listen opens a UDP socket in the namespace of a node, at a port, or at any if
// that is 0.
type Listen func(node string, port int) (*net.UDPConn, error)

// probePort is where nodes answer probes of other hosts.
const probePort = 7003

// Prober has sockets in the nodes of some pairs and measures those pairs.
type Prober struct {
	plan   *shaping.Plan
	pairs  []*pair
	nodes  map[int]*endpoint
	listen Listen
	// elsewhere says whether a node is on another host; nil where all are on this.
	elsewhere func(node int) bool
	stream    uint32
}

// pair is the state of one pair; the mutex guards what follows it.
type pair struct {
	Pair
	key  uint32
	from *endpoint
	to   *endpoint

	mu     sync.Mutex
	stream uint32 // what is under way; stragglers of others do not count
	seen   []bool // by sequence number
	lost   int    // or still under way
	delays []time.Duration
	rtts   []time.Duration
	frames []int64 // when the frames of a flow arrived
}

// endpoint is a node's socket for probes and its socket for flows, nil where the
// node is on another host.
type endpoint struct {
	addr  netip.Addr
	probe *net.UDPConn
	sink  *net.UDPConn
	peer  netip.AddrPort // of probe
	at    netip.AddrPort // of sink
}

// message is the payload of a probe. Times are nanoseconds of the wall clock,
// which is one for all namespaces; a step of it is noticed.
type message struct {
	Kind     uint32
	Pair     uint32 // its index
	Seq      uint32
	Stream   uint32
	Sent     int64
	Arrived  int64 // at the far end, for an echo
	Returned int64 // sent back
}

const (
	kindProbe = 0x7eb1 + iota // count it
	kindAsk                   // count it and send it back
	kindEcho                  // it is back
	kindFrame                 // of a flow

	messageSize = int(unsafe.Sizeof(message{}))
	payload     = shaping.MTU - 28
)

var _ = [1]struct{}{}[Frame-shaping.UDPHeaders-messageSize] // they agree

func (m *message) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(m)), messageSize) }

// New opens sockets for the pairs. elsewhere says which nodes are on other hosts,
// where a prober of the same pairs is: then only round trips from nodes of this
// one can be measured, and all are answered. It is nil where there is one host.
func New(plan *shaping.Plan, pairs []Pair, elsewhere func(node int) bool, listen Listen) (p *Prober, err error) {
	p = &Prober{plan: plan, nodes: map[int]*endpoint{}, listen: listen, elsewhere: elsewhere}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	for k, q := range pairs {
		for _, i := range []int{q.From, q.To} {
			if err := p.open(i); err != nil {
				return nil, fmt.Errorf("opening sockets in %s: %w", plan.Nodes[i].Name, err)
			}
		}
		p.pairs = append(p.pairs, &pair{Pair: q, key: uint32(k), from: p.nodes[q.From], to: p.nodes[q.To]})
	}
	for _, e := range p.nodes {
		if e.probe == nil {
			continue
		}
		go p.receive(e.probe, false)
		go p.receive(e.sink, true)
	}
	return p, nil
}

func (p *Prober) open(i int) (err error) {
	if p.nodes[i] != nil {
		return nil
	}
	e := &endpoint{addr: p.plan.Nodes[i].Addr.Addr()}
	p.nodes[i] = e
	port := 0
	if p.elsewhere != nil {
		port, e.peer = probePort, netip.AddrPortFrom(e.addr, probePort)
		if p.elsewhere(i) {
			return nil
		}
	}
	if e.probe, err = p.listen(p.plan.Nodes[i].Name, port); err != nil {
		return err
	}
	if e.sink, err = p.listen(p.plan.Nodes[i].Name, 0); err != nil {
		return err
	}
	e.peer, e.at = e.probe.LocalAddr().(*net.UDPAddr).AddrPort(), e.sink.LocalAddr().(*net.UDPAddr).AddrPort()
	for _, c := range []*net.UDPConn{e.probe, e.sink} {
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		var stamps error
		err = raw.Control(func(fd uintptr) {
			stamps = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
			// Beyond an ordinary user's limit where that is allowed.
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		})
		if err := errors.Join(err, stamps); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all sockets.
func (p *Prober) Close() {
	for _, e := range p.nodes {
		if e.probe != nil {
			e.probe.Close()
		}
		if e.sink != nil {
			e.sink.Close()
		}
	}
}

// receive takes what comes to a socket until it is closed.
func (p *Prober) receive(c *net.UDPConn, sink bool) {
	buf, control := make([]byte, 2048), make([]byte, 128)
	for {
		n, k, _, from, err := c.ReadMsgUDPAddrPort(buf, control)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		arrived := stamp(control[:k])
		var m message
		if n < messageSize || copy(m.bytes(), buf) != messageSize || int(m.Pair) >= len(p.pairs) {
			continue
		}
		q := p.pairs[m.Pair]
		if sink {
			q.mu.Lock()
			if m.Stream == q.stream {
				q.frames = append(q.frames, arrived)
			}
			q.mu.Unlock()
			continue
		}
		q.take(&m, arrived)
		if m.Kind == kindAsk {
			m.Kind, m.Arrived, m.Returned = kindEcho, arrived, now()
			_, _ = c.WriteToUDPAddrPort(m.bytes(), from) // a lost echo is missing from the round trips
		}
	}
}

func (q *pair) take(m *message, arrived int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case m.Stream != q.stream:
	case m.Kind == kindEcho:
		// The time inside the echoing program is no property of the link.
		q.rtts = append(q.rtts, time.Duration(arrived-m.Sent-(m.Returned-m.Arrived)))
	case int(m.Seq) < len(q.seen) && !q.seen[m.Seq]:
		q.seen[m.Seq] = true
		q.lost--
		q.delays = append(q.delays, time.Duration(arrived-m.Sent))
	}
}

func now() int64 { return time.Now().UnixNano() }

// stamp is when the kernel took a packet in, from its control message.
func stamp(control []byte) int64 {
	const header = unix.SizeofCmsghdr
	if len(control) >= header+16 {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		if h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPNS {
			return int64(binary.NativeEndian.Uint64(control[header:]))*1e9 + int64(binary.NativeEndian.Uint64(control[header+8:]))
		}
	}
	return now()
}
