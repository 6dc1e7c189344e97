package lighthouse

import "time"

const (
	// calm is how long there has to be work for one processor alone.
	calm = time.Second
	// beatsOfOne is how many heartbeats a second one processor takes with ease: they
	// cost it about 40 µs each.
	beatsOfOne = 15_000
)

// width is whether a server has work for more than one processor.
type width struct {
	wide   bool
	needed time.Time // for the last time
	looked time.Time // whether it is
	beats  int       // since then
}

// widen tells whoever wants to know. The caller holds the lock.
func (s *Server) widen(wide bool) {
	if s.cfg.Wide != nil && wide != s.width.wide {
		s.width.wide = wide
		s.cfg.Wide(wide)
	}
}

// look finds out at a tick. One that comes late says that processors are scarce, and
// whoever has more threads gets more of them.
func (s *Server) look() {
	w := &s.width
	since := time.Since(w.looked)
	if len(s.waiting.Calls) > 0 || float64(w.beats) > beatsOfOne*since.Seconds() || since > 3*s.cfg.Tick/2 {
		w.needed = time.Now()
	}
	w.beats, w.looked = 0, time.Now()
	s.widen(time.Since(w.needed) < calm)
}
