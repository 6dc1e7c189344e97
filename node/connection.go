package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/node/identity"
	"testbed/policy"
)

// partingPatience limits how long a worker waits for the coordinator's
// acknowledgement of its last message.
const partingPatience = 2 * time.Second

// How a worker connects again: it soon gives up an attempt, since within one it
// would ask ever more rarely. It waits longer before each attempt, up to
// longestWait.
const (
	shortestAttempt = 500 * time.Millisecond
	shortestWait    = 50 * time.Millisecond
	longestWait     = 250 * time.Millisecond
)

// connection is a worker's connection to the coordinator. When another
// coordinator has replaced the one before, the session goes on over a new line
// to it. One goroutine uses the connection, except for oneWayDelay.
type connection struct {
	cfg       *WorkerConfig
	heartbeat func() message // called by another goroutine
	greeting  message        // hello
	transport *quic.Transport
	session   session

	inbox    chan message      // messages from the coordinator
	lost     chan error        // how a line ended
	again    chan reconnection // the result of reopen
	attempts sync.WaitGroup
	oneWay   atomic.Int64 // half a round trip to the coordinator, in ns
}

type reconnection struct {
	line *line
	err  error
}

func newConnection(cfg *WorkerConfig, heartbeat func() message) *connection {
	return &connection{
		cfg: cfg, heartbeat: heartbeat, transport: &quic.Transport{Conn: cfg.Control},
		greeting: message{Type: msgHello, Protocol: protocol, ID: cfg.ID, Incarnation: cfg.Incarnation, Ring: addrPort(cfg.Ring), Fetch: addrPort(cfg.Fetch)},
		inbox:    make(chan message), lost: make(chan error, 1), again: make(chan reconnection, 1),
	}
}

// anew returns a connection over which the worker asks to join again.
func (c *connection) anew() *connection {
	again := newConnection(c.cfg, c.heartbeat)
	again.transport, again.greeting = c.transport, c.greeting
	again.greeting.Rejoins++
	return again
}

func addrPort(c net.PacketConn) netip.AddrPort {
	a, _ := netip.ParseAddrPort(c.LocalAddr().String())
	return a
}

// open connects and begins the conversation, until ctx ends.
func (c *connection) open(ctx context.Context) error {
	l, err := c.connect(ctx)
	if err != nil {
		return err
	}
	c.talk(ctx, l)
	return nil
}

// reopen begins to connect again after a line was lost, if that may help. The
// result comes through again.
func (c *connection) reopen(ctx context.Context, lost error) error {
	if !isAbsence(lost) {
		return fmt.Errorf("the connection to the coordinator was lost: %w", lost)
	}
	c.cfg.Log.Info("the connection to the coordinator was lost: this worker connects again", "err", lost)
	c.session.detach().hangUp(0)
	c.attempts.Go(func() {
		l, err := c.connect(ctx)
		c.again <- reconnection{l, err}
	})
	return nil
}

// connect dials the coordinator. If it is not there, it tries again, for as
// long as coordinatorPatience.
func (c *connection) connect(ctx context.Context) (*line, error) {
	config := controlQUIC(c.cfg.Tracing, c.cfg.Scale, c.cfg.Patience)
	if rtt := 2 * c.oneWayDelay(); rtt > 0 {
		config.HandshakeIdleTimeout = min(max(shortestAttempt, 8*rtt), config.HandshakeIdleTimeout)
	}
	giveUp := time.Now().Add(coordinatorPatience)
	for wait := shortestWait; ; wait = min(2*wait, longestWait) {
		l, err := c.dial(ctx, config)
		switch {
		case err == nil:
			return l, nil
		case !isAbsence(err) || time.Now().After(giveUp):
			return nil, fmt.Errorf("connecting to the coordinator at %s: %w", c.cfg.Coordinator, err)
		}
		c.cfg.Log.Info("the coordinator does not answer: this worker tries again", "coordinator", c.cfg.Coordinator, "err", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *connection) dial(ctx context.Context, config *quic.Config) (*line, error) {
	conn, err := c.transport.Dial(ctx, net.UDPAddrFromAddrPort(c.cfg.Coordinator), identity.For(c.cfg.TLS, controlALPN, policy.CoordinatorNode), config)
	if err != nil {
		return nil, err
	}
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		conn.CloseWithError(0, "")
		return nil, err
	}
	return newLine(conn, stream), nil
}

// talk begins the conversation over a line, with the messages that were not
// acknowledged over the line before.
func (c *connection) talk(ctx context.Context, l *line) {
	hello := c.greeting
	c.session.attach(l, &hello, nil)
	c.measure()
	go func() { c.lost <- c.read(ctx, l) }()
	go c.beat(ctx, l.conn)
}

// measure takes the delay to the coordinator from the line's round trips.
func (c *connection) measure() {
	if l := c.session.current(); l != nil {
		c.oneWay.Store(int64(l.conn.ConnectionStats().MinRTT / 2))
	}
}

// oneWayDelay is half the shortest round trip to the coordinator, 0 before the
// first.
func (c *connection) oneWayDelay() time.Duration { return time.Duration(c.oneWay.Load()) }

func (c *connection) read(ctx context.Context, l *line) error {
	for {
		m, err := readMessage(l.in)
		if err != nil {
			return err
		}
		m.received = time.Now()
		select {
		case c.inbox <- m:
		case <-ctx.Done():
			return nil
		}
	}
}

// beat sends heartbeats until ctx or the connection ends.
func (c *connection) beat(ctx context.Context, conn *quic.Conn) {
	ticker := time.NewTicker(max(time.Millisecond, c.cfg.ClockDuration(c.cfg.HeartbeatPeriod)))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			b, err := json.Marshal(c.heartbeat())
			if err != nil {
				panic(err) // plain data
			}
			if err := conn.SendDatagram(b); err != nil {
				return // the reader of the connection reports it
			}
		case <-conn.Context().Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// awaitEnd waits until the coordinator has closed its side: then it has read this
// worker's last message.
func (c *connection) awaitEnd(ctx context.Context) {
	timeout := time.After(c.parting())
	for {
		select {
		case <-c.inbox:
		case <-c.lost:
			return
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *connection) parting() time.Duration {
	return patient(partingPatience, c.cfg.Patience, c.cfg.Scale)
}

// hangUp sends the queued messages and, if the worker gives up, the reason.
func (c *connection) hangUp(problem error) {
	l := c.session.current()
	if l == nil {
		return
	}
	if problem != nil {
		// Before the stream ends: its end alone reads as a lost connection.
		l.conn.CloseWithError(codeGaveUp, problem.Error())
	}
	l.hangUp(c.parting())
}

// disconnect ends the goroutines of open and reopen, whose ctx has ended.
func (c *connection) disconnect() {
	c.attempts.Wait()
	l := c.session.current()
	select {
	case again := <-c.again: // too late
		l = again.line
	default:
	}
	if l != nil {
		l.conn.CloseWithError(0, "")
	}
}

// close ends the worker's part in the control protocol.
func (c *connection) close() {
	c.transport.Close()
	c.cfg.Control.Close()
}
