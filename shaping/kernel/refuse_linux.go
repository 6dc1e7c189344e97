package kernel

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// refuse adds unreachable routes from each node to the peers that it is
// refused, and removes those to others. It reads back everything that it
// touched.
func (n *Network) refuse() error {
	for _, i := range n.here {
		p, node, changed := n.plan.Nodes[i], &n.nodes[i], false
		for j, path := range n.plan.Paths[i] {
			if path.Refused == node.refused[j] {
				continue
			}
			if err := node.conn.refuse(n.plan.Nodes[j], path.Refused); err != nil {
				return fmt.Errorf("node %s: %w", p.Name, err)
			}
			if node.refused == nil {
				node.refused = make(map[int]bool)
			}
			node.refused[j], changed = path.Refused, true
		}
		if !changed {
			continue
		}
		found, err := node.conn.refusedRoutes()
		if err != nil {
			return fmt.Errorf("reading back a change: node %s: %w", p.Name, err)
		}
		var planned []string
		for j, path := range n.plan.Paths[i] {
			if path.Refused {
				planned = append(planned, refusedLine(n.plan.Nodes[j].Addr.Addr().String()))
			}
		}
		for _, difference := range compare(p.Name, planned, found) {
			return fmt.Errorf("the kernel did not apply a change: %v", difference)
		}
	}
	return nil
}

// refuse adds or removes the unreachable route to a peer, whether or not it is
// there already.
func (c *conn) refuse(peer shaping.NodePlan, refused bool) error {
	route := &netlink.Route{
		Dst:  &net.IPNet{IP: peer.Addr.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)},
		Type: unix.RTN_UNREACHABLE,
	}
	if refused {
		if err := c.RouteReplace(route); err != nil {
			return fmt.Errorf("adding the unreachable route to %s: %w", peer.Name, err)
		}
		return nil
	}
	if err := c.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the unreachable route to %s: %w", peer.Name, err)
	}
	return nil
}

// refusedRoutes describes the unreachable routes of the namespace in the format
// of refusedLine.
func (c *conn) refusedRoutes() ([]string, error) {
	routes, err := retry(func() ([]netlink.Route, error) {
		return c.RouteListFiltered(unix.AF_INET, &netlink.Route{Type: unix.RTN_UNREACHABLE}, netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	var all []string
	for _, r := range routes {
		if r.Dst != nil {
			all = append(all, refusedLine(r.Dst.IP.String()))
		}
	}
	return all, nil
}
