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
	expiry *time.Timer // while held
}

// expectation is the running reduction's claim to its predecessor's stream.
type expectation struct {
	epoch   uint64
	from    string        // the predecessor's name
	arrived chan *arrival // capacity one, filled at most once
	taken   bool
	fail    func(error)
}

// inbox matches streams with reductions. Streams of past epochs are refused;
// of future ones the latest of every peer is held until its reduction begins
// here, for at most holdTime.
type inbox struct {
	log *slog.Logger

	mu      sync.Mutex
	current *expectation
	begun   bool
	last    uint64              // highest epoch begun
	held    map[string]*arrival // by the peer's name
}

// begin opens epoch to the stream of the peer named from. fail is called when
// that peer sends something that cannot be understood.
func (b *inbox) begin(epoch uint64, from string, fail func(error)) (*expectation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.begun && epoch <= b.last {
		return nil, fmt.Errorf("epoch is not above the last one, %d", b.last)
	}
	b.begun, b.last = true, epoch
	x := &expectation{epoch: epoch, from: from, arrived: make(chan *arrival, 1), fail: fail}
	b.current = x
	for name, a := range b.held {
		if a.first.Epoch <= epoch {
			a.expiry.Stop()
			delete(b.held, name)
			b.match(a)
		}
	}
	return x, nil
}

// end closes the running epoch: whatever still comes for it is refused.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case a := <-b.current.arrived:
		reset(a.stream, codeAborted)
	default:
	}
	b.current = nil
}

// offer takes a stream in, or resets it.
func (b *inbox) offer(a *arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.begun && a.first.Epoch <= b.last {
		b.match(a)
		return
	}
	name := peerName(a.leaf)
	if old := b.held[name]; old != nil {
		if old.first.Epoch >= a.first.Epoch {
			b.refuse(a, codeStale)
			return
		}
		old.expiry.Stop()
		b.refuse(old, codeStale)
	}
	b.held[name] = a
	a.expiry = time.AfterFunc(holdTime, func() { b.expire(name, a) })
}

// match gives a to the running reduction if it is what that waits for.
func (b *inbox) match(a *arrival) {
	x := b.current
	switch {
	case x == nil || x.epoch != a.first.Epoch:
		b.refuse(a, codeStale)
	case a.leaf.VerifyHostname(x.from) != nil || x.taken:
		b.refuse(a, codeStranger)
	default:
		x.taken = true
		x.arrived <- a
	}
}

// unreadable is told that a stream of the peer with this certificate did not
// begin with a header.
func (b *inbox) unreadable(leaf *x509.Certificate, err error) {
	b.log.Warn("refused a stream", "peer", peerName(leaf), "err", err)
	b.mu.Lock()
	defer b.mu.Unlock()
	// A reset or timed-out stream may be of any epoch; only a malformed header
	// is the running predecessor's fault for certain.
	if x := b.current; x != nil && !x.taken && errors.Is(err, allreduce.ErrHeader) && leaf.VerifyHostname(x.from) == nil {
		x.fail(&PeerError{x.from, fmt.Errorf("receive from %s: %w", x.from, err)})
	}
}

func (b *inbox) expire(name string, a *arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[name] == a {
		delete(b.held, name)
		b.refuse(a, codeExpired)
	}
}

// drop forgets what is held from a peer whose connection has ended.
func (b *inbox) drop(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.held[name]; a != nil {
		a.expiry.Stop()
		delete(b.held, name)
	}
}

func (b *inbox) refuse(a *arrival, code quic.StreamErrorCode) {
	b.log.Info("refused a stream", "peer", peerName(a.leaf), "epoch", a.first.Epoch, "code", int(code))
	reset(a.stream, code)
}

// peerName is the name by which a peer's connections and streams are counted.
// It may be empty; who a stream is from is decided by VerifyHostname.
func peerName(leaf *x509.Certificate) string {
	if len(leaf.DNSNames) == 0 {
		return ""
	}
	return leaf.DNSNames[0]
}
