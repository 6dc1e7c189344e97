//go:build linux

package monitor

import (
	"encoding/json"
	"fmt"
	"time"

	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// Watch looks at a network and at the machine while programs use them that know
// no rounds.
type Watch struct {
	began   time.Time
	machine Machine
	links   *Links
	remote  remoteHosts
}

// NewWatch begins to look at a network with nodes of those names.
func NewWatch(net Network, names []string) *Watch {
	return &Watch{time.Now(), ReadMachine(), WatchLinks(net, names, nil), remoteHosts{}}
}

// Remote takes what another host has seen, a Sample, when its router was asked
// for its count: first as soon as the watch begins, and at the end.
func (w *Watch) Remote(host string, raw json.RawMessage) error {
	var s Sample
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("reading the measurements of host %s: %w", host, err)
	}
	w.remote.take(host, s)
	return nil
}

// Waited is how long the process on another host that waited most stood in line for a
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

// Conclude enters what other hosts have seen, and what became of frames between
// hosts, when the network is taken down. router is its last count.
func (w *Watch) Conclude(router *userlink.Stats, to *fidelity.Measurements) {
	w.remote.conclude(router, to)
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
