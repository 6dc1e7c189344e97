package userlink

import (
	"math/bits"
	"slices"
	"time"

	"testbed/shaping/tunnel"
)

// Stats counts a Router's work so far.
type Stats struct {
	Packets uint64 `json:"packets"` // passed on
	Bytes   uint64 `json:"bytes"`   // of their Ethernet frames

	// Planned drops: Lost on the path, QueueFull at a rate.
	Lost      uint64 `json:"lost"`
	QueueFull uint64 `json:"queue_full"`

	// Drops are Lost and QueueFull by node, for nodes that have any.
	Drops []NodeDrops `json:"drops,omitempty"`

	// Unplanned drops, which make a run suspect: the router's own queue or its
	// socket's ring was full, or the kernel had no room to send or refused.
	Overflow    uint64 `json:"overflow"`
	SocketDrops uint64 `json:"socket_drops"`
	SendDrops   uint64 `json:"send_drops"`
	// Unknown counts frames that are not from one node of the plan to another
	// (including broadcasts), Oversize those larger than an interface may send.
	Unknown  uint64 `json:"unknown"`
	Oversize uint64 `json:"oversize"`

	// Delay of packets after their due time: of all packets, and of those since
	// the last call of Stats.
	Lateness
	Recent Lateness `json:"recent"`

	MaxQueued int           `json:"max_queued"`  // packets on their way at one time
	CPU       time.Duration `json:"cpu_time_ns"` // of the router's thread

	// NoPriority reports that the router had no priority over other programs.
	NoPriority bool `json:"no_priority,omitempty"`

	// Underlay counts what came from other hosts, in a network over several.
	Underlay []tunnel.Stats `json:"underlay,omitempty"`
}

// NodeDrops are the planned drops of a node's links.
type NodeDrops struct {
	Node string `json:"node"`
	// Up and Down count packets beyond the queues of its access link, Path packets
	// lost on its paths to others.
	Up   uint64 `json:"up,omitempty"`
	Down uint64 `json:"down,omitempty"`
	Path uint64 `json:"path,omitempty"`
}

// AddDrops adds drops by node.
func AddDrops(to, more []NodeDrops) []NodeDrops {
	to = slices.Clone(to)
	for _, d := range more {
		k := slices.IndexFunc(to, func(o NodeDrops) bool { return o.Node == d.Node })
		if k < 0 {
			to = append(to, d)
			continue
		}
		to[k].Up, to[k].Down, to[k].Path = to[k].Up+d.Up, to[k].Down+d.Down, to[k].Path+d.Path
	}
	return to
}

// Add adds the counts of another host's router in the same network. The
// lateness is the worse of the two.
func (s *Stats) Add(o *Stats) {
	s.Packets, s.Bytes = s.Packets+o.Packets, s.Bytes+o.Bytes
	s.Lost, s.QueueFull = s.Lost+o.Lost, s.QueueFull+o.QueueFull
	s.NoPriority = s.NoPriority || o.NoPriority
	s.Drops = AddDrops(s.Drops, o.Drops)
	s.Overflow, s.SocketDrops, s.SendDrops = s.Overflow+o.Overflow, s.SocketDrops+o.SocketDrops, s.SendDrops+o.SendDrops
	s.Unknown, s.Oversize = s.Unknown+o.Unknown, s.Oversize+o.Oversize
	s.Lateness, s.Recent = s.worse(o.Lateness), s.Recent.worse(o.Recent)
	s.MaxQueued, s.CPU = max(s.MaxQueued, o.MaxQueued), s.CPU+o.CPU
	s.Underlay = append(s.Underlay, o.Underlay...)
}

// Unplanned counts the packets that were lost against the plan.
func (s *Stats) Unplanned() uint64 { return s.Overflow + s.SocketDrops + s.SendDrops }

// Lateness is the median, the 99th percentile and the worst of many packets.
type Lateness struct {
	LatenessP50 time.Duration `json:"lateness_p50_ns"`
	LatenessP99 time.Duration `json:"lateness_p99_ns"`
	LatenessMax time.Duration `json:"lateness_max_ns"`
}

func (l Lateness) worse(o Lateness) Lateness {
	return Lateness{max(l.LatenessP50, o.LatenessP50), max(l.LatenessP99, o.LatenessP99), max(l.LatenessMax, o.LatenessMax)}
}

// histogram counts durations in buckets 1/8 wide, relative to their size.
type histogram struct {
	buckets [64 * 8]uint64
	total   uint64
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucketOf(uint64(d))]++
	h.total++
	h.max = max(h.max, d)
}

// quantile returns the upper edge of the bucket that holds the share p.
func (h *histogram) quantile(p float64) time.Duration {
	rank := uint64(p * float64(h.total))
	var seen uint64
	for i, n := range h.buckets {
		if seen += n; seen > rank {
			return min(time.Duration(edgeOf(i)), h.max)
		}
	}
	return h.max
}

func (h *histogram) lateness() Lateness {
	return Lateness{LatenessP50: h.quantile(0.50), LatenessP99: h.quantile(0.99), LatenessMax: h.max}
}

// bucketOf keeps the three bits below the leading one.
func bucketOf(v uint64) int {
	if v < 8 {
		return int(v)
	}
	exp := bits.Len64(v) - 1
	return (exp-2)*8 + int(v>>(exp-3)&7)
}

// edgeOf is the largest value of bucket i.
func edgeOf(i int) uint64 {
	if i < 8 {
		return uint64(i)
	}
	exp := i/8 + 2
	return (uint64(8+i%8)+1)<<(exp-3) - 1
}
