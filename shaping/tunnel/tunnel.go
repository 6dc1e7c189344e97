package tunnel

import (
	"crypto/cipher"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

const (
	// openingAsks is the number of round trips measured before the first frame,
	// and openingGap their distance: enough for the 99.9th percentile.
	openingAsks = 1000
	openingGap  = time.Millisecond
	// askGap is the distance of later round trips: 20 in a window.
	askGap = 50 * time.Millisecond
	// maxHalves is the most halves that may wait for their other halves.
	maxHalves = 256
)

// Host is an end of the tunnel.
type Host struct {
	Name string         `json:"name"`
	Addr netip.AddrPort `json:"addr"` // of its socket
}

// Config lists the ends of a tunnel: all hosts of a run. This host is Self.
type Config struct {
	Self   int    `json:"self"`
	Hosts  []Host `json:"hosts"`
	Secret []byte `json:"secret"`
}

// Stats counts what has come from one host to another so far.
type Stats struct {
	From   string `json:"from"`
	To     string `json:"to"` // this one
	Frames uint64 `json:"frames"`
	Lost   uint64 `json:"lost"` // datagrams that the underlay has lost, or still holds
	// Late counts frames that came after they were due, LateMax is the largest
	// delay: the underlay was slower than the plan.
	Late    uint64        `json:"late"`
	LateMax time.Duration `json:"late_max_ns"`
	// Forged counts datagrams that no host of the run has sent, Replayed those
	// that had come before.
	Forged   uint64 `json:"forged"`
	Replayed uint64 `json:"replayed"`
	// Offset is this host's clock less the other one's, as last measured, and
	// Bound the bound of its error.
	Offset time.Duration `json:"clock_offset_ns"`
	Bound  time.Duration `json:"clock_bound_ns"`
}

// outlet is where datagrams go. reserve returns room for a datagram of that
// size, which is sent once it is filled.
type outlet interface {
	reserve(host, size int) []byte
}

// ends is the tunnel without its socket. Times are of the clock of this host.
type ends struct {
	self  int
	peers []*peer // by host; nil for this one
	out   outlet
}

// peer is another host.
type peer struct {
	stats      Stats
	seal, open cipher.AEAD
	// next has the numbers of the next datagrams to it, seen the numbers that came
	// from it: one each for frames, and for asks and answers, which may be lost.
	next     [2]uint64
	seen     [2]window
	received uint64 // of frames
	halves   [maxHalves]half
	joined   []byte

	clock   Clock
	fits    bool            // a whole frame fits into a datagram to it
	asked   int             // so far
	nextAsk time.Duration   // when the next ask is due
	heard   time.Duration   // when its last answer came; 0 before
	rtts    []time.Duration // of the opening
}

// half is the first half of a frame to arrive.
type half struct {
	kind   byte   // which half it is; 0: none
	number uint64 // of the first half
	text   []byte
}

func newEnds(c Config, out outlet) (*ends, error) {
	e := &ends{self: c.Self, out: out}
	for k, h := range c.Hosts {
		if k == c.Self {
			e.peers = append(e.peers, nil)
			continue
		}
		p := &peer{stats: Stats{From: h.Name, To: c.Hosts[c.Self].Name}}
		var err error
		if p.seal, err = newSeal(c.Secret, c.Self, k); err != nil {
			return nil, err
		}
		if p.open, err = newSeal(c.Secret, k, c.Self); err != nil {
			return nil, err
		}
		e.peers = append(e.peers, p)
	}
	return e, nil
}

// Send sends a frame to another host at once.
func (e *ends) Send(host int, f *Frame) {
	p := e.peers[host]
	if p.fits || len(f.Data) <= alwaysFits {
		d := e.begin(host, kindWhole, frameSize+len(f.Data))
		f.put(d[headerSize:])
		copy(d[headerSize+frameSize:], f.Data)
		p.finish(d)
		return
	}
	size := max((frameSize+len(f.Data)+1)/2, frameSize)
	d := e.begin(host, kindFirst, size)
	f.put(d[headerSize:])
	n := copy(d[headerSize+frameSize:headerSize+size], f.Data)
	p.finish(d)
	d = e.begin(host, kindSecond, size)
	rest := d[headerSize : headerSize+size]
	clear(rest[copy(rest, f.Data[n:]):])
	p.finish(d)
}

// begin returns room for a datagram with so many bytes to seal, and its header.
func (e *ends) begin(host int, kind byte, size int) []byte {
	p := e.peers[host]
	d := e.out.reserve(host, headerSize+size+tagSize)
	next := &p.next[space(kind)]
	header{kind, uint16(e.self), *next}.put(d)
	*next++
	return d
}

// space is the number space of a kind. The kind is part of the nonce, so two
// spaces may use the same number.
func space(kind byte) int {
	if kind == kindAsk || kind == kindAnswer {
		return 1
	}
	return 0
}

// finish seals a datagram.
func (p *peer) finish(d []byte) {
	p.seal.Seal(d[headerSize:headerSize], d[:headerSize], d[headerSize:len(d)-tagSize], nil)
}

// take takes a datagram that came at a time, and returns the frame that it
// completes, if it does. The frame's due time is by this host's clock, and its
// data is valid until the next call. Frames that came after they were due are
// counted.
func (e *ends) take(d []byte, at, now time.Duration) (f Frame, ok bool) {
	h, ok := readHeader(d)
	if !ok || int(h.source) >= len(e.peers) || e.peers[h.source] == nil {
		e.forged()
		return f, false
	}
	p := e.peers[h.source]
	seen := &p.seen[space(h.kind)]
	if !seen.isNew(h.number) {
		p.stats.Replayed++
		return f, false
	}
	sealed := d[headerSize:]
	text, err := p.open.Open(sealed[:0], d[:headerSize], sealed, nil)
	if err != nil {
		p.stats.Forged++
		return f, false
	}
	seen.take(h.number)
	if space(h.kind) == 0 {
		p.received++
	}
	switch h.kind {
	case kindWhole:
		f, ok = readFrame(text)
	case kindFirst:
		f, ok = p.join(h.number, h.kind, text)
	case kindSecond:
		f, ok = p.join(h.number-1, h.kind, text)
	case kindAsk:
		e.answer(int(h.source), text, at, now)
		return f, false
	case kindAnswer:
		p.answered(text, at)
		return f, false
	default:
		ok = false
	}
	if ok {
		f.Due, f.At = f.Due+p.clock.Offset, at
		p.count(f.Due, at)
	}
	return f, ok
}

// forged counts a datagram that names no host of the run.
func (e *ends) forged() {
	for _, p := range e.peers {
		if p != nil {
			p.stats.Forged++
			return
		}
	}
}

// join returns the frame of two halves, when the second one arrives. number is
// the first half's.
func (p *peer) join(number uint64, kind byte, text []byte) (f Frame, ok bool) {
	wait := &p.halves[number%maxHalves]
	if wait.number != number || wait.kind == 0 || wait.kind == kind {
		wait.kind, wait.number, wait.text = kind, number, append(wait.text[:0], text...)
		return f, false
	}
	wait.kind = 0
	first, second := text, wait.text
	if kind == kindSecond {
		first, second = second, first
	}
	p.joined = append(append(p.joined[:0], first...), second...)
	return readFrame(p.joined)
}

// count counts a frame that came at a time.
func (p *peer) count(due, at time.Duration) {
	p.stats.Frames++
	if late := at - due; late > 0 {
		p.stats.Late++
		p.stats.LateMax = max(p.stats.LateMax, late)
	}
}

// ask asks for the clocks of hosts when it is time.
func (e *ends) ask(now time.Duration) {
	for host, p := range e.peers {
		if p == nil || now < p.nextAsk {
			continue
		}
		size, gap := clockSize, askGap
		if !p.opened() {
			gap = openingGap
			if p.asked%2 == 1 { // an answer to this ask shows that whole frames arrive
				size = frameSize + MaxFrame
			}
		}
		p.asked++
		p.nextAsk = now + gap
		d := e.begin(host, kindAsk, size)
		text := d[headerSize : headerSize+size]
		clear(text[8:])
		binary.BigEndian.PutUint64(text, uint64(now))
		binary.BigEndian.PutUint64(text[16:], uint64(size))
		p.finish(d)
	}
}

// nextAsk is the time of the next ask.
func (e *ends) nextAsk() (at time.Duration, ok bool) {
	for _, p := range e.peers {
		if p != nil && (!ok || p.nextAsk < at) {
			at, ok = p.nextAsk, true
		}
	}
	return at, ok
}

// answer answers a host that asked.
func (e *ends) answer(host int, ask []byte, at, now time.Duration) {
	if len(ask) < clockSize || binary.BigEndian.Uint64(ask[16:]) != uint64(len(ask)) {
		return
	}
	d := e.begin(host, kindAnswer, 8+clockSize)
	text := d[headerSize:]
	copy(text, ask[:8])
	binary.BigEndian.PutUint64(text[8:], uint64(at))
	binary.BigEndian.PutUint64(text[16:], uint64(now))
	binary.BigEndian.PutUint64(text[24:], uint64(len(ask)))
	e.peers[host].finish(d)
}

// answered handles an answer that came at a time.
func (p *peer) answered(text []byte, at time.Duration) {
	if len(text) != 8+clockSize {
		return
	}
	stamp := func(k int) time.Duration { return time.Duration(binary.BigEndian.Uint64(text[8*k:])) }
	rtt := p.clock.take(stamp(0), stamp(1), stamp(2), at)
	p.heard = at
	p.fits = p.fits || !p.opened() && stamp(3) > clockSize
	if !p.opened() {
		if p.rtts = append(p.rtts, rtt); p.opened() {
			p.clock.settle()
		}
	}
}

// opened reports whether the way to the host has been measured enough.
func (p *peer) opened() bool { return len(p.rtts) >= openingAsks }

// Opened reports whether the ways to all hosts have been measured enough. Until
// then no frame may be sent. waiting names a host whose way is not, and answered
// is the time of its last answer, or 0.
func (e *ends) Opened() (ok bool, waiting string, answered time.Duration) {
	for _, p := range e.peers {
		if p != nil && !p.opened() {
			return false, p.stats.From, p.heard
		}
	}
	return true, "", 0
}

// OneWay is the underlay's delay to a host, from the opening: half of the round
// trip's 99.9th percentile.
func (e *ends) OneWay(host int) time.Duration {
	rtts := slices.Sorted(slices.Values(e.peers[host].rtts))
	if len(rtts) == 0 {
		return 0
	}
	return rtts[len(rtts)*999/1000] / 2
}

// Reopen measures the way to a host again.
func (e *ends) Reopen(host int) { e.peers[host].rtts = nil }

// Stats returns the counts of each host so far.
func (e *ends) Stats() (all []Stats) {
	for _, p := range e.peers {
		if p != nil {
			s := p.stats
			s.Lost = p.seen[0].next - p.received
			s.Offset, s.Bound = p.clock.Offset, p.clock.Bound
			all = append(all, s)
		}
	}
	return all
}
