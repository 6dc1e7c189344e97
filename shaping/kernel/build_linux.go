package kernel

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/shaping"
)

const (
	// NodeInterface is the name of every node's own interface.
	NodeInterface = "eth0"
	// bridgeName cannot be the name of a node. Neither can names that begin with
	// pathPrefix: they are the interfaces whose queues are the paths from a node.
	bridgeName = "+hub"
	pathPrefix = "+"
	// addrGenNone keeps IPv6 silent: without a link-local address there is
	// no address detection, no router solicitation, no multicast report.
	addrGenNone = 1
)

// Build installs the plan's nodes on this host, around the hub: the network
// namespace of the calling thread. The hub must be the caller's own. Interfaces
// named like the nodes appear in it, and a bridge unless the backend is Routed.
// here reports which nodes, by their places in the plan, are on this host; nil
// means all. Nodes on other hosts need a router. The caller holds the thread
// locked. If the kernel lacks a feature, the error is an
// *errs.UnsupportedError. After any error nothing is left behind.
func Build(plan *shaping.Plan, backend Backend, here func(node int) bool) (*Network, error) {
	if err := backend.check(); err != nil {
		return nil, err
	}
	if backend == BackendBridge && !plan.Plain() {
		return nil, fmt.Errorf("building links: the link backend %s cannot delay or lose packets, but the plan has paths that do; choose %s or %s", backend, BackendNetem, BackendUser)
	}
	hub, err := dial()
	if err != nil {
		return nil, err
	}
	n := &Network{plan: plan, backend: backend, hub: hub, nodes: make([]node, len(plan.Nodes))}
	for i := range plan.Nodes {
		if n.nodes[i].ns = netns.None(); here == nil || here(i) {
			n.here = append(n.here, i)
		}
	}
	if err := n.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("building links: %w", err), n.Close())
	}
	return n, nil
}

func (n *Network) build() error {
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("opening the hub's namespace: %w", err)
	}
	defer home.Close()
	if err := n.createNamespaces(home); err != nil {
		return err
	}
	bridge, err := n.createBridge()
	if err != nil {
		return err
	}
	for _, i := range n.here {
		if err := n.createLink(i, home, bridge); err != nil {
			return fmt.Errorf("node %s: %w", n.plan.Nodes[i].Name, err)
		}
	}
	for _, i := range n.here {
		if err := n.shape(i); err != nil {
			return fmt.Errorf("node %s: %w", n.plan.Nodes[i].Name, err)
		}
	}
	n.short = n.setWindows()
	if err := n.refuse(); err != nil {
		return err
	}
	return n.awaitCarriers()
}

// patience limits the wait for the kernel's work queue.
const patience = 30 * time.Second

// awaitCarriers waits until both ends of every link send. The kernel activates
// the end that came up first in a work queue, some time after the second came
// up, and silently drops packets that are sent earlier (link_watch.c,
// dev_activate).
func (n *Network) awaitCarriers() error {
	deadline := time.Now().Add(patience)
	for _, i := range n.here {
		node := n.nodes[i]
		for _, end := range []struct {
			conn  *conn
			index int
		}{{n.hub, node.outside}, {node.conn, node.inside}} {
			for {
				link, err := end.conn.LinkByIndex(end.index)
				if err != nil {
					return fmt.Errorf("node %s: reading the state of its link: %w", n.plan.Nodes[i].Name, err)
				}
				if link.Attrs().OperState == netlink.OperUp {
					break
				}
				if time.Now().After(deadline) {
					return fmt.Errorf("node %s: the link should be up, but its state was still %v after %v", n.plan.Nodes[i].Name, link.Attrs().OperState, patience)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	return nil
}

// createNamespaces makes an anonymous namespace for every node here. If the
// thread cannot return home, it stays locked and dies with its goroutine
// instead of running others in the wrong namespace.
func (n *Network) createNamespaces(home netns.NsHandle) (err error) {
	runtime.LockOSThread()
	for _, i := range n.here {
		if err = n.createNamespace(&n.nodes[i]); err != nil {
			break
		}
	}
	if e := netns.Set(home); e != nil {
		return errors.Join(err, fmt.Errorf("returning to the hub's namespace: %w", e))
	}
	runtime.UnlockOSThread()
	return err
}

// createNamespace leaves the thread in the new namespace.
func (n *Network) createNamespace(of *node) error {
	ns, err := netns.New()
	if err != nil {
		return unsupported(featureNamespace, err)
	}
	c, err := dial()
	if err != nil {
		return errors.Join(err, ns.Close())
	}
	of.ns, of.conn = ns, c
	if n.plan.TCP == "" {
		_ = setTCP(shaping.DefaultTCP) // TCP reports the result
		return nil
	}
	return setTCP(n.plan.TCP)
}

func (n *Network) createBridge() (*netlink.Bridge, error) {
	if n.backend.Routed() {
		return nil, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = bridgeName, shaping.MTU
	attrs.HardwareAddr = hubMAC(len(n.plan.Nodes))
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: new(false)}
	if err := n.hub.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("adding a bridge: %w", asUnsupported(featureBridge, err))
	}
	if err := n.hub.raise(bridge); err != nil {
		return nil, err
	}
	return bridge, nil
}

// createLink makes both ends of node i's link directly in their namespaces, in
// one call, so that no end is ever anywhere else.
func (n *Network) createLink(i int, hubNS netns.NsHandle, bridge *netlink.Bridge) error {
	p, node := n.plan.Nodes[i], &n.nodes[i]
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = NodeInterface, shaping.MTU, p.MAC[:]
	attrs.Namespace = netlink.NsFd(node.ns)
	attrs.GSOMaxSegs = n.backend.segments()
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerHardwareAddr = p.Name, shaping.MTU, hubMAC(i)
	veth.PeerNamespace = netlink.NsFd(hubNS)
	if err := n.hub.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding a veth pair: %w", asUnsupported(featureVeth, err))
	}
	inside, err := node.conn.LinkByName(NodeInterface)
	if err != nil {
		return fmt.Errorf("finding %s: %w", NodeInterface, err)
	}
	outside, err := n.hub.LinkByName(p.Name)
	if err != nil {
		return fmt.Errorf("finding %s, the hub's end of the veth pair: %w", p.Name, err)
	}
	node.inside, node.outside = inside.Attrs().Index, outside.Attrs().Index

	if bridge != nil {
		if err := n.hub.join(outside, bridge, p.MAC); err != nil {
			return err
		}
	}
	if err := n.hub.raise(outside); err != nil {
		return err
	}
	if n.backend == BackendNetem {
		if err := n.createPaths(i); err != nil {
			return err
		}
	}
	return node.conn.address(n.plan, i, inside)
}

// createPaths makes the interface with the paths from node i, and redirects the
// node's packets through it.
func (n *Network) createPaths(i int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = pathName(i), shaping.MTU
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	ifb := &netlink.Ifb{LinkAttrs: attrs}
	if err := n.hub.LinkAdd(ifb); err != nil {
		return fmt.Errorf("adding an ifb: %w", asUnsupported(featureRedirect, err))
	}
	if err := n.hub.raise(ifb); err != nil {
		return err
	}
	n.nodes[i].paths = ifb.Index
	return n.hub.redirect(n.nodes[i].outside, ifb.Index)
}

func pathName(i int) string { return pathPrefix + strconv.Itoa(i) }

// raise brings a link up without IPv6.
func (c *conn) raise(link netlink.Link) error {
	err := c.LinkSetIP6AddrGenMode(link, addrGenNone)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) { // without any IPv6 there is nothing to do
		return fmt.Errorf("silencing IPv6 on %s: %w", link.Attrs().Name, err)
	}
	if err := c.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// join makes the link a port of the bridge that forwards to known addresses
// only: it floods nothing and learns nothing.
func (c *conn) join(link netlink.Link, bridge *netlink.Bridge, mac shaping.MAC) error {
	index := link.Attrs().Index
	if err := c.LinkSetMasterByIndex(link, bridge.Index); err != nil {
		return fmt.Errorf("joining the bridge: %w", err)
	}
	msg := nl.NewIfInfomsg(unix.AF_BRIDGE)
	msg.Index = int32(index)
	port := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
	for _, flag := range []int{nl.IFLA_BRPORT_LEARNING, nl.IFLA_BRPORT_UNICAST_FLOOD, nl.IFLA_BRPORT_MCAST_FLOOD, nl.IFLA_BRPORT_BCAST_FLOOD} {
		port.AddRtAttr(flag, []byte{0})
	}
	if _, err := c.request(unix.RTM_SETLINK, unix.NLM_F_ACK, 0, msg, port); err != nil {
		return fmt.Errorf("stopping the bridge's port from flooding: %w", err)
	}
	// NUD_NOARP is what bridge(8) calls static; NUD_PERMANENT would mean
	// that the address is the bridge's own.
	err := c.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP,
		Flags: netlink.NTF_MASTER, HardwareAddr: mac[:],
	})
	if err != nil {
		return fmt.Errorf("adding %v to the bridge's table: %w", mac, err)
	}
	return nil
}

// address gives node i its address and announces it to all others, so that
// address resolution never crosses the link.
func (c *conn) address(plan *shaping.Plan, i int, eth0 netlink.Link) error {
	lo, err := c.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := c.raise(lo); err != nil {
		return err
	}
	if err := c.AddrAdd(eth0, &netlink.Addr{IPNet: ipNet(plan.Nodes[i])}); err != nil {
		return fmt.Errorf("adding the address %v: %w", plan.Nodes[i].Addr, err)
	}
	if err := c.raise(eth0); err != nil {
		return err
	}
	return c.neighbours(plan, i, eth0.Attrs().Index)
}

// neighbours adds all others to node i's neighbours.
func (c *conn) neighbours(plan *shaping.Plan, i, eth0 int) error {
	for j, peer := range plan.Nodes {
		if j == i {
			continue
		}
		err := c.NeighSet(&netlink.Neigh{
			LinkIndex: eth0, Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
			IP: peer.Addr.Addr().AsSlice(), HardwareAddr: peer.MAC[:],
		})
		if err != nil {
			return fmt.Errorf("adding %s to the neighbour table: %w", peer.Name, err)
		}
	}
	return nil
}

func (n *Network) shape(i int) error {
	node := &n.nodes[i]
	node.up = device{conn: node.conn, index: node.inside, name: "rate_up"}
	if err := node.up.install(upTree(n.plan, i, n.backend)); err != nil {
		return fmt.Errorf("shaping rate_up: %w", err)
	}
	paths := pathTree(n.plan, i, n.backend)
	node.path = device{conn: n.hub, index: node.paths, name: "paths"}
	if err := node.path.install(paths); err != nil {
		return fmt.Errorf("making paths: %w", paths.explain(err))
	}
	node.down = device{conn: n.hub, index: node.outside, name: "rate_down", redirect: node.paths}
	if err := node.down.install(downTree(n.plan, i, n.backend)); err != nil {
		return fmt.Errorf("shaping rate_down: %w", err)
	}
	return nil
}

// explain names the meaning of EINVAL if the tree duplicates.
func (t tree) explain(err error) error {
	duplicates := func(c class) bool { return c.leaf.netem != nil && c.leaf.netem.duplicate > 0 }
	if errors.Is(err, unix.EINVAL) && slices.ContainsFunc(t.classes, duplicates) {
		return unsupported(featureDuplicate, err)
	}
	return err
}

func ipNet(n shaping.NodePlan) *net.IPNet {
	return &net.IPNet{IP: n.Addr.Addr().AsSlice(), Mask: net.CIDRMask(n.Addr.Bits(), 32)}
}

// hubMAC is the address of the hub's end of node k's link. It receives nothing,
// and only has to differ from every node's.
func hubMAC(k int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x54, 0x42, 0x01, byte((k + 1) >> 8), byte(k + 1)}
}
