package userlink

import (
	"fmt"
	"time"

	"testbed/shaping"
	"testbed/shaping/tunnel"
)

// remote is a router's knowledge of the nodes on other hosts. A nil remote has
// no such nodes.
type remote struct {
	tunnel *tunnel.Tunnel
	hosts  []int // of the nodes
	self   int
	plan   *shaping.Plan // at the beginning

	began  time.Duration // when the first host was asked; zero before
	tries  int
	opened func() // nil after its call
}

const (
	// openingPatience is how long other hosts may take to answer: their routers do
	// not start at the same time.
	openingPatience = 30 * time.Second
	// openingTries is the number of measurements of an underlay that seems too
	// slow: a fast one can seem slow temporarily, on a busy machine.
	openingTries = 4
)

func (r *Router) openRemote(plan *shaping.Plan, o Options) {
	r.remote = &remote{tunnel: o.Tunnel, hosts: o.Hosts, self: o.Self, plan: plan, opened: o.Opened}
	r.links.Leave(r.leave)
}

// has reports whether the node is on another host.
func (a *remote) has(node int) bool { return a != nil && a.hosts[node] != a.self }

// leave sends a packet to the host of its receiver, if that is another one. The
// packet leaves at once and carries its due time, until which the receiving
// host holds it. So the way there takes no time of its own.
func (r *Router) leave(due time.Duration, from, to int, b *buffer) bool {
	a := r.remote
	if !a.has(to) {
		return false
	}
	a.tunnel.Send(a.hosts[to], &tunnel.Frame{Due: due, From: from, To: to, Data: b.data[:b.n]})
	r.free = append(r.free, b)
	return true
}

// arrive handles a frame from another host.
func (r *Router) arrive(f tunnel.Frame) {
	a := r.remote
	nodes := len(a.hosts)
	switch {
	case f.From >= nodes || f.To >= nodes || !a.has(f.From) || a.has(f.To):
		r.stats.Unknown++
		return
	case len(f.Data) < vnetHeader+etherHeader || len(f.Data) > vnetHeader+shaping.FrameSize:
		r.stats.Oversize++
		return
	}
	b := r.newBuffer()
	b.n = copy(b.data[:], f.Data)
	r.links.Arrive(f.Due, f.From, f.To, b.n-vnetHeader, b)
	r.stats.MaxQueued = max(r.stats.MaxQueued, r.links.Len())
}

// exchange receives the frames from other hosts and sends the frames for them.
// It reports whether any arrived, and whether there may be more.
func (r *Router) exchange(now time.Duration, wall time.Time) (some, more bool, err error) {
	a := r.remote
	if a == nil {
		return false, false, nil
	}
	some, more, err = a.tunnel.Receive(now, wall, r.arrive)
	if err == nil {
		err = a.tunnel.Work(now)
	}
	if err == nil && a.opened != nil {
		err = a.open(now)
	}
	return some, more, err
}

// next is the earlier of a time, if there is one, and the tunnel's next time.
func (a *remote) next(due time.Duration, ok bool) (time.Duration, bool) {
	if a == nil {
		return due, ok
	}
	if at, some := a.tunnel.Next(); some && (!ok || at < due) {
		return at, true
	}
	return due, ok
}

// count adds the counts of the tunnel.
func (a *remote) count(to *Stats) {
	if a != nil {
		to.Underlay = a.tunnel.Stats()
		to.SendDrops += a.tunnel.Unsent
	}
}

// open waits until all hosts have answered, and refuses a plan that is faster than
// the underlay.
func (a *remote) open(now time.Duration) error {
	if a.began == 0 {
		a.began = now
	}
	if ok, waiting, answered := a.tunnel.Opened(); !ok {
		if now-max(a.began, answered) > openingPatience {
			return fmt.Errorf("the host %s does not answer through the tunnel; allow UDP between the hosts, and name the leader by an address that all hosts can reach", waiting)
		}
		return nil
	}
	if host, slow := a.tooSlow(); slow != nil {
		if a.tries++; a.tries < openingTries {
			a.tunnel.Reopen(host)
			return nil
		}
		return slow
	}
	a.opened()
	a.opened = nil
	return nil
}

// tooSlow looks for a path whose planned delay is shorter than the underlay's,
// and returns its destination host.
func (a *remote) tooSlow() (host int, err error) {
	for i, row := range a.plan.Paths {
		for j, p := range row {
			if a.has(i) || !a.has(j) || p.Refused {
				continue
			}
			took := a.tunnel.OneWay(a.hosts[j])
			if p.Reorder > 0 { // overtaking packets are due at once
				return a.hosts[j], fmt.Errorf("the path %s→%s has a reorder share, so some of its packets are due at once, but the network between their hosts takes %v (half of the round trip, 99.9th percentile); remove reorder, or place both nodes on one host",
					a.plan.Nodes[i].Name, a.plan.Nodes[j].Name, took.Round(time.Microsecond))
			}
			if planned := time.Duration(p.Fastest()); planned < took {
				return a.hosts[j], fmt.Errorf("the path %s→%s has a planned delay of %v, but the network between their hosts takes %v (half of the round trip, 99.9th percentile); plan longer delays, or place both nodes on one host",
					a.plan.Nodes[i].Name, a.plan.Nodes[j].Name, planned, took.Round(time.Microsecond))
			}
		}
	}
	return 0, nil
}
