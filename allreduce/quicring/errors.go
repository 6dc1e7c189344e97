package quicring

import (
	"errors"
	"fmt"
	"net"

	"github.com/quic-go/quic-go"
)

// Codes with which streams are reset. They are part of the wire format.
const (
	codeAborted   quic.StreamErrorCode = 1 // the sender of the reset gave up its reduction
	codeStale     quic.StreamErrorCode = 2 // epoch already over, or replaced by a later one
	codeStranger  quic.StreamErrorCode = 3 // not from the predecessor in that epoch's ring
	codeMalformed quic.StreamErrorCode = 4 // a frame the schedule does not allow
	codeExpired   quic.StreamErrorCode = 5 // waited too long
)

// Codes with which connections are closed.
const (
	connClosing  quic.ApplicationErrorCode = 0
	connReplaced quic.ApplicationErrorCode = 1
	connRefused  quic.ApplicationErrorCode = 2
)

// PeerError is a reduction's failure, with the peer at which it showed.
type PeerError struct {
	Peer string // its name
	Err  error
}

func (e *PeerError) Error() string { return e.Err.Error() }
func (e *PeerError) Unwrap() error { return e.Err }

var errClosed = fmt.Errorf("endpoint closed: %w", net.ErrClosed)

// explain puts a peer's reset into words; other errors stay as they are.
func explain(err error) error {
	reset, ok := errors.AsType[*quic.StreamError](err)
	if !ok || !reset.Remote {
		return err
	}
	why := "reset the stream"
	switch reset.ErrorCode {
	case codeAborted:
		why = "aborted its reduction"
	case codeStale:
		why = "refused the stream: the reduction of the stream is over"
	case codeStranger:
		why = "refused the stream: the peer expects no stream from this worker"
	case codeMalformed:
		why = "refused a frame as malformed"
	case codeExpired:
		why = "gave up waiting for its own reduction to begin"
	}
	return fmt.Errorf("peer %s: %w", why, err)
}

// reset ends both directions of a stream at once and unblocks its users.
func reset(s *quic.Stream, code quic.StreamErrorCode) {
	s.CancelRead(code)
	s.CancelWrite(code)
}
