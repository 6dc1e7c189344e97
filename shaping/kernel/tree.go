package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"testbed/shaping"
)

// Backend says who delays and loses packets.
type Backend string

// The backends.
const (
	// BackendNetem uses the kernel's HTB and its netem queues on a bridge.
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
	// burstTime is how late the kernel may serve a class without losing
	// rate. Its price: after a pause that many bytes pass at once.
	burstTime = time.Millisecond
	// minRate is the least that HTB guarantees: one byte per second.
	minRate shaping.Rate = 8
)

// tree is what leaves one device, and how: with classes an HTB, otherwise
// the leaf alone, otherwise nothing.
type tree struct {
	rate    shaping.Rate
	offset  int32 // of the address that classes are matched by, in the IP header
	classes []class
	leaf    *leaf
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
// Behind a netem there may be a bfifo, which packets enter when their time has
// come: netem's limit cannot tell what is under way from what waits for the
// rate, and counts large and small alike.
type leaf struct {
	limit uint32
	netem *netem
	queue uint32 // limit of the bfifo behind netem, zero for none
}

func (l leaf) equal(o leaf) bool { return l.queue == o.queue && l.sameFront(o) }

// sameFront says whether the leaves differ in nothing but what is behind netem.
func (l leaf) sameFront(o leaf) bool {
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
	if node.RateUp == 0 || len(plan.Nodes) < 2 || backend == BackendUser {
		return tree{}
	}
	fifo := leaf{limit: uint32(node.QueueBytes(node.RateUp))}
	return grow(plan, i, node.Up(), offsetDestination, func(int) leaf { return fifo })
}

// downTree is what leaves the hub towards node j: its rate_down, shared by
// sources, behind the path from each of them if netem is to make it.
func downTree(plan *shaping.Plan, j int, backend Backend) tree {
	node := plan.Nodes[j]
	if len(plan.Nodes) < 2 {
		return tree{}
	}
	if backend != BackendNetem {
		if node.RateDown == 0 || backend == BackendUser {
			return tree{}
		}
		fifo := leaf{limit: uint32(node.QueueBytes(node.RateDown))}
		return grow(plan, j, node.Down(), offsetSource, func(int) leaf { return fifo })
	}
	peers, shared := len(plan.Nodes)-1, false
	if peers > maxOwnClasses {
		shared = uniform(plan, j)
	}
	senders := 1
	if shared && node.RateDown == 0 {
		senders = peers
	} else if shared {
		senders = peers/sharedClasses + 1
	}
	leafOf := func(i int) leaf {
		l := leaf{limit: netemLimit(plan, i, j, senders), netem: netemOf(plan, i, j)}
		// Nothing waits for an unlimited rate: what is due leaves at once.
		if node.RateDown != 0 {
			l.queue = uint32(node.QueueBytes(node.RateDown))
		}
		return l
	}
	rate := node.Down()
	if rate == 0 {
		// Where there are classes for all, they are there from the start,
		// so that a path of its own never needs another tree.
		if shared {
			l := leafOf((j + 1) % len(plan.Nodes))
			return tree{leaf: &l}
		}
		rate = freeRate
	}
	return grow(plan, j, rate, offsetSource, leafOf)
}

// uniform says whether the paths to node j differ in nothing.
func uniform(plan *shaping.Plan, j int) bool {
	first := (j + 1) % len(plan.Nodes)
	if plan.Paths[first][j].Rate > 0 {
		return false // each has it for itself
	}
	carried := func(i int) shaping.PathPlan {
		p := plan.Paths[i][j]
		p.Refused = false // the sender's affair
		return p
	}
	for i := range plan.Nodes {
		if i != j && (carried(i) != carried(first) || plan.Nodes[i].RateUp != plan.Nodes[first].RateUp) {
			return false
		}
	}
	return true
}

func grow(plan *shaping.Plan, self int, rate shaping.Rate, offset int32, leafOf func(peer int) leaf) tree {
	t := tree{rate: rate, offset: offset}
	peers := len(plan.Nodes) - 1
	if peers > maxOwnClasses && (leafOf((self+1)%len(plan.Nodes)).netem == nil || uniform(plan, self)) {
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
// under way to node j from node i, or from as many senders like it as share
// the netem, so that it never limits what the plan does not.
//
//	(senders × (rate_up × slowest delay + burst) × (1 + duplicate) + queue) ÷ smallest frame
//
// The queue is part of it because netem counts what waits behind it (kernels
// since 2026), and keeps what is due until HTB has room (all kernels). So
// whatever netem drops would have been too much for the queue as well. Where the
// path has a rate, what waits for that is in the netem, which counts packets: the
// queue is as many full frames then.
func netemLimit(plan *shaping.Plan, i, j, senders int) uint32 {
	path, up, down := plan.Paths[i][j], plan.Nodes[i].RateUp, plan.Nodes[j].RateDown
	if path.Rate > 0 {
		underWay := float64(path.Rate) / 8 * time.Duration(path.Slowest()).Seconds()
		return uint32(min((underWay+float64(plan.Nodes[i].QueueBytes(path.Rate)))/shaping.FrameSize, maxNetemLimit))
	}
	if up == 0 {
		up = limitRate
	}
	underWay := float64(up)/8*float64(path.Slowest())/1e9 + float64(htbBurst(up))
	underWay *= float64(senders) * (1 + float64(path.Duplicate))
	waiting := shaping.MinQueueBytes
	if down != 0 {
		waiting = plan.Nodes[j].QueueBytes(down)
	}
	return uint32(min((underWay+float64(waiting))/smallestFrame, maxNetemLimit))
}

// htbBurst is the number of bytes that a class of that rate may save up.
func htbBurst(rate shaping.Rate) uint32 {
	return uint32(max(2*shaping.FrameSize, float64(rate)/8*burstTime.Seconds()))
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
	all := []string{htbLine(minorOf(0)), classLine(1, uint64(t.rate/8), uint64(t.rate/8), shaping.Quantum)}
	for k, c := range t.classes {
		all = append(all,
			classLine(minorOf(k), uint64(max(c.rate, minRate)/8), uint64(t.rate/8), shaping.Quantum),
			fmt.Sprintf("class 1:%x %s", minorOf(k), c.leaf.text(seeds)),
			filterLine(t.offset, c.addr, c.mask, minorOf(k)))
		if c.leaf.queue != 0 {
			all = append(all, behindLine(minorOf(k), fifoLine(c.leaf.queue)))
		}
	}
	return all
}

// minorOf is the handle of the class at position k; 1:1 is their parent.
func minorOf(k int) uint16 { return uint16(k + 2) }

func htbLine(defaultMinor uint16) string { return fmt.Sprintf("root htb default 1:%x", defaultMinor) }

func classLine(minor uint16, rate, ceil uint64, quantum uint32) string {
	return fmt.Sprintf("class 1:%x rate %d B/s ceil %d B/s quantum %d B", minor, rate, ceil, shaping.Quantum)
}

func filterLine(offset int32, addr, mask uint32, minor uint16) string {
	return fmt.Sprintf("filter at %d match %08x/%08x to 1:%x", offset, addr, mask, minor)
}

func (l leaf) text(seeds bool) string {
	if l.netem == nil {
		return fifoLine(l.limit)
	}
	return l.netem.text(l.limit, seeds)
}

// behindLine describes the queue behind the netem of a class.
func behindLine(minor uint16, queue string) string {
	return fmt.Sprintf("class 1:%x netem, behind it %s", minor, queue)
}

func fifoLine(limit uint32) string { return fmt.Sprintf("bfifo limit %d B", limit) }
