//go:build linux

package host

import (
	"fmt"
	"net/netip"
	"time"

	"testbed/shaping"
	"testbed/shaping/kernel"
)

// routerName is the router's among the processes. No node is called so.
const routerName = "router"

// network is the network of a scenario that is up: built, read back and, where
// the kernel has no netem, carried by a router.
type network struct {
	plan    *shaping.Plan
	backend kernel.Backend
	net     *kernel.Network
	carried *shaping.Plan // the router's; rates are not its business
	laid    *shaping.Plan // with the faults of the moment; nil before the first
}

func (n *network) ns(name string) int { return int(n.net.NS(name)) }

func (n *network) addr(name string) netip.Addr { return n.plan.Nodes[n.plan.Index(name)].Addr.Addr() }

// bringUp makes the network of the job and waits until it carries packets.
func (i *inside) bringUp() error {
	if err := i.build(); err != nil {
		return err
	}
	if i.backend != kernel.BackendUser {
		return nil
	}
	i.carried = i.plan
	if _, err := i.start(routerName, -1, spec{Router: i.plan}, nil); err != nil {
		return err
	}
	return i.await("the router", func() bool { return i.nodes[routerName].ready })
}

// takeDown stops the router, so that its count is known.
func (i *inside) takeDown() error {
	i.closing = true
	router := i.nodes[routerName]
	if router == nil {
		return nil
	}
	router.wordsTo.Close()
	return i.await("the router to end", func() bool { return router.ended })
}

// build makes the network and has it read back.
func (i *inside) build() (err error) {
	if i.Bench != nil {
		i.plan = i.Bench.Plan
	} else if i.plan, err = i.Scenario.Plan(); err != nil {
		return err
	}
	why := ""
	if i.backend, why, err = chooseBackend(i.Links); err != nil {
		return err
	}
	begin := time.Now()
	if i.net, err = kernel.Build(i.plan, i.backend); err != nil {
		return fmt.Errorf("building the network: %w", err)
	}
	for _, name := range i.net.Nodes() {
		if err := i.box.BindNetNS(name, i.ns(name)); err != nil {
			return err
		}
	}
	differences, err := i.net.ReadBack()
	if err != nil {
		return fmt.Errorf("reading the network back: %w", err)
	}
	if len(differences) > 0 {
		return fmt.Errorf("the kernel holds something else than planned, %d differences, the first: %s", len(differences), differences[0])
	}
	i.tell(note{Stage: fmt.Sprintf("%s links (%s): %d nodes built and read back in %d ms",
		i.backend, why, len(i.plan.Nodes), time.Since(begin).Milliseconds()), Quiet: true})
	return nil
}

// change makes the network that of another plan for the same nodes, in place.
func (i *inside) change(plan *shaping.Plan) error {
	if router := i.nodes[routerName]; router != nil && !plan.EqualButPace(i.carried) {
		if err := router.words.Encode(routerWord{Plan: plan}); err != nil {
			return fmt.Errorf("changing the network: telling the router: %w", err)
		}
		i.carried = plan
	}
	if err := i.net.Change(plan); err != nil {
		return fmt.Errorf("changing the network: %w", err)
	}
	return nil
}

// chooseBackend resolves the user's choice of links and says why.
func chooseBackend(links string) (kernel.Backend, string, error) {
	can := kernel.Probe()
	switch links {
	case LinksBridge:
		return kernel.BackendBridge, "nothing is delayed or lost", can.Supports(kernel.BackendBridge)
	case LinksNetem:
		return kernel.BackendNetem, "as asked", can.Supports(kernel.BackendNetem)
	case LinksUser:
		return kernel.BackendUser, "as asked", can.Supports(kernel.BackendUser)
	}
	if can.Supports(kernel.BackendNetem) == nil {
		return kernel.BackendNetem, "the kernel has netem", nil
	}
	return kernel.BackendUser, "the kernel has no netem", can.Supports(kernel.BackendUser)
}
