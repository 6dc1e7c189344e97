package record

import (
	"fmt"
	"strings"
)

// LinkDrops are the packets that the links of a node have dropped as planned.
type LinkDrops struct {
	Node string `json:"node"`           // The node.
	Up   uint64 `json:"up,omitempty"`   // Packets dropped at the full queue of its uplink.
	Down uint64 `json:"down,omitempty"` // Packets dropped at the full queue of its downlink.
	Path uint64 `json:"path,omitempty"` // Packets lost on its paths to other nodes.
}

// String says how many packets each link has dropped.
func (d LinkDrops) String() string {
	var parts []string
	for _, part := range []struct {
		packets uint64
		where   string
	}{{d.Up, "at the full queue of rate_up"}, {d.Down, "at the full queue of rate_down"}, {d.Path, "on paths to other nodes"}} {
		if part.packets > 0 {
			noun := "packets"
			if part.packets == 1 {
				noun = "packet"
			}
			parts = append(parts, fmt.Sprintf("%d %s %s", part.packets, noun, part.where))
		}
	}
	return fmt.Sprintf("the links of %s dropped, as planned, %s", d.Node, strings.Join(parts, ", "))
}
