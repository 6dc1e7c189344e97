package shaping

import (
	"cmp"
	"time"
)

const (
	// freeRate stands for an unlimited rate in a window.
	freeRate Rate = 10e9
	// leastWindow is no limit on any short path, and what Linux has by default.
	leastWindow = 4 << 20
	// MaxWindow keeps windows inside TCP's own bound, 2³⁰ bytes.
	MaxWindow = 1 << 30
)

// Window is how many bytes a TCP connection of node i may have under way at least, so
// that the network and not its buffers limits it:
//
//	2 × (rate × round trip + queue)
//
// of the peer for which that is most; at most MaxWindow.
func (p *Plan) Window(i int) int {
	most := float64(leastWindow)
	for j := range p.Nodes {
		if j == i {
			continue
		}
		roundTrip := time.Duration(p.Paths[i][j].Slowest() + p.Paths[j][i].Slowest()).Seconds()
		for _, way := range [][2]int{{i, j}, {j, i}} {
			underWay := float64(cmp.Or(p.Rate(way[0], way[1]), freeRate)) / 8 * roundTrip
			if rate := p.Nodes[way[0]].RateUp; rate > 0 {
				underWay += float64(p.Nodes[way[0]].QueueBytes(rate))
			}
			most = max(most, 2*underWay)
		}
	}
	return int(min(most, MaxWindow))
}
