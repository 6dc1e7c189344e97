package quicring

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// doubted is set when a reduction has failed, with the number of packets
	// received until then.
	doubted bool
	heard   uint64
}

// doubt marks the link after a failed reduction. A live peer acknowledges the
// reset of the stream. One that has restarted does not know this connection
// any more and would leave the next reduction waiting too.
func (l *link) doubt() {
	l.doubted, l.heard = true, l.conn.ConnectionStats().PacketsReceived
}

func (l *link) alive() bool {
	if l.doubted {
		l.doubted = l.conn.ConnectionStats().PacketsReceived == l.heard
	}
	return !l.doubted && l.conn.Context().Err() == nil
}

// connect returns the link to peer: the present one if it is to that peer and
// alive, else a new one. Only the running reduction calls it.
func (e *Endpoint) connect(ctx context.Context, peer Peer) (*link, error) {
	if e.next != nil {
		if e.next.peer == peer && e.next.alive() {
			return e.next, nil
		}
		e.retire()
	}
	conn, err := e.transport.Dial(ctx, net.UDPAddrFromAddrPort(peer.Addr), e.cfg.clientTLS(peer.Name), quicConfig(e.cfg.PacketSize))
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
	e.tasks.Go(func() { old.close() })
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

// close waits up to closeTime for the peer to confirm all it was sent, then
// closes the connection.
func (l *link) close() {
	waitUpTo(closeTime, &l.unconfirmed, l.conn.Context().Done())
	l.conn.CloseWithError(connClosing, "no longer this worker's successor")
}

// drain reads what is left of a stream after its last frame, which is its end.
// It never resets the other direction: that may still be delivering.
func drain(stream *quic.Stream) {
	stream.SetReadDeadline(time.Now().Add(holdTime))
	if _, err := stream.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		stream.CancelRead(codeMalformed)
	}
}

// waitUpTo waits for group, at most d long and only until stop is closed. What
// group waits for must end soon after in any case, when connections close.
func waitUpTo(d time.Duration, group *sync.WaitGroup, stop <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-stop:
	}
}
