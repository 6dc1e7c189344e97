//go:build linux

package cluster

import (
	"io"
	"slices"
	"strings"
	"testing"

	"testbed/emulation/network"
	"testbed/shaping/userlink"
)

// TestLastCountOfAHost: a count that was asked for and comes when the end has been
// ordered is not the last yet.
func TestLastCountOfAHost(t *testing.T) {
	var seen []bool
	h := &hostJob{s: network.NewSupervisor(strings.NewReader(""), io.Discard), network: &network.Network{}}
	h.watch = func(_ map[string]int, last bool) any {
		seen = append(seen, last)
		return nil
	}
	for _, o := range []order{{Count: true}, {Count: true}, {End: true}} {
		if err := h.take(o); err != nil {
			t.Fatal(err)
		}
		if o.Count && len(seen) == 0 { // the second is late
			h.counted(&userlink.Stats{})
		}
	}
	for range 2 { // the second, and the router's last
		h.counted(&userlink.Stats{})
	}
	if want := []bool{false, false, true}; !slices.Equal(seen, want) {
		t.Errorf("the counts were the last: %v, want %v", seen, want)
	}
}
