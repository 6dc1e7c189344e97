package lighthouse

import "time"

const (
	// calm is the time for which work must fit one processor before the server
	// narrows.
	calm = time.Second
	// beatsOfOne is the number of heartbeats per second that one processor handles
	// with ease: each costs about 40 µs.
	beatsOfOne = 15_000
)

// width reports whether a server has work for more than one processor.
type width struct {
	wide   bool
	needed time.Time // when it last needed more than one
	looked time.Time // when this was last checked
	beats  int       // since then
}

// widen calls Wide. The caller holds the lock.
func (s *Server) widen(wide bool) {
	if s.cfg.Wide != nil && wide != s.width.wide {
		s.width.wide = wide
		s.cfg.Wide(wide)
	}
}

// look checks the width at a tick. A late tick means that processors are
// scarce. A process with more threads gets more of them.
func (s *Server) look() {
	w := &s.width
	since := time.Since(w.looked)
	if len(s.waiting.Calls) > 0 || float64(w.beats) > beatsOfOne*since.Seconds() || since > 3*s.cfg.Tick/2 {
		w.needed = time.Now()
	}
	w.beats, w.looked = 0, time.Now()
	s.widen(time.Since(w.needed) < calm)
}
