package record

import (
	"fmt"
	"strings"
)

// LinkDrops are the packets that the links of a node have dropped as planned.
type LinkDrops struct {
	Node string `json:"node"`
	// Up and Down are beyond the queues of its access link, Path what its paths to
	// others lost.
	Up   uint64 `json:"up,omitempty"`
	Down uint64 `json:"down,omitempty"`
	Path uint64 `json:"path,omitempty"`
}

// String says which links dropped how many.
func (d LinkDrops) String() string {
	var parts []string
	for _, part := range []struct {
		packets uint64
		where   string
	}{{d.Up, "beyond the queue of rate_up"}, {d.Down, "beyond the queue of rate_down"}, {d.Path, "on paths to others"}} {
		if part.packets > 0 {
			parts = append(parts, fmt.Sprintf("%d packets %s", part.packets, part.where))
		}
	}
	return fmt.Sprintf("%s: links dropped as planned %s", d.Node, strings.Join(parts, ", "))
}
