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

// Backend says who delays and loses packets.
type Backend string

// The backends.
const (
	// BackendNetem uses the kernel's HFSC and its netem queues around a bridge.
	BackendNetem Backend = "netem"
	// BackendUser leaves packets to a router process on packet sockets.
	BackendUser Backend = "user"
	// BackendHTB does the same, but for rates and queues: these are HTB's.
	BackendHTB Backend = "htb"
	// BackendBridge has HTB and no paths: it is for plans whose paths are Plain.
	BackendBridge Backend = "bridge"
)

// Routed says that a router process carries packets.
func (b Backend) Routed() bool { return b == BackendUser || b == BackendHTB }

const (
	// maxOwnClasses is the number of peers up to which each has a class of
	// its own: 64 nodes take about a second to build.
	maxOwnClasses = 64
	// sharedClasses is the number of classes that more peers share, by the
	// low bits of their addresses: neighbours in the plan never meet, and
	// 256 nodes still build within seconds. A power of two.
	sharedClasses = 16
	// freeRate stands for an unlimited rate where HTB serves only to
	// classify: more than a veth carries, less than 2³² bytes per second.
	freeRate shaping.Rate = 32e9
	// limitRate stands for an unlimited rate in the limit of a netem queue.
	limitRate shaping.Rate = 10e9
	// smallestFrame is an empty UDP datagram with its headers. netem counts
	// packets, and no other mix of them is more for the same bytes.
	smallestFrame = shaping.UDPHeaders
	// maxNetemLimit bounds the memory of a netem queue: so many full frames
	// take 2.4 GB in the kernel. Packets are lost to it that the plan does not
	// ask for where more are under way: at 1 Gbit/s that is 13 s of full
	// frames, or 350 ms of the smallest.
	maxNetemLimit = 1 << 20
	// lateTime is how late the kernel may serve a rate of HFSC without that a
	// netem drops what then comes at once.
	lateTime = 100 * time.Millisecond
	// minRate is the least that a class is guaranteed: one byte per second.
	minRate shaping.Rate = 8
)

// scheduler is the kernel's queueing discipline that has classes.
type scheduler string

const (
	// htb is a token bucket (Devera 2002). It serves netem queues, too, which
	// keep packets although they have some.
	htb scheduler = "htb"
	// hfsc keeps a schedule (Stoica, Zhang, Ng 1997): while packets wait, the time
	// at which the next one may leave follows from the bytes that have left, and
	// not from when the kernel looked; a class that has been idle has saved up
	// nothing. It serves only queues that always give what they have.
	hfsc scheduler = "hfsc"
)

// tree is what leaves one device, and how: with classes a scheduler, otherwise
// the leaf alone, otherwise nothing.
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
	rate       shaping.Rate // guaranteed; the tree's rate when others are idle
	addr, mask uint32       // the peers in it
	leaf       leaf
}

// leaf is a bfifo (limit in bytes) or, if netem is set, a netem (in packets).
type leaf struct {
	limit uint32
	netem *netem
}

func (l leaf) equal(o leaf) bool {
	return l.limit == o.limit && (l.netem == nil) == (o.netem == nil) && (l.netem == nil || *l.netem == *o.netem)
}

// sameShape says whether one tree can become the other in place.
func (t tree) sameShape(o tree) bool {
	same := func(a, b class) bool { return a.addr == b.addr && a.mask == b.mask }
	return (t.leaf == nil) == (o.leaf == nil) && t.offset == o.offset && slices.EqualFunc(t.classes, o.classes, same)
}

func (t tree) equal(o tree) bool {
	same := func(a, b class) bool { return a.rate == b.rate && a.leaf.equal(b.leaf) }
	return t.sameShape(o) && t.rate == o.rate && slices.EqualFunc(t.classes, o.classes, same) &&
		(t.leaf == nil || t.leaf.equal(*o.leaf))
}

// upTree is what leaves eth0 of node i: its rate_up, shared by destinations.
func upTree(plan *shaping.Plan, i int, backend Backend) tree {
	node := plan.Nodes[i]
	return rateTree(plan, i, backend, node.Up(), node.QueueBytes(node.RateUp), offsetDestination)
}

// downTree is what leaves the hub towards node j: its rate_down, shared by
// sources.
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

// pathTree is what comes from node i into the hub, if netem makes the paths: a
// netem for each destination, or one for many that are alike.
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

// uniform says whether the paths from node i differ in nothing.
func uniform(plan *shaping.Plan, i int) bool {
	carried := func(j int) shaping.PathPlan {
		p := plan.Paths[i][j]
		p.Refused = false // the sender's affair
		return p
	}
	first := carried((i + 1) % len(plan.Nodes))
	if first.Rate > 0 {
		return false // each has it for itself
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

// netemLimit is the number of packets that a netem may hold: all that can be
// under way from node i to node j and those that have a netem in common with it,
// so that it never limits what the plan does not.
//
//	rate_up × (slowest delay + lateTime) × (1 + duplicate) ÷ smallest frame
//
// Where the path has a rate, what waits for that is in the netem, which counts
// packets: the queue is as many full frames then.
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
		return fmt.Errorf("no link backend %q; the backends are %s, %s, %s and %s", b, BackendNetem, BackendUser, BackendHTB, BackendBridge)
	}
	return nil
}

// anySegments is the kernel's own bound of a batch, in frames (GSO_MAX_SEGS).
const anySegments = 65535

// segments is how many frames of a batch may leave a node as one. Where a
// bridge is all that is between nodes, nothing has to meet single packets.
func (b Backend) segments() uint32 {
	if b == BackendBridge {
		return anySegments
	}
	return 1
}

// lines writes the tree the way readTree writes what the kernel holds, so
// that the two can be compared and printed; seeds where the kernel has them.
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

// classLine describes a class with a guaranteed rate, and the most it takes.
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

// hfscLimit is the limit of a class, zero for none: that of all is their
// parent's.
func hfscLimit(minor uint16, most shaping.Rate) shaping.Rate {
	if minor == 1 {
		return most
	}
	return 0
}

// hfscBytes is a rate as HFSC counts it, in bytes per second of 32 bits: more than
// 34.36 Gbit/s is that much, which is beyond what a veth pair carries.
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
