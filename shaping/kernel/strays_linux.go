package kernel

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Strays counts packets from programs in a node that no link carries: links
// carry only IPv4 between two nodes.
type Strays struct {
	Node string
	// Broadcast and Multicast count packets that left the node and reached nobody.
	Broadcast, Multicast uint64
	// IPv6 and Elsewhere count attempts to send by IPv6, and to addresses that are
	// no node's. The program got an error.
	IPv6, Elsewhere uint64
	// ARP are packets of the address resolution protocol, which no node needs and
	// none answers. They are counted after CountARP.
	ARP uint64
}

func (s Strays) String() string {
	var all []string
	for _, c := range []struct {
		n    uint64
		one  string
		many string
	}{
		{s.Broadcast, "broadcast packet", "broadcast packets"}, {s.Multicast, "multicast packet", "multicast packets"}, {s.ARP, "ARP packet", "ARP packets"},
		{s.IPv6, "attempt to send by IPv6", "attempts to send by IPv6"}, {s.Elsewhere, "attempt to send beyond the network", "attempts to send beyond the network"},
	} {
		switch c.n {
		case 0:
		case 1:
			all = append(all, "1 "+c.one)
		default:
			all = append(all, fmt.Sprintf("%d %s", c.n, c.many))
		}
	}
	return s.Node + ": " + strings.Join(all, ", ")
}

// Strays returns the strays of the nodes on this host, if they have any.
func (n *Network) Strays() ([]Strays, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Strays
	for _, i := range n.here {
		c, err := countersOf(n.nodes[i].ns)
		if err != nil {
			return nil, fmt.Errorf("counting the undeliverable packets of node %s: %w", n.plan.Nodes[i].Name, err)
		}
		s := Strays{
			Node: n.plan.Nodes[i].Name, Broadcast: c["IpExt.OutBcastPkts"], Multicast: c["IpExt.OutMcastPkts"],
			IPv6: c["Ip6OutNoRoutes"], Elsewhere: c["Ip.OutNoRoutes"],
		}
		arps, err := n.nodes[i].arps()
		if err != nil {
			return nil, fmt.Errorf("counting the ARP packets of node %s: %w", s.Node, err)
		}
		n.nodes[i].arpSeen += arps
		s.ARP = n.nodes[i].arpSeen
		if s != (Strays{Node: s.Node}) {
			all = append(all, s)
		}
	}
	return all, nil
}

// countersOf reads the counters of a namespace's protocols: «Ip.OutNoRoutes» and the
// like, and without a dot those of IPv6, which a kernel may lack.
func countersOf(ns netns.NsHandle) (map[string]uint64, error) {
	all := map[string]uint64{}
	return all, inNamespace(ns, func() error {
		for _, name := range []string{"snmp", "netstat"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			addCounters(all, string(text))
		}
		if text, err := os.ReadFile("/proc/thread-self/net/snmp6"); err == nil {
			addCounters(all, string(text))
		}
		return nil
	})
}

// addCounters reads both formats of such files: a line of names and one of
// values, each after the protocol's name, or a name and a value on each line.
func addCounters(to map[string]uint64, text string) {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && !strings.HasSuffix(f[0], ":"):
			if v, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				to[f[0]] = v
			}
		case len(names) == len(f) && len(f) > 0 && names[0] == f[0]:
			for k := 1; k < len(f); k++ {
				if v, err := strconv.ParseUint(f[k], 10, 64); err == nil {
					to[strings.TrimSuffix(f[0], ":")+"."+names[k]] = v
				}
			}
			names = nil
		default:
			names = f
		}
	}
}

// KeepNeighbours restores the neighbours of every node here when a program has
// taken its interface down and up, because the kernel forgets them then. It
// ends when done is closed.
func (n *Network) KeepNeighbours(done <-chan struct{}) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.here {
		updates, inside := make(chan netlink.LinkUpdate, 16), n.nodes[i].inside
		if err := netlink.LinkSubscribeAt(n.nodes[i].ns, updates, done); err != nil {
			return fmt.Errorf("watching the interface of node %s: %w", n.plan.Nodes[i].Name, err)
		}
		go func() {
			up := true
			for u := range updates {
				if int(u.Index) != inside {
					continue
				}
				was := up
				if up = u.IfInfomsg.Flags&unix.IFF_UP != 0; was || !up {
					continue
				}
				n.mu.Lock()
				if n.hub != nil { // otherwise it is closed, and the namespace about to be removed
					_ = n.nodes[i].conn.neighbours(n.plan, i, inside) // the interface may be down again
				}
				n.mu.Unlock()
			}
		}()
	}
	return nil
}
