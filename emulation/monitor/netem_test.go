//go:build linux

package monitor

import (
	"testing"

	"testbed/shaping"
	"testbed/shaping/kernel"
)

func TestNetemExcess(t *testing.T) {
	loss := shaping.Probability(0.1)
	plan, err := shaping.NewPlan(shaping.Spec{Pairs: []shaping.Pair{{From: "w0", To: "w1", Path: shaping.Path{Loss: &loss}}}}, []string{"w0", "w1", "w2"}, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		count kernel.QueueCount
		some  bool
	}{
		{"planned losses", kernel.QueueCount{Node: "w0", Peer: "w1", Kind: "netem", Packets: 9000, Lost: 1050}, false},
		{"more than planned", kernel.QueueCount{Node: "w0", Peer: "w1", Kind: "netem", Packets: 9000, Lost: 2000}, true},
		{"none planned", kernel.QueueCount{Node: "w1", Peer: "w0", Kind: "netem", Packets: 9000, Lost: 1}, true},
		{"a shared queue", kernel.QueueCount{Node: "w2", Kind: "netem", Packets: 9000, Lost: 3}, true},
		{"a rate's queue", kernel.QueueCount{Node: "w1", Peer: "w0", Kind: "bfifo", Packets: 9000, Lost: 500}, false},
	} {
		if got := NetemExcess(plan, []kernel.QueueCount{c.count}); (got > 0) != c.some {
			t.Errorf("%s: excess %d", c.name, got)
		}
	}
}
