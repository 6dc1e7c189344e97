//go:build linux

package network

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"time"

	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/shaping"
	"testbed/shaping/kernel"
	"testbed/shaping/userlink"
)

// Network is the network of a plan that is up: built, read back and, unless the
// kernel does everything, carried by a router.
type Network struct {
	Plan    *shaping.Plan // as it began, by the machine's clock
	Backend kernel.Backend
	Kernel  *kernel.Network

	Undilated *shaping.Plan // Plan, not dilated
	Dilation  float64       // at least 1

	s        *Supervisor
	places   []int           // in the plan, of the nodes on this host
	router   *Child          // nil if the kernel delays packets
	board    *userlink.Board // if the router keeps rates; otherwise nil
	carried  *shaping.Plan   // the router's
	onCount  func(*userlink.Stats)
	count    *userlink.Stats   // the router's last answer
	counts   []*userlink.Stats // answers that wait for those of other hosts
	sum      *userlink.Stats   // of all hosts, as of the last time
	takeDown bool              // the router's end is expected
}

// BringUp makes the network of the plan and waits until it carries packets.
// Everything is slower by the factor dilation, by the machine's clock
// (shaping.Plan.Dilated). It calls onCount with each count of the router; the
// last one is that of its end. onCount may be nil.
func (s *Supervisor) BringUp(plan *shaping.Plan, dilation float64, links string, onCount func(*userlink.Stats)) (*Network, error) {
	slow, err := plan.Dilated(dilation)
	if err != nil {
		return nil, fmt.Errorf("building the network: real.dilation: %w", err)
	}
	n := &Network{Plan: slow, Undilated: plan, Dilation: dilation, s: s, carried: slow, onCount: onCount}
	if err := n.build(links); err != nil {
		return nil, err
	}
	s.network = n
	if !n.Backend.Routed() {
		return n, nil
	}
	if s.remote != nil {
		s.remote.Build(n.Plan)
	}
	if err := n.startRouter(); err != nil {
		return nil, err
	}
	return n, s.Await(StartupPatience, "the router to start", func() bool { return n.router.Ready && (s.remote == nil || s.remote.Built()) })
}

func (n *Network) startRouter() error {
	spec := ChildSpec{
		Name: routerName, NetNS: Hub, Kind: KindRouter, Spec: routerSpec{n.Plan, n.Backend == kernel.BackendHTB, n.s.layout},
		Watched: true, OnData: n.counted, OnEnd: n.routerEnded,
	}
	if n.Backend == kernel.BackendUser {
		board, file, err := userlink.NewBoard(len(n.Plan.Nodes))
		if err != nil {
			return err
		}
		defer file.Close()
		n.board, spec.Files, spec.FileNames = board, []*os.File{file}, []string{boardFile}
	}
	if n.s.layout != nil {
		spec.Files, spec.FileNames = append(spec.Files, n.s.files[TunnelFile]), append(spec.FileNames, TunnelFile)
	}
	var err error
	n.router, err = n.s.StartChild(spec)
	return err
}

// Router is the process that carries packets, nil if the kernel does.
func (n *Network) Router() *Child { return n.router }

// UpLoad is the load of rate_up of the node at a place among Kernel.Nodes. It
// is cheap enough to be called a thousand times a second.
func (n *Network) UpLoad(k int) (kernel.Load, error) {
	i := n.places[k]
	if n.board == nil {
		return n.Kernel.UpLoad(i)
	}
	up, _ := n.board.Load(i)
	return kernel.Load{Rate: n.Kernel.UpRate(i), Bytes: up.Bytes, Waiting: up.Waiting}, nil
}

// DownWaiting is the number of bytes that wait for rate_down of the node at a
// place among Kernel.Nodes. It is as cheap as UpLoad.
func (n *Network) DownWaiting(k int) (uint64, error) {
	i := n.places[k]
	if n.board == nil {
		return n.Kernel.DownWaiting(i)
	}
	_, down := n.board.Load(i)
	return down.Waiting, nil
}

// build makes the network and reads it back.
func (n *Network) build(links string) error {
	backend, why, err := chooseBackend(links)
	if err != nil {
		return err
	}
	n.Backend = backend
	begin := time.Now()
	if n.s.layout != nil && backend != kernel.BackendUser {
		return errs.Usagef("--links %s works on one host only; use --links user", backend)
	}
	if n.Kernel, err = kernel.Build(n.Plan, backend, n.s.layout.Has); err != nil {
		return fmt.Errorf("building the network: %w", err)
	}
	n.places = n.Kernel.Places()
	if err := n.furnish(); err != nil {
		return err
	}
	differences, err := n.Kernel.ReadBack()
	if err != nil {
		return fmt.Errorf("reading the built network back from the kernel: %w", err)
	}
	if len(differences) > 0 {
		return fmt.Errorf("the network in the kernel differs from the plan (differences: %d, the first: %s)", len(differences), differences[0])
	}
	tcp, err := n.Kernel.TCP()
	if err != nil {
		tcp = "unknown"
	}
	if short := n.Kernel.ShortWindows(); short != nil {
		n.s.Tell("%v: TCP windows in the nodes are limited to %s, which may be too small for a fast path with a long delay", short, n.windows())
	}
	n.s.Note(Note{Quiet: true, Stage: fmt.Sprintf("%s links (%s): %s, built and checked in %d ms, with TCP %s and windows of up to %s",
		backend, why, errs.Count(len(n.places), "node"), time.Since(begin).Milliseconds(), tcp, n.windows())})
	return nil
}

// windows are the largest windows of TCP in the nodes on this host, in words.
func (n *Network) windows() string {
	least, most := math.MaxInt, 0
	for _, i := range n.places {
		w, err := n.Kernel.Window(i)
		if err != nil {
			return "an unknown size"
		}
		least, most = min(least, w), max(most, w)
	}
	if least >= most {
		return fmt.Sprintf("%.1f MB", float64(most)/1e6)
	}
	return fmt.Sprintf("%.1f to %.1f MB", float64(least)/1e6, float64(most)/1e6)
}

// furnish turns the nodes on this host into machines, which know the names of
// all nodes.
func (n *Network) furnish() error {
	var hosts []sandbox.Host
	for _, p := range n.Plan.Nodes {
		hosts = append(hosts, sandbox.Host{Name: p.Name, Addr: p.Addr.Addr().String()})
	}
	if err := n.s.Box.WriteHosts(hosts); err != nil {
		return err
	}
	here := n.Kernel.Nodes()
	for _, name := range here {
		if err := n.s.Box.BindNetNS(name, n.NS(name)); err != nil {
			return err
		}
	}
	for _, name := range here {
		if err := n.s.Box.Furnish(name, n.NS(name)); err != nil {
			return err
		}
	}
	return nil
}

// Supports reports whether this machine supports a link backend. It must be
// called in a sandbox.
func Supports(links string) error {
	_, _, err := chooseBackend(links)
	return err
}

// chooseBackend resolves the user's choice of links and gives the reason.
func chooseBackend(links string) (kernel.Backend, string, error) {
	can := kernel.Probe()
	switch links {
	case LinksBridge:
		return kernel.BackendBridge, "nothing is delayed or lost", can.Supports(kernel.BackendBridge)
	case LinksNetem:
		return kernel.BackendNetem, "as asked", can.Supports(kernel.BackendNetem)
	case LinksUser:
		return kernel.BackendUser, "as asked", can.Supports(kernel.BackendUser)
	case LinksHTB:
		return kernel.BackendHTB, "as asked", can.Supports(kernel.BackendHTB)
	}
	if can.Supports(kernel.BackendNetem) == nil {
		return kernel.BackendNetem, "the kernel has netem", nil
	}
	return kernel.BackendUser, "the kernel has no netem", can.Supports(kernel.BackendUser)
}

// StartNode starts a process in the namespace of the node of its name, on
// whatever host it is.
func (n *Network) StartNode(spec ChildSpec) (*Child, error) { return n.StartIn(spec.Name, spec) }

// StartIn starts a process of any name in the namespace of a node, on whatever
// host it is.
func (n *Network) StartIn(node string, spec ChildSpec) (*Child, error) {
	if k := n.Plan.Index(node); !n.s.layout.Has(k) {
		return n.s.remote.Start(n.s.layout.Of[k], node, spec)
	}
	spec.NetNS = n.NS(node)
	return n.s.StartChild(spec)
}

// NS returns the descriptor of a node's network namespace.
func (n *Network) NS(name string) int { return int(n.Kernel.NS(name)) }

// Addr returns the address of a node.
func (n *Network) Addr(name string) netip.Addr {
	return n.Plan.Nodes[n.Plan.Index(name)].Addr.Addr()
}

// Change changes the links on this host.
func (n *Network) Change(c Change) error { return n.change(c.to(n.carried)) }

// change changes the network to another plan for the same nodes, in place.
func (n *Network) change(plan *shaping.Plan) error {
	if c := n.changeTo(plan); n.router != nil && (c.Plan != nil || c.Paces != nil) {
		if err := n.router.Send(c); err != nil {
			return fmt.Errorf("changing the network: telling the router: %w", err)
		}
		if n.s.remote != nil {
			n.s.remote.Change(c)
		}
	}
	n.carried = plan
	if err := n.Kernel.Change(plan); err != nil {
		return fmt.Errorf("changing the network: %w", err)
	}
	return nil
}

// changeTo is the change of the router's links to a plan. A trace changes rates
// every 100 ms, and plans are long.
func (n *Network) changeTo(plan *shaping.Plan) (c Change) {
	if !plan.EqualButPace(n.carried) {
		c.Plan = plan
		return c
	}
	for i, to := range plan.Nodes {
		if was := n.carried.Nodes[i]; to.Up() != was.Up() || to.Down() != was.Down() {
			c.Paces = append(c.Paces, Pace{i, to.Up(), to.Down()})
		}
	}
	return c
}

// TakeDown stops the router and returns its count, nil without a router.
func (n *Network) TakeDown() (*userlink.Stats, error) {
	n.takeDown = true
	if n.router == nil {
		return nil, nil
	}
	n.router.CloseCommands()
	if n.s.remote != nil {
		n.s.remote.End()
	}
	err := n.s.Await(StartupPatience, "the router to end", func() bool { return n.router.Ended && (n.s.remote == nil || n.s.remote.Ended()) })
	return n.sum, err
}

// Drops are the packets that links have dropped so far as planned, by node;
// router is the router's count, nil without a router. With several hosts the
// router has all queues, so the kernels of other hosts have none.
func (n *Network) Drops(router *userlink.Stats) ([]userlink.NodeDrops, error) {
	var all []userlink.NodeDrops
	if router != nil {
		all = router.Drops
	}
	counts, err := n.Kernel.Counters()
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		d := userlink.NodeDrops{Node: c.Node, Path: c.Lost}
		if c.Down {
			d.Down = c.Drops
		} else {
			d.Up = c.Drops
		}
		if d != (userlink.NodeDrops{Node: c.Node}) {
			all = userlink.AddDrops(all, []userlink.NodeDrops{d})
		}
	}
	return all, nil
}

// AskCount asks the router for its count. The end of a dead one is noticed by
// itself.
func (n *Network) AskCount() {
	if n.router != nil {
		_ = n.router.Send(Change{})
		if n.s.remote != nil {
			n.s.remote.AskCount()
		}
	}
}

// Count asks the router for its count and waits for it. It returns nil without
// a router.
func (n *Network) Count() (*userlink.Stats, error) {
	if n.router == nil {
		return nil, nil
	}
	n.sum = nil
	n.AskCount()
	err := n.s.Await(StartupPatience, "the router to count its packets", func() bool { return n.sum != nil })
	return n.sum, err
}

func (n *Network) counted(data json.RawMessage) error {
	n.count = new(userlink.Stats)
	if err := json.Unmarshal(data, n.count); err != nil {
		return fmt.Errorf("internal error: parsing the router's packet counts: %w", err)
	}
	n.counts = append(n.counts, n.count)
	return n.sumCounts()
}

// sumCounts delivers a count when those of all hosts are there.
func (n *Network) sumCounts() error {
	for len(n.counts) > 0 {
		sum := *n.counts[0]
		if n.s.remote != nil {
			if taken, err := n.s.remote.TakeCount(&sum); err != nil || !taken {
				return err
			}
		}
		n.counts = n.counts[1:]
		if n.onCount != nil {
			n.onCount(&sum)
		}
		n.sum = &sum
	}
	return nil
}

// routerEnded handles the end of the router.
func (n *Network) routerEnded(c *Child, reason string) error {
	switch {
	case !n.takeDown:
		return fmt.Errorf("the router died: %s; see %s", reason, n.s.Log(c.Name))
	case c.Failure != "":
		return c.Err()
	}
	return nil
}

// traffic is the router's work so far, for the error of a wait in vain: it
// distinguishes links that carry nothing from silent nodes.
func (n *Network) traffic() string {
	if n == nil || n.router == nil || n.router.Ended {
		return ""
	}
	n.count = nil
	if n.router.Send(Change{}) != nil {
		return ""
	}
	patience := time.After(time.Second)
	for n.count == nil {
		select {
		case do := <-n.s.inbox:
			if do() != nil {
				return ""
			}
		case <-patience:
			return ", while the router did not answer"
		}
	}
	c := n.count
	return fmt.Sprintf(", while the router forwarded %s, lost %d as planned, dropped %d because a buffer was full, and dropped %d that it could not read",
		errs.Count(int(c.Packets), "packet"), c.Lost, c.Unplanned()+c.QueueFull, c.Unknown+c.Oversize)
}
