package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// Change changes the network to another plan for the same nodes, while it
// carries traffic. It touches only differences, and changes them in place:
// packets under way stay under way. There are two intended exceptions. A path
// that is cut loses them, as a cable does. And a device whose queues need
// another arrangement gets new ones (a rate from or to unlimited; above 64
// peers, the first path from a node that differs from its others).
//
// Change reads back everything that it touched. After an error the network may
// be anywhere between the two plans, until another Change succeeds. The plan
// must not be changed afterwards.
func (n *Network) Change(plan *shaping.Plan) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.backend == BackendBridge {
		return errors.New("changing links: the link backend bridge cannot change them; choose another link backend")
	}
	if err := n.sameNodes(plan); err != nil {
		return fmt.Errorf("changing links: %w", err)
	}
	n.plan = plan
	if n.short == nil {
		n.short = n.setWindows()
	}
	if err := n.refuse(); err != nil {
		return fmt.Errorf("changing links: %w", err)
	}
	var touched []*device
	before := make(dumps) // one dump for all: dumping a large hub takes long
	for _, i := range n.here {
		p := plan.Nodes[i]
		for _, step := range []struct {
			d    *device
			want tree
		}{
			{&n.nodes[i].up, upTree(plan, i, n.backend)},
			{&n.nodes[i].path, pathTree(plan, i, n.backend)},
			{&n.nodes[i].down, downTree(plan, i, n.backend)},
		} {
			if step.d.known && step.d.tree.equal(step.want) {
				continue
			}
			if err := step.d.change(step.want, before); err != nil {
				return fmt.Errorf("changing links: %s of node %s: %w", step.d.name, p.Name, step.want.explain(err))
			}
			touched = append(touched, step.d)
		}
	}
	return n.verify(touched)
}

func (n *Network) sameNodes(plan *shaping.Plan) error {
	if len(plan.Nodes) != len(n.plan.Nodes) {
		return fmt.Errorf("the new plan has %d nodes, but the network has %d", len(plan.Nodes), len(n.plan.Nodes))
	}
	for i, p := range plan.Nodes {
		if was := n.plan.Nodes[i]; p.Name != was.Name || p.Addr != was.Addr || p.MAC != was.MAC {
			return fmt.Errorf("node %d is %s %v %v in the new plan, but %s %v %v in the network", i, p.Name, p.Addr, p.MAC, was.Name, was.Addr, was.MAC)
		}
	}
	return nil
}

// verify compares the devices with their expected state.
func (n *Network) verify(touched []*device) error {
	var errs []error
	after := make(dumps)
	for _, d := range touched {
		queues, err := after.of(d)
		if err != nil {
			return fmt.Errorf("reading back a change: %w", err)
		}
		found, seeds, err := d.conn.readTree(d.index, queues)
		if err != nil {
			return fmt.Errorf("reading back a change: %w", err)
		}
		for _, difference := range compare(d.name, d.lines(seeds), found) {
			d.known = false
			errs = append(errs, fmt.Errorf("the kernel did not apply a change: %v", difference))
		}
	}
	return errors.Join(errs...)
}

// dumps holds the queues of namespaces, each read on first use.
type dumps map[*conn]map[int][]qdisc

func (all dumps) of(d *device) ([]qdisc, error) {
	if all[d.conn] == nil {
		queues, err := d.conn.qdiscs()
		if err != nil {
			return nil, err
		}
		all[d.conn] = queues
	}
	return all[d.conn][d.index], nil
}

// device is one end of a link, with the queues of packets that leave it.
type device struct {
	conn  *conn
	index int
	name  string
	tree  tree
	// redirect is the interface through which arriving packets are redirected,
	// zero for none. It never changes.
	redirect int
	known    bool // the kernel holds the tree; not after an error
	// past has the counts of queues that are gone, by their place.
	past map[uint32]qdisc
}

// lines is the expected state of the device in the kernel.
func (d *device) lines(seeds bool) []string {
	all := d.tree.lines(seeds)
	if d.redirect != 0 {
		all = append(all, redirectLine(d.redirect))
	}
	return all
}

// install gives the device its first tree.
func (d *device) install(t tree) error {
	d.tree = t
	err := d.conn.install(d.index, t)
	d.known = err == nil
	return err
}

// change changes the device's tree to the wanted one.
func (d *device) change(want tree, before dumps) error {
	was, known := d.tree, d.known
	d.tree, d.known = want, false
	if !known || !was.sameShape(want) {
		if err := d.rebuild(want, before); err != nil {
			return err
		}
		d.known = true
		return nil
	}
	if want.leaf != nil && !want.leaf.equal(*was.leaf) {
		if err := d.changeLeaf(netlink.HANDLE_ROOT, *was.leaf, *want.leaf, before); err != nil {
			return err
		}
	}
	if want.rate != was.rate {
		if err := d.conn.setClass(changeClass, d.index, want.scheduler, 1, want.rate, want.rate); err != nil {
			return err
		}
	}
	for k, c := range want.classes {
		minor := minorOf(k)
		if c.rate != was.classes[k].rate || want.rate != was.rate {
			if err := d.conn.setClass(changeClass, d.index, want.scheduler, minor, c.rate, want.rate); err != nil {
				return err
			}
		}
		if !c.leaf.equal(was.classes[k].leaf) {
			if err := d.changeLeaf(netlink.MakeHandle(1, minor), was.classes[k].leaf, c.leaf, before); err != nil {
				return err
			}
		}
	}
	d.known = true
	return nil
}

// rebuild replaces all queues of the device.
func (d *device) rebuild(want tree, before dumps) error {
	if _, err := d.remember(before, func(qdisc) bool { return true }); err != nil {
		return err
	}
	_, err := d.conn.request(unix.RTM_DELQDISC, unix.NLM_F_ACK, 0,
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(d.index), Parent: netlink.HANDLE_ROOT})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // there was no queue
		return fmt.Errorf("removing the queues: %w", err)
	}
	return d.conn.install(d.index, want)
}

// changeLeaf changes a queue in place. A queue whose path is cut is replaced by
// a new one, because only then does the kernel drop its packets.
func (d *device) changeLeaf(parent uint32, was, want leaf, before dumps) error {
	if want.netem == nil || !want.netem.cut || was.netem.cut {
		return d.conn.setLeaf(0, d.index, parent, 0, want)
	}
	old, err := d.remember(before, func(q qdisc) bool { return q.parent == parent })
	if err != nil {
		return err
	}
	// The second of the two handles of a place.
	const other = 0x4000 << 16
	return d.conn.setLeaf(unix.NLM_F_CREATE|unix.NLM_F_REPLACE, d.index, parent, old^other, want)
}

// remember adds the counts of queues that are about to be removed to past, and
// returns the handle of one of them. Packets in them are lost, and counted as
// dropped.
func (d *device) remember(before dumps, goes func(qdisc) bool) (handle uint32, err error) {
	queues, err := before.of(d)
	if err != nil {
		return 0, err
	}
	for _, q := range leaves(queues) {
		if goes(q) {
			handle = q.handle
			past := d.past[q.parent]
			past.packets += q.packets
			past.bytes += q.bytes
			past.drops += q.drops + q.waiting
			if d.past == nil {
				d.past = make(map[uint32]qdisc)
			}
			d.past[q.parent] = past
		}
	}
	return handle, nil
}

// counted is the device's leaves among queues, with the counts of their
// predecessors.
func (d *device) counted(queues []qdisc) []qdisc {
	all := leaves(queues)
	for k := range all {
		q, before := &all[k], d.past[all[k].parent]
		q.packets, q.bytes = q.packets+before.packets, q.bytes+before.bytes
		q.drops += before.drops
	}
	return all
}

// leaves are the queues at the ends of a device's tree.
func leaves(queues []qdisc) []qdisc {
	return slices.DeleteFunc(slices.Clone(queues), func(q qdisc) bool { return q.kind != "bfifo" && q.kind != "netem" })
}
