//go:build linux

package linkcheck

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/emulation/sandbox"
	"testbed/internal/thread"
	"testbed/shaping"
	"testbed/shaping/probe"
	"testbed/shaping/tunnel"
)

// KindProber is the program of a prober: RunProber.
const KindProber = "prober"

// proberName is the name of the prober's process. No node has that name.
const proberName = "prober"

// proberSpec configures the process of each host that measures pairs of nodes.
// Its sockets are in the namespaces of its host's nodes, so that it measures
// the nodes' own links.
type proberSpec struct {
	Plan  *shaping.Plan
	Pairs []probe.Pair
}

// proberOrder is an order to a prober: prepare for a step, do it, or report its
// observations. All probers finish an order before any begins the next.
type proberOrder struct {
	Begin *probe.Step `json:",omitempty"`
	Do    bool        `json:",omitempty"`
}

// proberAnswer reports that an order has been carried out.
type proberAnswer struct {
	Seen *probe.Seen `json:",omitempty"`
}

// crew is the probers of all hosts.
type crew struct {
	s        *network.Supervisor
	hosts    *cluster.Hosts
	network  *network.Network
	spec     proberSpec
	children []*network.Child // by host
	answers  []proberAnswer   // by host, to the order under way
	waiting  int              // number of missing answers
	// clocks makes the hosts compare their clocks, so that one-way delays between
	// hosts are meaningful.
	clocks  bool
	stepped []time.Duration // by host: how far wall clocks were set meanwhile
}

// newCrew starts a prober on each host.
func newCrew(s *network.Supervisor, hosts *cluster.Hosts, links *network.Network, spec proberSpec) (*crew, error) {
	c := &crew{s: s, hosts: hosts, network: links, spec: spec}
	for k := range hosts.Names() {
		child, err := hosts.Start(k, network.ChildSpec{
			Name: proberName, Kind: KindProber, Spec: spec,
			OnData: func(data json.RawMessage) error {
				c.answers[k] = proberAnswer{}
				c.waiting--
				if err := json.Unmarshal(data, &c.answers[k]); err != nil {
					return fmt.Errorf("internal error: parsing the results of %s: %w", c.prober(k), err)
				}
				return nil
			},
		})
		if err != nil {
			return nil, err
		}
		c.children = append(c.children, child)
	}
	c.answers, c.stepped = make([]proberAnswer, len(c.children)), make([]time.Duration, len(c.children))
	return c, c.await(network.StartupPatience, "the processes that measure links to start", func() bool { return c.all(func(c *network.Child) bool { return c.Ready }) })
}

// prober names the prober of a host, for an error message.
func (c *crew) prober(k int) string {
	if c.hosts.Several() {
		return "the link measurement on host " + c.hosts.Names()[k]
	}
	return "the link measurement"
}

func (c *crew) all(so func(*network.Child) bool) bool {
	return !slices.ContainsFunc(c.children, func(c *network.Child) bool { return !so(c) })
}

// await waits until done, or until a prober has ended, which is an error.
func (c *crew) await(patience time.Duration, what string, done func() bool) error {
	var gone *network.Child
	err := c.s.Await(patience, what, func() bool {
		if k := slices.IndexFunc(c.children, func(c *network.Child) bool { return c.Ended }); k >= 0 {
			gone = c.children[k]
		}
		return gone != nil || done()
	})
	if err == nil && gone != nil {
		return gone.Err()
	}
	return err
}

// order gives all probers an order, and waits until all have carried it out.
func (c *crew) order(o proberOrder, patience time.Duration) error {
	c.waiting = len(c.children)
	for _, child := range c.children {
		_ = child.Send(o) // the end of a prober is noticed by itself
	}
	return c.await(network.StartupPatience+patience, "the measurement of the links to finish", func() bool { return c.waiting == 0 })
}

// do implements probe.Crew.
func (c *crew) do(step probe.Step) ([]probe.Saw, error) {
	before, err := c.compared()
	if err != nil {
		return nil, err
	}
	patience := step.Time + step.Far
	for _, s := range step.Probes {
		patience = max(patience, step.Time+step.Far+time.Duration(s.Count)*s.Gap)
	}
	for _, o := range []proberOrder{{Begin: &step}, {Do: true}, {}} {
		if err := c.order(o, patience); err != nil {
			return nil, err
		}
	}
	after, err := c.compared()
	if err != nil {
		return nil, err
	}
	seen := make([]probe.Seen, len(c.answers))
	for k, a := range c.answers {
		if a.Seen == nil || len(a.Seen.Pairs) != len(c.spec.Pairs) {
			return nil, fmt.Errorf("%s sent no results", c.prober(k))
		}
		seen[k] = *a.Seen
		c.stepped[k] += a.Seen.Stepped
	}
	saw := probe.Merge(c.spec.Pairs, seen, c.hosts.Of, func(host, other int) (time.Duration, time.Duration) {
		x, y := before[[2]int{host, other}], after[[2]int{host, other}]
		return (x.Offset + y.Offset) / 2, max(x.Bound, y.Bound)
	})
	if !c.clocks {
		for k, p := range c.spec.Pairs {
			if c.hosts.Of(p.From) != c.hosts.Of(p.To) {
				saw[k].Delays = nil
			}
		}
	}
	return saw, nil
}

// compared is the routers' comparison of their clocks, by pairs of hosts.
func (c *crew) compared() (map[[2]int]tunnel.Stats, error) {
	if !c.clocks || !c.hosts.Several() {
		return nil, nil
	}
	count, err := c.network.Count()
	if err != nil {
		return nil, err
	}
	all, hosts := map[[2]int]tunnel.Stats{}, c.hosts.Names()
	for _, u := range count.Underlay {
		all[[2]int{slices.Index(hosts, u.To), slices.Index(hosts, u.From)}] = u
	}
	return all, nil
}

// end ends the probers.
func (c *crew) end() error {
	for _, child := range c.children {
		child.CloseCommands()
	}
	if err := c.s.Await(network.StartupPatience, "the processes that measure links to end", func() bool { return c.all(func(c *network.Child) bool { return c.Ended }) }); err != nil {
		return err
	}
	for _, child := range c.children {
		if child.Failure != "" {
			return child.Err()
		}
	}
	return nil
}

// notes report wall clocks that were set: delays are differences of them.
func (c *crew) notes() (all []string) {
	for k, step := range c.stepped {
		if step.Abs() > 5*time.Millisecond {
			where := "the machine's clock"
			if c.hosts.Several() {
				where = "the clock of the host " + c.hosts.Names()[k]
			}
			all = append(all, fmt.Sprintf("%s was changed by %v during the measurement: measured delays are wrong by up to that time", where, step.Round(time.Millisecond)))
		}
	}
	return all
}

// RunProber is the process of a prober: it carries out orders until there are
// no more.
func RunProber(self *network.Self) error {
	var s proberSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	p, err := probe.New(s.Plan, s.Pairs, func(node int) bool { return isHere(s.Plan.Nodes[node].Name) }, func(name string, port int) (*net.UDPConn, error) {
		return listenIn(name, s.Plan, port)
	})
	if err != nil {
		return err
	}
	defer p.Close()
	self.Ready()
	for commands := self.Commands(); ; {
		var o proberOrder
		if commands.Decode(&o) != nil {
			return nil // the end of the file
		}
		var answer proberAnswer
		switch {
		case o.Begin != nil:
			p.Begin(*o.Begin)
		case o.Do:
			p.Do()
		default:
			answer.Seen = new(p.Saw())
		}
		self.Tell(answer)
	}
}

// isHere reports whether a node is on this host.
func isHere(name string) bool {
	_, err := os.Stat(filepath.Join(sandbox.NetNSDir, name))
	return err == nil
}

// listenIn opens a UDP socket in the namespace of a node. The socket stays
// there. The thread that went in does not come back.
func listenIn(name string, plan *shaping.Plan, port int) (conn *net.UDPConn, err error) {
	thread.Do(func() {
		var ns *os.File
		if ns, err = os.Open(filepath.Join(sandbox.NetNSDir, name)); err != nil {
			return
		}
		defer ns.Close()
		if err = os.NewSyscallError("setns", unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)); err != nil {
			return
		}
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: plan.Nodes[plan.Index(name)].Addr.Addr().AsSlice(), Port: port})
	})
	return conn, err
}
