package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// Network is an installed plan. Its methods may be called at the same time.
type Network struct {
	mu      sync.Mutex
	plan    *shaping.Plan
	backend Backend
	hub     *conn
	nodes   []node // by place in the plan
	here    []int  // those that are on this host
	short   error  // why TCP has less room than the links need
}

type node struct {
	ns              netns.NsHandle
	conn            *conn
	inside, outside int // interface indexes of eth0 and of the hub's end
	paths           int // that of the ifb with netem queues; BackendNetem only
	up, path, down  device
	window          int          // bytes of TCP's buffers that were asked for
	refused         map[int]bool // peers that the node has no route to
	arp             *os.File     // counts ARP packets; nil: not counted
	arpSeen         uint64       // number counted so far
}

// Nodes returns the names of the nodes on this host in the order of the plan.
func (n *Network) Nodes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var names []string
	for _, i := range n.here {
		names = append(names, n.plan.Nodes[i].Name)
	}
	return names
}

// Places are the places of Nodes in the plan.
func (n *Network) Places() []int { return slices.Clone(n.here) }

// NS returns the namespace of the named node, or netns.None() if there is
// none. The handle belongs to the network and is closed with it.
func (n *Network) NS(name string) netns.NsHandle {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := n.plan.Index(name); i >= 0 && i < len(n.nodes) {
		return n.nodes[i].ns
	}
	return netns.None()
}

// Close gives up the network. The kernel removes each namespace, and the
// links with it, as soon as no process lives in it any more.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, i := range n.here {
		if node := n.nodes[i]; node.conn != nil { // else building it failed before
			node.conn.close()
			errs = append(errs, node.ns.Close())
			if node.arp != nil {
				errs = append(errs, node.arp.Close())
			}
		}
	}
	here := n.here
	n.nodes, n.here = nil, nil
	if n.hub == nil {
		return errors.Join(errs...)
	}
	var own []string
	if !n.backend.Routed() {
		own = append(own, bridgeName)
	}
	for _, i := range here {
		if n.backend == BackendNetem {
			own = append(own, pathName(i))
		}
	}
	for _, name := range own {
		link, err := n.hub.LinkByName(name)
		if err == nil {
			err = n.hub.LinkDel(link)
		}
		if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
			errs = append(errs, fmt.Errorf("removing the interface %s: %w", name, err))
		}
	}
	n.hub.close()
	n.hub = nil
	return errors.Join(errs...)
}

// Difference is one line in which the kernel's state differs from the plan:
// planned and not found, or found and not planned.
type Difference struct {
	Where          string // node and device, for example "w0 eth0"
	Planned, Found string
}

func (d Difference) String() string {
	if d.Found == "" {
		return fmt.Sprintf("%s: missing %q", d.Where, d.Planned)
	}
	return fmt.Sprintf("%s: not planned: %q", d.Where, d.Found)
}

// ReadBack compares the kernel's state with the plan: links, addresses,
// neighbours, and every queue, class and filter. Without differences, the plan
// is installed completely and exactly.
func (n *Network) ReadBack() ([]Difference, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Difference
	hubQueues, err := n.hub.qdiscs()
	if err != nil {
		return nil, fmt.Errorf("reading back the hub: %w", err)
	}
	for _, i := range n.here {
		p, node := n.plan.Nodes[i], n.nodes[i]
		found, err := node.conn.readNode(node.inside)
		if err != nil {
			return nil, fmt.Errorf("reading back node %s: %w", p.Name, err)
		}
		if n.plan.TCP != "" {
			tcp, err := readTCP(node.ns)
			if err != nil {
				return nil, fmt.Errorf("reading back node %s: %w", p.Name, err)
			}
			found = append(found, tcpLine(tcp))
		}
		all = append(all, compare(p.Name+" "+NodeInterface, nodeLines(n.plan, i, n.backend), found)...)

		found, err = n.hub.readEnd(node.outside, hubQueues[node.outside])
		if err != nil {
			return nil, fmt.Errorf("reading back the hub's end of %s: %w", p.Name, err)
		}
		planned := device{tree: downTree(n.plan, i, n.backend), redirect: node.paths}
		all = append(all, compare(p.Name+" hub", append(planned.lines(false), linkLine(p.Name, hubMAC(i), true, 0)), found)...)
		if n.backend == BackendNetem {
			found, seeds, err := n.hub.readTree(node.paths, hubQueues[node.paths])
			if err != nil {
				return nil, fmt.Errorf("reading back the paths from %s: %w", p.Name, err)
			}
			all = append(all, compare(p.Name+" paths", pathTree(n.plan, i, n.backend).lines(seeds), found)...)
		}
	}
	return all, nil
}

// compare reports the lines that are in only one of the two.
func compare(where string, planned, found []string) []Difference {
	var all []Difference
	planned, found = slices.Sorted(slices.Values(planned)), slices.Sorted(slices.Values(found))
	for len(planned)+len(found) > 0 {
		switch {
		case len(found) == 0 || len(planned) > 0 && planned[0] < found[0]:
			all = append(all, Difference{Where: where, Planned: planned[0]})
			planned = planned[1:]
		case len(planned) == 0 || found[0] < planned[0]:
			all = append(all, Difference{Where: where, Found: found[0]})
			found = found[1:]
		default:
			planned, found = planned[1:], found[1:]
		}
	}
	return all
}

func nodeLines(plan *shaping.Plan, i int, backend Backend) []string {
	p := plan.Nodes[i]
	all := append(upTree(plan, i, backend).lines(false),
		linkLine(NodeInterface, p.MAC[:], true, backend.segments()), "address "+p.Addr.String())
	for j, peer := range plan.Nodes {
		if j != i {
			all = append(all, neighbourLine(peer.Addr.Addr().String(), peer.MAC[:]))
		}
		if plan.Paths[i][j].Refused {
			all = append(all, refusedLine(peer.Addr.Addr().String()))
		}
	}
	if plan.TCP != "" {
		all = append(all, tcpLine(plan.TCP))
	}
	return all
}

// linkLine describes a link. segments is its gso_max_segs, if it matters.
func linkLine(name string, mac net.HardwareAddr, up bool, segments uint32) string {
	line := fmt.Sprintf("link %s %v mtu %d", name, mac, shaping.MTU)
	if up {
		line += " up"
	}
	if segments != 0 {
		line += fmt.Sprintf(" gso_max_segs %d", segments)
	}
	return line
}

func neighbourLine(ip string, mac net.HardwareAddr) string {
	return fmt.Sprintf("neighbour %s %v permanent", ip, mac)
}

func refusedLine(ip string) string { return "route to " + ip + " unreachable" }

// readNode describes the state of a node's namespace in the format of
// nodeLines.
func (c *conn) readNode(index int) ([]string, error) {
	queues, err := c.qdiscs()
	if err != nil {
		return nil, err
	}
	all, _, err := c.readTree(index, queues[index])
	if err != nil {
		return nil, err
	}
	link, err := c.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", NodeInterface, err)
	}
	all = append(all, describeLink(link.Attrs(), link.Attrs().GSOMaxSegs))
	addrs, err := retry(func() ([]netlink.Addr, error) { return c.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range addrs {
		all = append(all, "address "+a.IPNet.String())
	}
	neighbours, err := retry(func() ([]netlink.Neigh, error) { return c.NeighList(index, unix.AF_INET) })
	if err != nil {
		return nil, fmt.Errorf("listing neighbours: %w", err)
	}
	for _, nb := range neighbours {
		if nb.State == netlink.NUD_PERMANENT {
			all = append(all, neighbourLine(nb.IP.String(), nb.HardwareAddr))
		}
	}
	refused, err := c.refusedRoutes()
	if err != nil {
		return nil, err
	}
	return append(all, refused...), nil
}

// readEnd describes the hub's end of a link.
func (c *conn) readEnd(index int, queues []qdisc) (all []string, err error) {
	all, _, err = c.readTree(index, queues)
	if err != nil {
		return nil, err
	}
	link, err := c.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("finding the interface: %w", err)
	}
	return append(all, describeLink(link.Attrs(), 0)), nil
}

func describeLink(a *netlink.LinkAttrs, segments uint32) string {
	line := linkLine(a.Name, a.HardwareAddr, a.Flags&net.FlagUp != 0, segments)
	if a.MTU != shaping.MTU {
		line += fmt.Sprintf(" but mtu %d", a.MTU)
	}
	return line
}

// QueueCount counts the packets that one queue has passed on and dropped since
// it was made.
type QueueCount struct {
	// Node is the node of the access link, or the node at which the path begins.
	Node string
	Down bool // towards the node; otherwise from it
	// Peer is the other node of the pair, empty if the queue is shared.
	Peer    string
	Kind    string // bfifo: a rate's; netem: a path's
	Packets uint64
	Bytes   uint64 // of Ethernet frames
	// Drops are packets beyond a rate's queue, as planned.
	Drops uint64
	// Lost are packets that a netem lost: by loss, by a cut, with a queue that a
	// change replaced, or beyond netem's own limit. The kernel counts these
	// together. If nothing was lossy, cut or replaced, they are beyond the limit,
	// which is never planned.
	Lost uint64
}

// Counters returns the counts of every queue, in the order of the plan.
func (n *Network) Counters() ([]QueueCount, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []QueueCount
	hubQueues, err := n.hub.qdiscs()
	if err != nil {
		return nil, fmt.Errorf("counting in the hub: %w", err)
	}
	for _, i := range n.here {
		p := n.plan.Nodes[i]
		queues, err := n.nodes[i].conn.qdiscs()
		if err != nil {
			return nil, fmt.Errorf("counting in node %s: %w", p.Name, err)
		}
		node := &n.nodes[i]
		all = append(all, n.count(p.Name, false, node.up.tree, node.up.counted(queues[node.inside]))...)
		all = append(all, n.count(p.Name, false, node.path.tree, node.path.counted(hubQueues[node.paths]))...)
		all = append(all, n.count(p.Name, true, node.down.tree, node.down.counted(hubQueues[node.outside]))...)
	}
	return all, nil
}

func (n *Network) count(node string, down bool, t tree, queues []qdisc) []QueueCount {
	var all []QueueCount
	for _, q := range queues {
		_, minor := netlink.MajorMinor(q.parent)
		peer := ""
		if k := int(minor) - int(minorOf(0)); q.parent != netlink.HANDLE_ROOT && k >= 0 && k < len(t.classes) {
			peer = n.peer(t.classes[k])
		}
		c := QueueCount{
			Node: node, Down: down, Peer: peer, Kind: q.kind,
			Packets: uint64(q.packets), Bytes: q.bytes, Drops: uint64(q.drops),
		}
		if q.kind == "netem" {
			c.Drops, c.Lost = 0, c.Drops
		}
		all = append(all, c)
	}
	return all
}

// peer names the node of a class that belongs to a single node.
func (n *Network) peer(c class) string {
	if c.mask != 0xffffffff {
		return ""
	}
	for _, p := range n.plan.Nodes {
		if word(p.Addr.Addr()) == c.addr {
			return p.Name
		}
	}
	return ""
}

// Load is the amount that a rate has passed on, and the amount that waits for
// it.
type Load struct {
	Rate    shaping.Rate // the current one; zero if unlimited
	Bytes   uint64       // of Ethernet frames, passed on so far
	Waiting uint64       // bytes
}

// UpRate is the current rate_up of the node at a place of the plan.
func (n *Network) UpRate(i int) shaping.Rate {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.plan.Nodes[i].Up()
}

// UpLoad is the load of rate_up of the node at a place of the plan, if the
// kernel enforces it. It is cheap enough to be called a thousand times a
// second.
func (n *Network) UpLoad(i int) (Load, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	rate := n.plan.Nodes[i].Up()
	if rate == 0 || n.backend == BackendUser {
		return Load{}, nil
	}
	q, err := n.nodes[i].conn.rootQdisc(n.nodes[i].inside)
	if err != nil {
		return Load{}, fmt.Errorf("looking at rate_up of node %s: %w", n.plan.Nodes[i].Name, err)
	}
	return Load{Rate: rate, Bytes: q.bytes, Waiting: uint64(q.backlog)}, nil
}

// DownWaiting is the number of bytes that wait for rate_down of the node at a
// place of the plan, if the kernel enforces it. It is as cheap as UpLoad.
func (n *Network) DownWaiting(i int) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.plan.Nodes[i].Down() == 0 || n.backend == BackendUser {
		return 0, nil
	}
	q, err := n.hub.rootQdisc(n.nodes[i].outside)
	if err != nil {
		return 0, fmt.Errorf("looking at rate_down of node %s: %w", n.plan.Nodes[i].Name, err)
	}
	return uint64(q.backlog), nil
}
