//go:build linux

package programs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"testbed/internal/steady"
	"testbed/internal/thread"
	"testbed/record"
)

// InterfaceBytes returns the bytes that this thread's network namespace has
// sent and received on the interface of a node, counted as Ethernet frames.
func InterfaceBytes() (sent, received uint64, err error) {
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return 0, 0, err
	}
	return parseInterface(string(text))
}

// parseInterface reads the counters of Interface (proc_pid_net(5), dev).
func parseInterface(text string) (sent, received uint64, err error) {
	const receivedField, sentField = 0, 8
	for line := range strings.Lines(text) {
		name, counts, found := strings.Cut(line, ":")
		f := strings.Fields(counts)
		if !found || strings.TrimSpace(name) != Interface || len(f) <= sentField {
			continue
		}
		if received, err = strconv.ParseUint(f[receivedField], 10, 64); err == nil {
			sent, err = strconv.ParseUint(f[sentField], 10, 64)
		}
		return sent, received, err
	}
	return 0, 0, fmt.Errorf("the node has no interface %s", Interface)
}

// Sample records the bytes that the nodes on this host have sent and received,
// until the network is taken down. It leaves out nodes without traffic since
// the last sample.
func (g *Ground) Sample() {
	g.sampled = map[string][2]uint64{}
	go func() {
		ticker := time.NewTicker(SampleEvery)
		defer ticker.Stop()
		for {
			select {
			case <-g.over:
				return
			case <-ticker.C:
				g.S.Post(g.sample)
			}
		}
	}()
}

// EndSamples records the last samples, if there were any before.
func (g *Ground) EndSamples() error {
	err := g.sample()
	g.sampled = nil // one may have been posted before
	return err
}

// sample records one sample of each node.
func (g *Ground) sample() error {
	if g.sampled == nil {
		return nil
	}
	for _, name := range g.Links.Kernel.Nodes() {
		var now [2]uint64
		var err error
		thread.Do(func() {
			if err = unix.Setns(g.Links.NS(name), unix.CLONE_NEWNET); err == nil {
				now[0], now[1], err = InterfaceBytes()
			}
		})
		if err != nil {
			return fmt.Errorf("counting the bytes that %s has sent: %w", name, err)
		}
		if g.sampled[name] == now {
			continue
		}
		g.sampled[name] = now
		if err := g.Record(record.ProgramEvent{Type: record.ProgramSample, Node: name, BytesSent: &now[0], BytesReceived: &now[1]}); err != nil {
			return err
		}
	}
	return nil
}

// waits is how long the threads of a node have waited for a processor, from the first
// sample that counts to the last.
type waits struct {
	began, at     time.Duration // of the machine's clock
	before, since time.Duration
}

// leastWatched is the shortest time over which waiting is judged.
const leastWatched = 2 * SampleEvery

// share is the waiting as a share of the time, 0 if too little is known.
func (w *waits) share() float64 {
	if took := w.at - w.began; took >= leastWatched {
		return float64(w.since-w.before) / float64(took)
	}
	return 0
}

// Waited takes how long the threads of a node have waited for a processor so far. The
// verdict counts it since Watch.
func (g *Ground) Waited(node string, d time.Duration) {
	now := steady.Now()
	w := g.waits[node]
	if w == nil || g.watch == nil {
		w = &waits{began: now, before: d}
		g.waits[node] = w
	}
	w.at, w.since = now, d
}
