package quicring

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
)

// Endpoint is one worker's end of the data plane: it listens for the peers that
// send to it and dials those it sends to. Its methods may be called from any
// goroutine. Up to eight reductions may run simultaneously.
type Endpoint struct {
	cfg       Config
	socket    net.PacketConn // cfg.Conn, in the form for QUIC
	transport *quic.Transport
	listener  *quic.Listener
	inbox     inbox
	coders    coderPool
	chooser   chooser

	ctx       context.Context // ends with errClosed as its cause
	cancel    context.CancelCauseFunc
	received  atomic.Int64 // bytes of frames, in order
	reached   atomic.Int64 // bytes of data at the socket, if it reports them
	due       atomic.Int64 // frames of running reductions not yet received
	tasks     sync.WaitGroup
	unended   sync.WaitGroup // peers' streams, complete but for their end
	closeOnce sync.Once
	closeErr  error

	// reducing is read-locked by running reductions and, permanently, locked by
	// Close.
	reducing sync.RWMutex

	life string // random, distinguishes this endpoint from an earlier one of its name

	mu      sync.Mutex
	runs    map[uint64]*run     // reductions under way, by epoch
	made    uint64              // links, ever
	ended   uint64              // reductions, ever
	links   map[string]*link    // by the peer's name
	inbound map[string]*inbound // by the peer's name, at most maxInbound
}

// inbound is a peer's link, seen from its other end.
type inbound struct {
	name  linkName
	conns []*quic.Conn
}

// Listen opens an endpoint on cfg.Conn and begins to accept connections. It
// fails when cfg is invalid or the socket unusable.
func Listen(cfg Config) (*Endpoint, error) {
	if err := cfg.check(); err != nil {
		if cfg.Conn != nil {
			cfg.Conn.Close()
		}
		return nil, fmt.Errorf("ring endpoint: %w", err)
	}
	e := &Endpoint{
		cfg:     cfg,
		inbox:   newInbox(cfg.Logger, cfg.patient(holdTime)),
		life:    rand.Text(),
		runs:    make(map[uint64]*run),
		links:   make(map[string]*link),
		inbound: make(map[string]*inbound),
	}
	e.socket = newSocket(cfg.Conn, e.waitsForLast, &e.reached)
	e.transport = &quic.Transport{Conn: e.socket}
	var err error
	if e.listener, err = e.transport.Listen(cfg.serverTLS(), cfg.quic()); err != nil {
		e.transport.Close()
		e.socket.Close()
		return nil, fmt.Errorf("ring endpoint: %w", err)
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.tasks.Go(e.accept)
	return e, nil
}

// Received grows while data arrives, for whatever reduction, even while a lost
// packet is awaited and nothing can be read in order.
func (e *Endpoint) Received() int64 { return e.received.Load() + e.reached.Load() }

// Waits returns the number of frames of an epoch's reduction that are still to
// come, and the peer that owes most of them; 0 if there is none under way.
func (e *Endpoint) Waits(epoch uint64) (peer string, due int64) {
	e.mu.Lock()
	r := e.runs[epoch]
	e.mu.Unlock()
	if r == nil {
		return "", 0
	}
	most := int64(0)
	for rank := range r.inputs {
		n := r.inputs[rank].due.Load()
		due += n
		if n > most {
			peer, most = r.op.Peers[rank].Name, n
		}
	}
	return peer, due
}

// lastFrames is the number of frames at a reduction's end during which nothing
// else happens: as many as a link of 400 Mbit/s carries in the time for which
// datagrams may accumulate.
const lastFrames = 4

// waitsForLast reports whether a reduction waits only for its last frames.
func (e *Endpoint) waitsForLast() bool {
	n := e.due.Load()
	return 0 < n && n <= lastFrames
}

// Close aborts running reductions, waits up to five seconds until all peers are
// done with the last finished one, and releases everything, including the
// socket. It returns the error of closing the socket.
func (e *Endpoint) Close() error {
	e.closeOnce.Do(func() {
		e.cancel(errClosed)
		e.reducing.Lock()
		var closing sync.WaitGroup
		e.mu.Lock()
		for _, l := range e.links {
			closing.Go(l.close)
		}
		e.mu.Unlock()
		closing.Wait()
		// A peer that has not ended its stream may still be inside its
		// last write, which closing the connection would fail.
		waitToClose(&e.unended, e.cfg.patient(closeTime), nil)
		e.listener.Close()
		e.mu.Lock()
		conns := e.inbound
		e.inbound = nil
		e.mu.Unlock()
		for _, of := range conns {
			for _, conn := range of.conns {
				conn.CloseWithError(connClosing, "endpoint closed")
			}
		}
		e.transport.Close()
		e.closeErr = e.socket.Close()
		e.tasks.Wait()
	})
	return e.closeErr
}

// accept serves the connections of peers until the listener closes.
func (e *Endpoint) accept() {
	for {
		conn, err := e.listener.Accept(e.ctx)
		if err != nil {
			return
		}
		// TLS has verified the chain: there is a certificate.
		state := conn.ConnectionState().TLS
		leaf := state.PeerCertificates[0]
		name := peerName(leaf)
		if why := e.admit(name, linkNamed(state.NegotiatedProtocol), conn); why != "" {
			e.tasks.Go(func() { conn.CloseWithError(connRefused, why) })
			e.cfg.Logger.Warn("refused a connection", "peer", name, "addr", conn.RemoteAddr(), "reason", why)
			continue
		}
		e.tasks.Go(func() { e.serve(conn, leaf) })
	}
}

// serve handles the streams of one peer until its connection ends.
func (e *Endpoint) serve(conn *quic.Conn, leaf *x509.Certificate) {
	defer e.dismiss(leaf, conn)
	for {
		// Not until e.ctx ends: Close must still find the connection here.
		stream, err := conn.AcceptStream(conn.Context())
		if err != nil {
			return
		}
		// QUIC's stream limit bounds these per connection.
		e.tasks.Go(func() { e.receiveFirst(stream, leaf) })
	}
}

// receiveFirst reads a stream's first header and passes the stream to the
// inbox.
func (e *Endpoint) receiveFirst(stream *quic.Stream, leaf *x509.Certificate) {
	var b [allreduce.HeaderLen]byte
	stream.SetReadDeadline(time.Now().Add(e.cfg.patient(holdTime)))
	_, err := io.ReadFull(stream, b[:])
	var h allreduce.Header
	if err == nil {
		stream.SetReadDeadline(time.Time{})
		h, err = allreduce.ParseHeader(b[:])
	}
	if err != nil {
		reset(stream, codeMalformed)
		e.inbox.unreadable(leaf, explain(err))
		return
	}
	e.inbox.offer(&arrival{stream: stream, leaf: leaf, first: h})
}

// admit registers a peer's connection. A peer that makes a new link has left or
// lost its former one. The former link's connections are closed. If admit refuses
// the connection, it returns the reason.
func (e *Endpoint) admit(peer string, name linkName, conn *quic.Conn) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.inbound[peer]
	switch {
	case e.inbound == nil:
		return "the endpoint is closing"
	case old == nil && len(e.inbound) >= maxInbound:
		return "too many peers are connected"
	case old != nil && old.name == name:
		if len(old.conns) >= allreduce.MaxConnections {
			return "the peer has too many connections"
		}
		old.conns = append(old.conns, conn)
		return ""
	case old != nil && old.name.life == name.life && old.name.number > name.number:
		return "a later link of the peer has replaced the connection's link"
	case old != nil:
		for _, c := range old.conns {
			e.tasks.Go(func() { c.CloseWithError(connReplaced, "replaced by a new connection") })
		}
	}
	e.inbound[peer] = &inbound{name, []*quic.Conn{conn}}
	return ""
}

func (e *Endpoint) dismiss(leaf *x509.Certificate, conn *quic.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := peerName(leaf)
	in := e.inbound[name]
	if in == nil || !slices.Contains(in.conns, conn) {
		return // closed, or replaced
	}
	in.conns = slices.DeleteFunc(in.conns, func(c *quic.Conn) bool { return c == conn })
	if len(in.conns) == 0 {
		delete(e.inbound, name)
		e.inbox.drop(leaf)
	}
}
