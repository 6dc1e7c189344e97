//go:build linux

package monitor

import (
	"encoding/json"
	"fmt"
	"time"

	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// Watch observes a network and the machine while programs without rounds use
// them.
type Watch struct {
	began   time.Time
	machine Machine
	links   *Links
	remote  remoteHosts
}

// NewWatch begins to observe a network with nodes of those names.
func NewWatch(net Network, names []string) *Watch {
	return &Watch{time.Now(), ReadMachine(), WatchLinks(net, names, nil), remoteHosts{}}
}

// Remote records another host's observations, a Sample, when its router was
// asked for its count: first as soon as the watch begins, and at the end.
func (w *Watch) Remote(host string, raw json.RawMessage) error {
	var s Sample
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("internal error: parsing the measurements of host %s: %w", host, err)
	}
	w.remote.take(host, s)
	return nil
}

// Waited is the longest time for which a process on another host waited for a
// processor, as a share of the time.
func (w *Watch) Waited() (most float64) {
	for _, e := range w.remote {
		for name, d := range e.last.Waits {
			if took := e.last.At - e.first.At; took > 0 {
				most = max(most, float64(d-e.first.Waits[name])/float64(took))
			}
		}
	}
	return most
}

// Conclude adds other hosts' observations, and those of frames between hosts,
// when the network is taken down. router is its last count.
func (w *Watch) Conclude(router *userlink.Stats, to *fidelity.Measurements) {
	w.remote.conclude(router, to)
}

// Stop stops observing, before the network is taken down, and returns the
// observations.
func (w *Watch) Stop() (m fidelity.Measurements) {
	ReadMachine().Since(w.machine, time.Since(w.began), &m)
	for _, b := range w.links.Stop() {
		m.Busy(b.Node, b.Time, b.Share)
	}
	return m
}
