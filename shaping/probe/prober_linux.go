package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// Listen opens a UDP socket in the namespace of a node, at a port, or at any
// port if it is 0.
type Listen func(node string, port int) (*net.UDPConn, error)

// Ports for probes and flows in the nodes. Each node has a network of its own.
const probePort, sinkPort = 7003, 7004

// Prober has sockets in the nodes of this host, and carries out a Crew's steps
// there.
type Prober struct {
	plan   *shaping.Plan
	pairs  []*pair
	nodes  map[int]*endpoint
	listen Listen
	step   Step
	began  reading
}

// pair is the state of one pair; the mutex guards what follows it.
type pair struct {
	Pair
	key  uint32
	from *endpoint
	to   *endpoint

	mu     sync.Mutex
	step   uint32 // the step under way; packets of others do not count
	seen   []bool // by sequence number
	lost   int    // includes those still under way
	delays []time.Duration
	rtts   []time.Duration
	frames []int64 // arrival times of a flow's frames
}

// endpoint is a node with its socket for probes and its socket for flows, both
// nil if the node is on another host.
type endpoint struct {
	addr  netip.Addr
	probe *net.UDPConn
	sink  *net.UDPConn
}

// message is the payload of a probe. Times are nanoseconds of the wall clock,
// which all namespaces share. Steps of the clock are noticed.
type message struct {
	Kind     uint32
	Pair     uint32 // its index
	Seq      uint32
	Step     uint32
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

// New opens sockets for the pairs, in their nodes on this host.
func New(plan *shaping.Plan, pairs []Pair, here func(node int) bool, listen Listen) (p *Prober, err error) {
	p = &Prober{plan: plan, nodes: map[int]*endpoint{}, listen: listen}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	for k, q := range pairs {
		for _, i := range []int{q.From, q.To} {
			if p.nodes[i] != nil {
				continue
			}
			p.nodes[i] = &endpoint{addr: plan.Nodes[i].Addr.Addr()}
			if !here(i) {
				continue
			}
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
	e := p.nodes[i]
	if e.probe, err = p.listen(p.plan.Nodes[i].Name, probePort); err != nil {
		return err
	}
	if e.sink, err = p.listen(p.plan.Nodes[i].Name, sinkPort); err != nil {
		return err
	}
	for _, c := range []*net.UDPConn{e.probe, e.sink} {
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		var stamps error
		err = raw.Control(func(fd uintptr) {
			stamps = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
			// Beyond an ordinary user's limit, if allowed.
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		})
		if err := errors.Join(err, stamps); err != nil {
			return err
		}
	}
	return nil
}

// Begin prepares for a step, before any prober sends: packets that arrive from
// now on belong to it.
func (p *Prober) Begin(step Step) {
	p.step, p.began = step, clocks()
	for _, q := range p.pairs {
		q.mu.Lock()
		q.step, q.seen, q.lost, q.delays, q.rtts, q.frames = step.Number, nil, 0, nil, nil, nil
		q.mu.Unlock()
	}
	for _, s := range step.Probes {
		q := p.pairs[s.Pair]
		q.mu.Lock()
		q.seen, q.lost = make([]bool, s.Count), s.Count
		q.mu.Unlock()
	}
}

// Do sends the packets from this host, and waits for the last to arrive.
func (p *Prober) Do() {
	var all sync.WaitGroup
	end := time.Now().Add(p.step.Time)
	for _, f := range p.step.Flows {
		if q := p.pairs[f.Pair]; q.from.probe != nil {
			all.Go(func() { p.flow(q, f, end) })
		}
	}
	if len(p.step.Flows) > 0 && len(p.step.Probes) > 0 {
		time.Sleep(settle)
	}
	for _, s := range p.step.Probes {
		if q := p.pairs[s.Pair]; q.from.probe != nil {
			all.Go(func() { q.send(p.step, s) })
		}
	}
	all.Wait()
	time.Sleep(p.step.Far + settle)
}

// Saw returns the observations of the step.
func (p *Prober) Saw() Seen {
	end := clocks()
	seen := Seen{Pairs: make([]Saw, len(p.pairs)), Wall: end.wall - end.steady, Stepped: (end.wall - p.began.wall) - (end.steady - p.began.steady)}
	for k, q := range p.pairs {
		q.mu.Lock()
		seen.Pairs[k] = Saw{Delays: q.delays, RTTs: q.rtts, Lost: q.lost}
		seen.Pairs[k].Rate, seen.Pairs[k].Frames = steady(q.frames, p.step.Time)
		q.mu.Unlock()
	}
	return seen
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

// receive handles a socket's packets until it is closed.
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
			if m.Step == q.step {
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
	case m.Step != q.step:
	case m.Kind == kindEcho:
		// The time inside the echoing program is not a property of the link.
		q.rtts = append(q.rtts, time.Duration(arrived-m.Sent-(m.Returned-m.Arrived)))
	case int(m.Seq) < len(q.seen) && !q.seen[m.Seq]:
		q.seen[m.Seq] = true
		q.lost--
		q.delays = append(q.delays, time.Duration(arrived-m.Sent))
	}
}

// leastSleep is the shortest worthwhile sleep.
const leastSleep = time.Millisecond

// send sends probes a gap apart, with a random start, so that those of all
// pairs do not meet.
func (q *pair) send(step Step, s Series) {
	m := message{Kind: kindProbe, Pair: q.key, Step: step.Number}
	if step.Echo {
		m.Kind = kindAsk
	}
	to := netip.AddrPortFrom(q.to.addr, probePort)
	start := time.Now().Add(rand.N(s.Gap))
	for seq := range s.Count {
		if wait := time.Until(start.Add(time.Duration(seq) * s.Gap)); wait > leastSleep {
			time.Sleep(wait)
		}
		m.Seq, m.Sent = uint32(seq), now()
		_, _ = q.from.probe.WriteToUDPAddrPort(m.bytes(), to) // one that is not sent is lost
	}
}

// catchUp is the largest lateness that a sender of a flow makes up for.
const catchUp = 20 * time.Millisecond

// flow sends full frames until the end.
func (p *Prober) flow(q *pair, f Stream, end time.Time) {
	c, err := p.listen(p.plan.Nodes[q.From].Name, 0)
	if err != nil {
		return // nothing arrives, which shows
	}
	defer c.Close()
	_ = c.SetWriteBuffer(f.Buffer)
	_ = c.SetWriteDeadline(end)
	frame := make([]byte, payload)
	m := message{Kind: kindFrame, Pair: q.key, Step: p.step.Number}
	copy(frame, m.bytes())
	to := netip.AddrPortFrom(q.to.addr, sinkPort)
	begin, each := time.Now(), shaping.FrameSize*8/f.Rate
	for n := 0; ; n++ {
		ahead := time.Duration(float64(n-f.Lead)*each*1e9) - time.Since(begin)
		if n < f.Lead {
			begin = time.Now()
		} else if ahead > leastSleep {
			time.Sleep(ahead)
		} else if ahead < -catchUp {
			begin = begin.Add(-ahead)
		}
		if _, err := c.WriteToUDPAddrPort(frame, to); os.IsTimeout(err) || time.Now().After(end) {
			return
		}
	}
}

// reading is a reading of both clocks.
type reading struct{ wall, steady time.Duration }

// clocks reads both clocks. The thread may be preempted in between, so the
// closest of several readings counts.
func clocks() (r reading) {
	steady := func() time.Duration {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
		return time.Duration(ts.Nano())
	}
	shortest := time.Duration(math.MaxInt64)
	for range 10 {
		before, wall := steady(), now()
		if took := steady() - before; took < shortest {
			shortest, r = took, reading{time.Duration(wall), before + took/2}
		}
	}
	return r
}

func now() int64 { return time.Now().UnixNano() }

// stamp is the time at which the kernel received a packet, from its control
// message.
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
