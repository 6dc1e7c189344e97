package shaping

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Plan is the whole network to install, with every value resolved: plain
// data, the same on every machine.
type Plan struct {
	// Seed determines the pattern of everything random on every path.
	Seed  uint64     `json:"seed"`
	Nodes []NodePlan `json:"nodes"`
	// Paths[i][j] is the path from Nodes[i] to Nodes[j]; Paths[i][i] is zero.
	Paths [][]PathPlan `json:"paths"`
	// TCP is the congestion control of TCP connections in the nodes, by its name
	// in the kernel. Empty: DefaultTCP, or the kernel's default if nodes cannot
	// choose.
	TCP string `json:"tcp,omitempty"`
}

// DefaultTCP is in every kernel, and quic-go uses it, too. Others may not suit
// nodes: bbr sets a timer for every frame, because single frames leave a node.
const DefaultTCP = "reno"

// NodePlan is one node and its access link.
type NodePlan struct {
	Name     string       `json:"name"`
	Addr     netip.Prefix `json:"addr"`
	MAC      MAC          `json:"mac"`
	RateUp   Rate         `json:"rate_up"`
	RateDown Rate         `json:"rate_down"`
	Queue    Queue        `json:"queue"`
	// PaceUp and PaceDown, if not zero, are the current rates of a trace. RateUp
	// and RateDown are then its highest, which determine the sizes of queues.
	PaceUp   Rate `json:"pace_up,omitzero"`
	PaceDown Rate `json:"pace_down,omitzero"`
	// AccessOneWayDelay is part of the OneWayDelay of every path of the node.
	AccessOneWayDelay Duration `json:"access_one_way_delay,omitzero"`
}

// PathPlan is the path of one ordered pair of nodes.
type PathPlan struct {
	// OneWayDelay includes the access links at both ends.
	OneWayDelay Duration `json:"one_way_delay"`
	// Rate is zero if the access links alone limit this way.
	Rate               Rate               `json:"rate,omitzero"`
	Jitter             Duration           `json:"jitter"`
	JitterDistribution JitterDistribution `json:"jitter_distribution,omitzero"`
	// Cut means that nothing arrives.
	Cut bool `json:"cut,omitzero"`
	// Refused means that the sender gets an error at once, that the receiver
	// cannot be reached. Nothing is sent.
	Refused bool `json:"refused,omitzero"`
	// At most one of Loss and LossBurst is not zero.
	Loss      Probability `json:"loss"`
	LossBurst LossBurst   `json:"loss_burst,omitzero"`
	Duplicate Probability `json:"duplicate,omitzero"`
	Reorder   Probability `json:"reorder,omitzero"`
	Corrupt   Probability `json:"corrupt,omitzero"`
}

// Sizes in bytes that package kernel and the limits below share.
const (
	// MTU is the largest IP packet of a node.
	MTU = 1500
	// FrameSize is the largest Ethernet frame of a node, as rates count it.
	FrameSize = MTU + 14
	// Quantum is the number of bytes that a peer may send on an access link before
	// the next peer's turn: one frame, so that acknowledgements wait for one frame
	// at most.
	Quantum = FrameSize
	// UDPHeaders are the bytes of the headers of Ethernet, IP and UDP in a frame.
	UDPHeaders = 14 + 20 + 8
	// MinQueueBytes is the smallest queue. One UDP segmentation batch (65,507
	// bytes of payload in 48 frames, headers counted) fits, because a smaller
	// queue would drop every such batch as a whole.
	MinQueueBytes = 68 << 10
	// maxQueueBytes keeps limits inside the kernel's 32-bit counters.
	maxQueueBytes = 1 << 30
)

// Index returns the position of the node of that name in Nodes, or -1.
func (p *Plan) Index(name string) int {
	return slices.IndexFunc(p.Nodes, func(n NodePlan) bool { return n.Name == name })
}

// Lossy reports whether any path loses packets.
func (p *Plan) Lossy() bool {
	for _, row := range p.Paths {
		if slices.ContainsFunc(row, func(path PathPlan) bool { return path.MeanLoss() > 0 }) {
			return true
		}
	}
	return false
}

// Plain reports that every path is without effect: no delay, and no packet that
// is lost, doubled, changed or out of order.
func (p *Plan) Plain() bool {
	for i, row := range p.Paths {
		for j, path := range row {
			if i != j && path != (PathPlan{}) {
				return false
			}
		}
	}
	return true
}

// ShortPaths reports that all paths between the nodes delay all packets alike,
// lose none, and have round trips shorter than rtt. The nodes must be in the
// plan.
func (p *Plan) ShortPaths(nodes []string, rtt time.Duration) bool {
	index := make([]int, len(nodes))
	for k, name := range nodes {
		index[k] = p.Index(name)
	}
	for k, i := range index {
		for _, j := range index[:k] {
			there, back := p.Paths[i][j], p.Paths[j][i]
			both := time.Duration(there.OneWayDelay + back.OneWayDelay)
			there.OneWayDelay, back.OneWayDelay = 0, 0
			if both >= rtt || there != (PathPlan{}) || back != (PathPlan{}) {
				return false
			}
		}
	}
	return true
}

// Delays are the one-way delays between nodes, in seconds, from row to column.
// The nodes must be in the plan.
func (p *Plan) Delays(nodes []string) [][]float64 {
	return matrix(p, nodes, func(from, to int) float64 { return time.Duration(p.Paths[from][to].OneWayDelay).Seconds() })
}

// Rates are the rates between nodes, as from Rate, from row to column. The
// nodes must be in the plan.
func (p *Plan) Rates(nodes []string) [][]Rate { return matrix(p, nodes, p.Rate) }

func matrix[T any](p *Plan, nodes []string, of func(from, to int) T) [][]T {
	index := make([]int, len(nodes))
	for k, name := range nodes {
		index[k] = p.Index(name)
	}
	all := make([][]T, len(nodes))
	for k, from := range index {
		for _, to := range index {
			all[k] = append(all[k], of(from, to))
		}
	}
	return all
}

// EqualButPace reports whether two plans for the same nodes are equal, apart
// from the current rates of traces.
func (p *Plan) EqualButPace(o *Plan) bool {
	same := func(a, b NodePlan) bool {
		a.PaceUp, a.PaceDown = b.PaceUp, b.PaceDown
		return a == b
	}
	return p.Seed == o.Seed && slices.EqualFunc(p.Nodes, o.Nodes, same) &&
		slices.EqualFunc(p.Paths, o.Paths, func(a, b []PathPlan) bool {
			return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b)) // Compose shares rows
		})
}

// rates are the rates on the way from one node to another.
func (p *Plan) rates(from, to int) [3]Rate {
	return [3]Rate{p.Nodes[from].RateUp, p.Paths[from][to].Rate, p.Nodes[to].RateDown}
}

// Rate is the lowest rate on the way from one node to another, zero if none is
// limited.
func (p *Plan) Rate(from, to int) (lowest Rate) {
	for _, r := range p.rates(from, to) {
		if r > 0 && (lowest == 0 || r < lowest) {
			lowest = r
		}
	}
	return lowest
}

// Sending is the time of a frame of so many bytes at the rates on its way from
// one node to another, if these rates are schedules.
func (p *Plan) Sending(from, to, bytes int) (d time.Duration) {
	for _, r := range p.rates(from, to) {
		d += r.Sending(bytes)
	}
	return d
}

// Up is the node's current sending rate.
func (n NodePlan) Up() Rate { return cmp.Or(n.PaceUp, n.RateUp) }

// Down is the node's current receiving rate.
func (n NodePlan) Down() Rate { return cmp.Or(n.PaceDown, n.RateDown) }

// nodeAddr is the address of node k: 10.0.0.1 and up, without a gap, so that
// the low bits of neighbours differ (package kernel classifies by them).
func nodeAddr(k int) netip.Prefix {
	host := uint16(k + 1)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(host >> 8), byte(host)}), 16)
}

// nodeMAC is the address of node k in the locally administered range.
func nodeMAC(k int) MAC {
	host := uint16(k + 1)
	return MAC{0x02, 0x54, 0x42, 0x00, byte(host >> 8), byte(host)}
}

// maxNodes is the number of addresses in 10.0.0.0/16, without the network's and
// the broadcast address.
const maxNodes = 1<<16 - 2

// checkName refuses names that are not valid for a network interface
// everywhere.
func checkName(name string) error {
	const maxLen = 15 // IFNAMSIZ less the terminator
	if name == "" || len(name) > maxLen {
		return fmt.Errorf("node name %q must have 1 to %d characters, because it names a network interface", name, maxLen)
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_') {
			return fmt.Errorf("node name %q may contain only letters, digits, \"-\" and \"_\", and must start with a letter or digit", name)
		}
	}
	if name == "lo" || name == "all" || name == "default" {
		return fmt.Errorf("node name %q is reserved by the kernel", name)
	}
	return nil
}
