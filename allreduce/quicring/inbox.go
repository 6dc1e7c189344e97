package quicring

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
)

// arrival is a stream whose first header has been read.
type arrival struct {
	stream *quic.Stream
	leaf   *x509.Certificate // of the peer that opened it
	first  allreduce.Header
	rank   int // of that peer, once a reduction has taken the stream
}

// expectation is a running reduction's claim to its peers' streams.
type expectation struct {
	epoch uint64
	from  []Peer
	ranks []int // of from
	fail  func(error)
	gone  func(rank int)

	taken []int // streams taken, by the index in from
	// arrived holds taken streams until the reduction fetches them. ready has a
	// token when there are any.
	arrived []*arrival
	ready   chan struct{}
}

// earlyStreams are the stored streams of one peer and epoch.
type earlyStreams struct {
	arrivals []*arrival
	expiry   *time.Timer
}

// inbox matches streams with reductions. Streams of past epochs are refused. Of
// future epochs, the latest of every peer is kept until its reduction begins
// here, for at most hold.
type inbox struct {
	log  *slog.Logger
	hold time.Duration

	mu      sync.Mutex
	current map[uint64]*expectation // by epoch, at most maxReductions
	begun   bool
	last    uint64                              // highest epoch begun
	early   map[string]map[uint64]*earlyStreams // by the peer's name and epoch
}

func newInbox(log *slog.Logger, hold time.Duration) inbox {
	return inbox{log: log, hold: hold, current: make(map[uint64]*expectation), early: make(map[string]map[uint64]*earlyStreams)}
}

// begin opens x's epoch to the streams of its peers. x.fail is called when a
// peer sends something invalid. x.gone is called when a peer's connections have
// ended after some of its streams were taken.
func (b *inbox) begin(x *expectation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.begun && x.epoch <= b.last:
		return fmt.Errorf("the epoch must be above the last epoch, %d", b.last)
	case len(b.current) >= maxReductions:
		return fmt.Errorf("%d reductions, the limit, are already running on this endpoint", len(b.current))
	}
	b.begun, b.last = true, x.epoch
	x.taken = make([]int, len(x.from))
	x.ready = make(chan struct{}, 1)
	b.current[x.epoch] = x
	for name, epochs := range b.early {
		for epoch, h := range epochs {
			if epoch <= x.epoch {
				b.forget(name, epoch)
				for _, a := range h.arrivals {
					b.match(a)
				}
			}
		}
	}
	return nil
}

// end closes x's epoch: later streams for it are refused.
func (b *inbox) end(x *expectation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range x.arrived {
		reset(a.stream, codeAborted)
	}
	x.arrived = nil
	delete(b.current, x.epoch)
}

// fetch returns the streams that came for x since the last call.
func (b *inbox) fetch(x *expectation) []*arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := x.arrived
	x.arrived = nil
	return got
}

// offer accepts a stream, or resets it.
func (b *inbox) offer(a *arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	epoch := a.first.Epoch
	if b.begun && epoch <= b.last {
		b.match(a)
		return
	}
	name := peerName(a.leaf)
	h := b.early[name][epoch]
	if h == nil {
		if h = b.makeRoom(name, epoch); h == nil {
			b.refuse(a, codeStale)
			return
		}
	}
	if len(h.arrivals) >= allreduce.MaxConnections {
		b.refuse(a, codeStranger)
		return
	}
	h.arrivals = append(h.arrivals, a)
}

// makeRoom makes room for a peer's streams of a future epoch, by dropping an
// earlier one. It returns nil if all stored epochs are later.
func (b *inbox) makeRoom(name string, epoch uint64) *earlyStreams {
	epochs := b.early[name]
	if epochs == nil {
		epochs = make(map[uint64]*earlyStreams)
		b.early[name] = epochs
	}
	if len(epochs) >= maxReductions {
		earliest := epoch
		for e := range epochs {
			earliest = min(earliest, e)
		}
		if earliest == epoch {
			return nil
		}
		for _, a := range epochs[earliest].arrivals {
			b.refuse(a, codeStale)
		}
		b.forget(name, earliest)
		epochs = b.early[name]
	}
	h := &earlyStreams{}
	h.expiry = time.AfterFunc(b.hold, func() { b.expire(name, epoch, h) })
	epochs[epoch] = h
	return h
}

// forget drops the stored streams of a peer's epoch.
func (b *inbox) forget(name string, epoch uint64) {
	b.early[name][epoch].expiry.Stop()
	delete(b.early[name], epoch)
	if len(b.early[name]) == 0 {
		delete(b.early, name)
	}
}

// match gives a to the running reduction that waits for it.
func (b *inbox) match(a *arrival) {
	x := b.current[a.first.Epoch]
	if x == nil {
		b.refuse(a, codeStale)
		return
	}
	i := x.index(a.leaf)
	if i < 0 || x.taken[i] >= allreduce.MaxConnections {
		b.refuse(a, codeStranger)
		return
	}
	x.taken[i]++
	a.rank = x.ranks[i]
	x.arrived = append(x.arrived, a)
	select {
	case x.ready <- struct{}{}:
	default:
	}
}

// index is the index of the peer with this certificate, or -1.
func (x *expectation) index(leaf *x509.Certificate) int {
	for i, p := range x.from {
		if leaf.VerifyHostname(p.Name) == nil {
			return i
		}
	}
	return -1
}

// unreadable is called when a stream of the peer with this certificate does not
// begin with a header.
func (b *inbox) unreadable(leaf *x509.Certificate, err error) {
	b.log.Warn("refused a stream", "peer", peerName(leaf), "err", err)
	b.mu.Lock()
	defer b.mu.Unlock()
	// A reset or timed-out stream may be of any epoch. Only a malformed header is
	// certainly a fault of a running reduction's peer.
	if !errors.Is(err, allreduce.ErrHeader) {
		return
	}
	for _, x := range b.current {
		if i := x.index(leaf); i >= 0 {
			x.fail(&PeerError{x.from[i].Name, fmt.Errorf("receive from %s: %w", x.from[i].Name, err)})
		}
	}
}

func (b *inbox) expire(name string, epoch uint64, h *earlyStreams) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.early[name][epoch] == h {
		for _, a := range h.arrivals {
			b.refuse(a, codeExpired)
		}
		b.forget(name, epoch)
	}
}

// drop forgets the stored streams of a peer whose connections have ended.
func (b *inbox) drop(leaf *x509.Certificate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := peerName(leaf)
	for epoch := range b.early[name] {
		b.forget(name, epoch)
	}
	for _, x := range b.current {
		if i := x.index(leaf); i >= 0 && x.taken[i] > 0 {
			x.gone(x.ranks[i])
		}
	}
}

func (b *inbox) refuse(a *arrival, code quic.StreamErrorCode) {
	b.log.Info("refused a stream", "peer", peerName(a.leaf), "epoch", a.first.Epoch, "reason", refusal(code))
	reset(a.stream, code)
}

// refusal says why a stream is refused.
func refusal(code quic.StreamErrorCode) string {
	switch code {
	case codeStale:
		return "the reduction of the stream is over"
	case codeStranger:
		return "the reduction expects no stream from the peer"
	}
	return "the reduction of the stream did not begin in time"
}

// peerName is the name by which a peer's connections and streams are counted.
// It may be empty. VerifyHostname decides which peer a stream is from.
func peerName(leaf *x509.Certificate) string {
	if len(leaf.DNSNames) == 0 {
		return ""
	}
	return leaf.DNSNames[0]
}
