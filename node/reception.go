package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/node/identity"
	"testbed/policy"
	"testbed/scenarios/resolved"
)

// received is a message, with its sender and its line.
type received struct {
	id   policy.ID
	line *line
	msg  message
}

// reception receives the workers' messages, each worker's in goroutines of its
// own, and passes them on in the order of their arrival.
type reception struct {
	workers []resolved.Worker
	hello   time.Duration // how long a worker may take for its hello
	log     *slog.Logger
	inbox   chan received
	quit    chan struct{} // closed when the run is over
}

func newReception(workers []resolved.Worker, hello time.Duration, log *slog.Logger) reception {
	return reception{workers, hello, log, make(chan received, 4*outboxMessages), make(chan struct{})}
}

func (r *reception) accept(ctx context.Context, l *quic.Listener) {
	for {
		conn, err := l.Accept(ctx)
		if err != nil {
			return
		}
		go func() {
			if err := r.serve(ctx, conn); err != nil {
				r.log.Info("a worker's control connection ended", "worker", identity.Peer(conn), "err", err)
				conn.CloseWithError(codeProtocol, "protocol error")
			}
		}()
	}
}

// serve reads the messages of one worker.
func (r *reception) serve(ctx context.Context, conn *quic.Conn) error {
	hello, cancel := context.WithTimeout(ctx, r.hello)
	defer cancel()
	stream, err := conn.AcceptStream(hello)
	if err != nil {
		return err
	}
	stream.SetReadDeadline(time.Now().Add(r.hello))
	l := newLine(conn, stream)
	defer l.hangUp(0)
	m, err := readMessage(l.in)
	if err == nil {
		err = r.checkHello(conn, m)
	}
	if err != nil {
		return err
	}
	stream.SetReadDeadline(time.Time{})
	id := m.ID
	go r.receiveHeartbeats(ctx, conn, l, id)
	for r.deliver(received{id, l, m}) {
		if m, err = readMessage(l.in); err != nil {
			lost := message{Type: msgLost, Error: err.Error()}
			if e, ok := errors.AsType[*quic.ApplicationError](err); ok && e.Remote && e.ErrorCode == codeGaveUp {
				lost.Type = msgGaveUp
			}
			r.deliver(received{id, l, lost})
			return err
		}
	}
	return nil
}

// deliver puts a message into the inbox, or returns false if the run is over.
func (r *reception) deliver(m received) bool {
	select {
	case r.inbox <- m:
		return true
	case <-r.quit:
		return false
	}
}

// receiveHeartbeats takes the heartbeats of one worker.
func (r *reception) receiveHeartbeats(ctx context.Context, conn *quic.Conn, l *line, id policy.ID) {
	for {
		b, err := conn.ReceiveDatagram(ctx)
		if err != nil {
			return
		}
		m, err := parseMessage(b)
		if err == nil && m.Type != msgHeartbeat {
			err = fmt.Errorf("the datagram contains the message %q", m.Type)
		}
		if err != nil {
			r.log.Warn("a worker sent a datagram that is not a heartbeat", "worker", id.Node(), "err", err)
			continue
		}
		if !r.deliver(received{id, l, m}) {
			return
		}
	}
}

// checkHello checks a worker's hello against the name in its certificate and
// the address it comes from.
func (r *reception) checkHello(conn *quic.Conn, m message) error {
	switch {
	case m.Type != msgHello || m.Protocol != protocol:
		return fmt.Errorf("the first message is %q of protocol version %d, but must be %q of version %d", m.Type, m.Protocol, msgHello, protocol)
	case m.ID.Node() != identity.Peer(conn):
		return fmt.Errorf("worker %s presents the certificate of %q", m.ID.Node(), identity.Peer(conn))
	case !m.Ring.IsValid() || !m.Fetch.IsValid():
		return fmt.Errorf("worker %s gives no address for the ring or for state fetches", m.ID.Node())
	}
	if !slices.ContainsFunc(r.workers, func(w resolved.Worker) bool { return w.ID == m.ID }) {
		return fmt.Errorf("worker %s is not in the scenario", m.ID.Node())
	}
	return nil
}
