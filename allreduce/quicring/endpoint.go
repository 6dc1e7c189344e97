package quicring

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
)

// Endpoint is one worker's end of the data plane: it listens for its ring
// predecessor and dials its successor. Its methods may be called from any
// goroutine, but it runs one reduction at a time.
type Endpoint struct {
	cfg       Config
	transport *quic.Transport
	listener  *quic.Listener
	inbox     inbox

	ctx       context.Context // ends with errClosed as its cause
	cancel    context.CancelCauseFunc
	received  atomic.Int64
	tasks     sync.WaitGroup
	unended   sync.WaitGroup // predecessors' streams, complete but for their end
	closeOnce sync.Once
	closeErr  error

	// reducing is held by the running reduction and, for good, by Close. It
	// guards what follows.
	reducing sync.Mutex
	next     *link // to the last successor, or nil
	buffers  *bufferPool

	mu      sync.Mutex
	inbound map[string]*quic.Conn // by the peer's name, at most maxInbound
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
		cfg:       cfg,
		transport: &quic.Transport{Conn: cfg.Conn},
		inbox:     inbox{log: cfg.Logger, held: make(map[string]*arrival)},
		inbound:   make(map[string]*quic.Conn),
	}
	var err error
	if e.listener, err = e.transport.Listen(cfg.serverTLS(), quicConfig(cfg.PacketSize)); err != nil {
		e.transport.Close()
		cfg.Conn.Close()
		return nil, fmt.Errorf("ring endpoint: %w", err)
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.tasks.Go(e.accept)
	return e, nil
}

// Received returns the number of bytes of frames received so far, in all
// reductions. While a reduction makes progress it grows.
func (e *Endpoint) Received() int64 { return e.received.Load() }

// Close aborts a running reduction, waits up to five seconds until both
// neighbours are done with the last finished one, and releases everything,
// the socket included. It returns the error of closing the socket.
func (e *Endpoint) Close() error {
	e.closeOnce.Do(func() {
		e.cancel(errClosed)
		e.reducing.Lock()
		if e.next != nil {
			e.next.close()
		}
		// A predecessor that has not ended its stream may still be inside its
		// last write, which closing the connection would fail.
		waitUpTo(closeTime, &e.unended, nil)
		e.listener.Close()
		e.mu.Lock()
		conns := e.inbound
		e.inbound = nil
		e.mu.Unlock()
		for _, conn := range conns {
			conn.CloseWithError(connClosing, "endpoint closed")
		}
		e.transport.Close()
		e.closeErr = e.cfg.Conn.Close()
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
		e.tasks.Go(func() { e.serve(conn) })
	}
}

// serve takes the streams of one peer until its connection ends.
func (e *Endpoint) serve(conn *quic.Conn) {
	// TLS has verified the chain: there is a certificate.
	leaf := conn.ConnectionState().TLS.PeerCertificates[0]
	name := peerName(leaf)
	if !e.admit(name, conn) {
		conn.CloseWithError(connRefused, "too many connections")
		e.cfg.Logger.Warn("refused a connection: too many", "peer", name, "addr", conn.RemoteAddr())
		return
	}
	defer e.dismiss(name, conn)
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

// receiveFirst reads a stream's first header and gives it to the inbox.
func (e *Endpoint) receiveFirst(stream *quic.Stream, leaf *x509.Certificate) {
	var b [allreduce.HeaderLen]byte
	stream.SetReadDeadline(time.Now().Add(holdTime))
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

// admit registers a peer's connection. A peer that dials again has lost its
// former connection, which is closed.
func (e *Endpoint) admit(name string, conn *quic.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.inbound[name]
	if e.inbound == nil || (old == nil && len(e.inbound) >= maxInbound) {
		return false
	}
	if old != nil {
		e.tasks.Go(func() { old.CloseWithError(connReplaced, "replaced by a new connection") })
	}
	e.inbound[name] = conn
	return true
}

func (e *Endpoint) dismiss(name string, conn *quic.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inbound[name] == conn {
		delete(e.inbound, name)
		e.inbox.drop(name)
	}
}
