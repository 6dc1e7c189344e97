//go:build linux

package monitor

import (
	"time"

	"testbed/shaping/fidelity"
)

// Watch looks at a network and at the machine while programs use them that know
// no rounds.
type Watch struct {
	began   time.Time
	machine Machine
	links   *Links
}

// NewWatch begins to look at a network with nodes of those names.
func NewWatch(net Network, names []string) *Watch {
	return &Watch{time.Now(), ReadMachine(), WatchLinks(net, names, nil)}
}

// Stop stops looking, before the network is taken down, and returns what was
// seen.
func (w *Watch) Stop() (m fidelity.Measurements) {
	ReadMachine().Since(w.machine, time.Since(w.began), &m)
	for _, b := range w.links.Stop() {
		m.Busy(b.Node, b.Time, b.Share)
	}
	return m
}
