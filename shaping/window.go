package shaping

import (
	"cmp"
	"time"
)

const (
	// freeRate stands for an unlimited rate in the formula of Window.
	freeRate Rate = 10e9
	// leastWindow limits no short path, and is Linux's default.
	leastWindow = 4 << 20
	// MaxWindow keeps windows inside TCP's own bound, 2³⁰ bytes.
	MaxWindow = 1 << 30
)

// Window is the least number of bytes that a TCP connection of node i must be
// able to have under way, so that the network limits it, not its buffers:
//
//	2 × (rate × round trip + queue)
//
// for the peer for which that is most. It is at most MaxWindow.
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
