package node

import "slices"

// session is one end of the conversation between a worker and the coordinator.
// It outlives connections. Messages are numbered, kept until the other end has
// acknowledged them, and sent again over the next connection. A duplicate is
// accepted once. It is not safe for concurrent use.
type session struct {
	line     *line     // nil while there is no connection
	sent     int       // number of the last message sent
	received int       // number of the last message accepted
	unacked  []message // sent, and not acknowledged
}

// send numbers a message and sends it, now or when there is a line.
func (s *session) send(m message) {
	s.sent++
	m.Seq = s.sent
	s.unacked = append(s.unacked, m)
	if s.line != nil {
		m.Ack = s.received
		s.line.send(m)
	}
}

// accept notes the arrival of a message. fresh is false for a duplicate, and ok
// is false if one is missing before it.
func (s *session) accept(m message) (fresh, ok bool) {
	s.acknowledged(m.Ack)
	switch {
	case m.Seq == 0: // a hello or a heartbeat
		return true, true
	case m.Seq <= s.received:
		return false, true
	case m.Seq != s.received+1:
		return false, false
	}
	s.received = m.Seq
	return true, true
}

// acknowledged drops the messages up to one that the other end has accepted.
func (s *session) acknowledged(upTo int) {
	n := 0
	for n < len(s.unacked) && s.unacked[n].Seq <= upTo {
		n++
	}
	s.unacked = slices.Delete(s.unacked, 0, n)
}

// attach goes on over a new line, first with a hello if that is given.
// Unacknowledged messages are sent again, after adjust has been called with
// them.
func (s *session) attach(l *line, hello *message, adjust func(*message)) {
	s.line = l
	if hello != nil {
		hello.Ack = s.received
		l.send(*hello)
	}
	for _, m := range s.unacked {
		m.Ack = s.received
		if adjust != nil {
			adjust(&m)
		}
		l.send(m)
	}
}

// detach returns the line that is no longer used, if there was one.
func (s *session) detach() *line {
	l := s.line
	s.line = nil
	return l
}

// current returns the line in use, or nil.
func (s *session) current() *line {
	return s.line
}
