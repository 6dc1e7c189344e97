package kernel

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"testbed/shaping"
)

// Backend determines which program delays and loses packets.
type Backend string

// The backends.
const (
	// BackendNetem uses the kernel's HFSC and its netem queues around a bridge.
	BackendNetem Backend = "netem"
	// BackendUser leaves packets to a router process on packet sockets.
	BackendUser Backend = "user"
	// BackendHTB does the same, except that rates and queues are HTB's.
	BackendHTB Backend = "htb"
	// BackendBridge has HTB and no paths. It is for plans whose paths are Plain.
	BackendBridge Backend = "bridge"
)

// Routed reports that a router process carries packets.
func (b Backend) Routed() bool { return b == BackendUser || b == BackendHTB }

const (
	// maxOwnClasses is the number of peers up to which each has a class of
	// its own: 64 nodes take about a second to build.
	maxOwnClasses = 64
	// sharedClasses is the number of classes that more peers share, by the low
	// bits of their addresses: neighbours in the plan never share one, and 256
	// nodes still build within seconds. It is a power of two.
	sharedClasses = 16
	// freeRate stands for an unlimited rate if HTB serves only to classify: more
	// than a veth carries, less than 2³² bytes per second.
	freeRate shaping.Rate = 32e9
	// limitRate stands for an unlimited rate in the limit of a netem queue.
	limitRate shaping.Rate = 10e9
	// smallestFrame is an empty UDP datagram with its headers. netem counts
	// packets, and frames of this size are the most packets for a number of bytes.
	smallestFrame = shaping.UDPHeaders
	// maxNetemLimit limits the memory of a netem queue: so many full frames take
	// 2.4 GB in the kernel. If more packets are under way, some are lost against
	// the plan. At 1 Gbit/s the limit is 13 s of full frames, or 350 ms of the
	// smallest.
	maxNetemLimit = 1 << 20
	// lateTime is the lateness with which the kernel may serve a rate of HFSC
	// without overflowing a netem with the packets that then come at once.
	lateTime = 100 * time.Millisecond
	// minRate is the least guaranteed rate of a class: one byte per second.
	minRate shaping.Rate = 8
)

// scheduler is the kernel's queueing discipline that has classes.
type scheduler string

const (
	// htb is a token bucket (Devera 2002). It can serve netem queues, which may
	// hold packets back.
	htb scheduler = "htb"
	// hfsc keeps a schedule (Stoica, Zhang, Ng 1997): while packets wait, the time
	// at which the next one may leave follows from the bytes that have left, not
	// from when the kernel looked. An idle class saves up nothing. It serves only
	// queues that never hold packets back.
	hfsc scheduler = "hfsc"
)

// tree is the queues of one device: a scheduler if there are classes, otherwise
// a single leaf, otherwise nothing.
type tree struct {
	scheduler scheduler
	rate      shaping.Rate
	offset    int32 // of the address that classes are matched by, in the IP header
	classes   []class
	leaf      *leaf
}

// Offsets of the addresses in an IPv4 header.
const (
	offsetSource      = 12
	offsetDestination = 16
)

type class struct {
	rate       shaping.Rate // guaranteed; when others are idle, the tree's rate
	addr, mask uint32       // of the peers in it
	leaf       leaf
}

// leaf is a bfifo (limit in bytes) or, if netem is set, a netem (limit in
// packets).
type leaf struct {
	limit uint32
	netem *netem
}

func (l leaf) equal(o leaf) bool {
	return l.limit == o.limit && (l.netem == nil) == (o.netem == nil) && (l.netem == nil || *l.netem == *o.netem)
}

// sameShape reports whether one tree can be changed into the other in place.
func (t tree) sameShape(o tree) bool {
	same := func(a, b class) bool { return a.addr == b.addr && a.mask == b.mask }
	return (t.leaf == nil) == (o.leaf == nil) && t.offset == o.offset && slices.EqualFunc(t.classes, o.classes, same)
}

func (t tree) equal(o tree) bool {
	same := func(a, b class) bool { return a.rate == b.rate && a.leaf.equal(b.leaf) }
	return t.sameShape(o) && t.rate == o.rate && slices.EqualFunc(t.classes, o.classes, same) &&
		(t.leaf == nil || t.leaf.equal(*o.leaf))
}

// upTree is the tree of eth0 of node i: its rate_up, shared by destinations.
func upTree(plan *shaping.Plan, i int, backend Backend) tree {
	node := plan.Nodes[i]
	return rateTree(plan, i, backend, node.Up(), node.QueueBytes(node.RateUp), offsetDestination)
}

// downTree is the tree of the hub's end towards node j: its rate_down, shared
// by sources.
func downTree(plan *shaping.Plan, j int, backend Backend) tree {
	node := plan.Nodes[j]
	return rateTree(plan, j, backend, node.Down(), node.QueueBytes(node.RateDown), offsetSource)
}

func rateTree(plan *shaping.Plan, self int, backend Backend, rate shaping.Rate, queue int, offset int32) tree {
	if rate == 0 || len(plan.Nodes) < 2 || backend == BackendUser {
		return tree{}
	}
	t := grow(plan, self, rate, offset, func(int) leaf { return leaf{limit: uint32(queue)} })
	if backend == BackendNetem {
		t.scheduler = hfsc
	}
	return t
}

// pathTree is the tree for packets from node i into the hub, if netem makes the
// paths: a netem for each destination, or one for many equal paths.
func pathTree(plan *shaping.Plan, i int, backend Backend) tree {
	if backend != BackendNetem || len(plan.Nodes) < 2 {
		return tree{}
	}
	leafOf := func(j int) leaf { return leaf{limit: netemLimit(plan, i, j), netem: netemOf(plan, i, j)} }
	if len(plan.Nodes)-1 > maxOwnClasses && uniform(plan, i) {
		l := leafOf((i + 1) % len(plan.Nodes))
		return tree{leaf: &l}
	}
	return grow(plan, i, freeRate, offsetDestination, leafOf)
}

// uniform reports whether all paths from node i are equal.
func uniform(plan *shaping.Plan, i int) bool {
	carried := func(j int) shaping.PathPlan {
		p := plan.Paths[i][j]
		p.Refused = false // handled at the sender
		return p
	}
	first := carried((i + 1) % len(plan.Nodes))
	if first.Rate > 0 {
		return false // each has its own
	}
	for j := range plan.Nodes {
		if j != i && carried(j) != first {
			return false
		}
	}
	return true
}

func grow(plan *shaping.Plan, self int, rate shaping.Rate, offset int32, leafOf func(peer int) leaf) tree {
	t := tree{scheduler: htb, rate: rate, offset: offset}
	peers := len(plan.Nodes) - 1
	if peers > maxOwnClasses && leafOf((self+1)%len(plan.Nodes)).netem == nil {
		for low := range uint32(sharedClasses) {
			t.classes = append(t.classes, class{
				rate: rate / sharedClasses, addr: low, mask: sharedClasses - 1,
				leaf: leafOf((self + 1) % len(plan.Nodes)),
			})
		}
		return t
	}
	for i, peer := range plan.Nodes {
		if i != self {
			t.classes = append(t.classes, class{
				rate: rate / shaping.Rate(peers), addr: word(peer.Addr.Addr()), mask: 0xffffffff,
				leaf: leafOf(i),
			})
		}
	}
	return t
}

func word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// netemLimit is the number of packets that a netem may hold. It is all that can
// be under way from node i to node j and to the nodes that share its netem, so
// that only the plan limits traffic.
//
//	rate_up × (slowest delay + lateTime) × (1 + duplicate) ÷ smallest frame
//
// If the path has a rate, packets that wait for it are in the netem, which
// counts packets. The queue is then as many full frames.
func netemLimit(plan *shaping.Plan, i, j int) uint32 {
	path, up := plan.Paths[i][j], cmp.Or(plan.Nodes[i].RateUp, limitRate)
	if path.Rate > 0 {
		underWay := float64(path.Rate) / 8 * time.Duration(path.Slowest()).Seconds()
		return uint32(min((underWay+float64(plan.Nodes[i].QueueBytes(path.Rate)))/shaping.FrameSize, maxNetemLimit))
	}
	underWay := float64(up) / 8 * (time.Duration(path.Slowest()) + lateTime).Seconds() * (1 + float64(path.Duplicate))
	return uint32(min(max(underWay, shaping.MinQueueBytes)/smallestFrame, maxNetemLimit))
}

func (b Backend) check() error {
	if b != BackendNetem && !b.Routed() && b != BackendBridge {
		return fmt.Errorf("there is no link backend %q; the backends are %s, %s, %s and %s", b, BackendNetem, BackendUser, BackendHTB, BackendBridge)
	}
	return nil
}

// anySegments is the kernel's own bound of a batch, in frames (GSO_MAX_SEGS).
const anySegments = 65535

// segments is the number of frames of a batch that may leave a node as one.
// With only a bridge between nodes, no queue needs single packets.
func (b Backend) segments() uint32 {
	if b == BackendBridge {
		return anySegments
	}
	return 1
}

// lines describes the tree in the format in which readTree describes the
// kernel's state, for comparison and printing. seeds adds the seeds, if the
// kernel has them.
func (t tree) lines(seeds bool) []string {
	if t.leaf != nil {
		return []string{"root " + t.leaf.text(seeds)}
	}
	if len(t.classes) == 0 {
		return nil
	}
	all := []string{t.scheduler.rootLine(minorOf(0)), t.scheduler.classLine(1, t.rate, t.rate)}
	for k, c := range t.classes {
		all = append(all,
			t.scheduler.classLine(minorOf(k), c.rate, t.rate),
			fmt.Sprintf("class 1:%x %s", minorOf(k), c.leaf.text(seeds)),
			filterLine(t.offset, c.addr, c.mask, minorOf(k)))
	}
	return all
}

// minorOf is the handle of the class at position k; 1:1 is their parent.
func minorOf(k int) uint16 { return uint16(k + 2) }

func (s scheduler) rootLine(defaultMinor uint16) string {
	return fmt.Sprintf("root %s default 1:%x", s, defaultMinor)
}

// classLine describes a class with its guaranteed rate, and its limit.
func (s scheduler) classLine(minor uint16, rate, most shaping.Rate) string {
	rate = max(rate, minRate)
	if s == hfsc {
		return hfscLine(minor, uint64(hfscBytes(rate)), uint64(hfscBytes(hfscLimit(minor, most))))
	}
	return htbLine(minor, uint64(rate/8), uint64(most/8), shaping.Quantum)
}

func htbLine(minor uint16, rate, ceil uint64, quantum uint32) string {
	return fmt.Sprintf("class 1:%x rate %d B/s ceil %d B/s quantum %d B", minor, rate, ceil, quantum)
}

func hfscLine(minor uint16, share, limit uint64) string {
	if limit == 0 {
		return fmt.Sprintf("class 1:%x share %d B/s", minor, share)
	}
	return fmt.Sprintf("class 1:%x share %d B/s limit %d B/s", minor, share, limit)
}

// hfscLimit is the limit of a class, zero for none. The parent has the limit of
// all classes together.
func hfscLimit(minor uint16, most shaping.Rate) shaping.Rate {
	if minor == 1 {
		return most
	}
	return 0
}

// hfscBytes is a rate in HFSC's unit, 32 bits of bytes per second. Rates above
// 34.36 Gbit/s become that maximum, which is beyond the capacity of a veth
// pair.
func hfscBytes(r shaping.Rate) uint32 { return uint32(min(r/8, math.MaxUint32)) }

func filterLine(offset int32, addr, mask uint32, minor uint16) string {
	return fmt.Sprintf("filter at %d match %08x/%08x to 1:%x", offset, addr, mask, minor)
}

func (l leaf) text(seeds bool) string {
	if l.netem == nil {
		return fifoLine(l.limit)
	}
	return l.netem.text(l.limit, seeds)
}

func fifoLine(limit uint32) string { return fmt.Sprintf("bfifo limit %d B", limit) }
