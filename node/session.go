package node

import "slices"

// session is one end of the talk between a worker and the coordinator. It
// outlives connections: what it says is numbered and kept until the other end
// has acknowledged it, and said again over the next connection. What it hears
// twice it accepts once. It is not safe for concurrent use.
type session struct {
	line  *line     // nil while there is no connection
	said  int       // number of the last message said
	heard int       // number of the last message accepted
	kept  []message // said, and not known to be heard
}

// say numbers a message and sends it, now or when there is a line.
func (s *session) say(m message) {
	s.said++
	m.Seq = s.said
	s.kept = append(s.kept, m)
	if s.line != nil {
		m.Ack = s.heard
		s.line.send(m)
	}
}

// accept notes that a message has come; fresh is false if it has come before,
// and ok if one is missing before it.
func (s *session) accept(m message) (fresh, ok bool) {
	s.forget(m.Ack)
	switch {
	case m.Seq == 0: // a hello or a heartbeat
		return true, true
	case m.Seq <= s.heard:
		return false, true
	case m.Seq != s.heard+1:
		return false, false
	}
	s.heard = m.Seq
	return true, true
}

// forget drops what the other end has heard.
func (s *session) forget(heard int) {
	n := 0
	for n < len(s.kept) && s.kept[n].Seq <= heard {
		n++
	}
	s.kept = slices.Delete(s.kept, 0, n)
}

// attach goes on over a new line, first with a greeting if that is given. What
// has been kept is said again, after adjust has looked at it.
func (s *session) attach(l *line, greeting *message, adjust func(*message)) {
	s.line = l
	if greeting != nil {
		greeting.Ack = s.heard
		l.send(*greeting)
	}
	for _, m := range s.kept {
		m.Ack = s.heard
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
