package quicring

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// link is the connection to a successor.
type link struct {
	peer Peer
	conn *quic.Conn
	// unconfirmed counts the finished streams whose end the peer has not yet
	// confirmed.
	unconfirmed sync.WaitGroup
}

// connect returns the link to peer: the present one if it is to that peer and
// alive, else a new one. Only the running reduction calls it.
func (e *Endpoint) connect(ctx context.Context, peer Peer) (*link, error) {
	if e.next != nil {
		if e.next.peer == peer && e.next.conn.Context().Err() == nil {
			return e.next, nil
		}
		e.retire()
	}
	conn, err := e.transport.Dial(ctx, net.UDPAddrFromAddrPort(peer.Addr), e.cfg.clientTLS(peer.Name), quicConfig())
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	e.next = &link{peer: peer, conn: conn}
	return e.next, nil
}

// retire closes the link in the background, once what it carries has arrived.
func (e *Endpoint) retire() {
	old := e.next
	e.next = nil
	e.tasks.Go(func() { old.close(closeTime) })
}

// finish ends a stream after its last frame and watches for the peer's
// confirmation.
func (l *link) finish(stream *quic.Stream, tasks *sync.WaitGroup) error {
	l.unconfirmed.Add(1)
	tasks.Go(func() {
		defer l.unconfirmed.Done()
		drain(stream)
	})
	return stream.Close()
}

// close waits up to patience for the peer to confirm all it was sent, then
// closes the connection.
func (l *link) close(patience time.Duration) {
	confirmed := make(chan struct{})
	go func() {
		l.unconfirmed.Wait()
		close(confirmed)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-confirmed:
	case <-timer.C:
	case <-l.conn.Context().Done():
	}
	l.conn.CloseWithError(connClosing, "no longer this worker's successor")
	<-confirmed // closing the connection ends every drain
}
