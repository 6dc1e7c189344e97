//go:build linux

package network

import (
	"context"
	"errors"

	"testbed/shaping"
	"testbed/shaping/userlink"
)

// KindRouter is the program of the router: RunRouter.
const KindRouter = "router"

// routerName is the name of the router's process. No node has that name.
const routerName = "router"

// boardFile is the file of a router's board, if it has one.
const boardFile = "board"

type routerSpec struct {
	Plan *shaping.Plan `json:"plan"`
	HTB  bool          `json:"htb,omitempty"` // keeps the rates
	// Layout is set if the network goes over several hosts.
	Layout *Layout `json:"layout,omitempty"`
}

// Change is a change of links: another plan for the same nodes, or other rates
// for some. An empty change asks a router for its count so far.
type Change struct {
	Plan  *shaping.Plan `json:"plan,omitempty"`
	Paces []Pace        `json:"paces,omitempty"`
}

// to returns the plan after a change of another plan.
func (c Change) to(plan *shaping.Plan) *shaping.Plan {
	if c.Plan != nil {
		return c.Plan
	}
	p := *plan
	p.Nodes = append([]shaping.NodePlan(nil), plan.Nodes...)
	for _, pace := range c.Paces {
		p.Nodes[pace.Node].PaceUp, p.Nodes[pace.Node].PaceDown = pace.Up, pace.Down
	}
	return &p
}

// Pace is a node's current sending and receiving rates.
type Pace struct {
	Node int          `json:"node"`
	Up   shaping.Rate `json:"up"`
	Down shaping.Rate `json:"down"`
}

// RunRouter carries packets between the nodes until its commands end.
func RunRouter(self *Self) error {
	var spec routerSpec
	if err := self.Spec(&spec); err != nil {
		return err
	}
	o := userlink.Options{HTB: spec.HTB, Raise: self.Raise}
	if file := self.File(boardFile); file != nil {
		board, err := userlink.OpenBoard(file, len(spec.Plan.Nodes))
		if err != nil {
			return err
		}
		file.Close()
		o.Board = board
	}
	o.Opened = self.Ready
	if spec.Layout != nil {
		if err := spec.Layout.openTunnel(self, &o); err != nil {
			return err
		}
	}
	router, err := userlink.Open(spec.Plan, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changed := make(chan error, 1)
	go func() {
		defer cancel()
		commands := self.Commands()
		for {
			var c Change
			if commands.Decode(&c) != nil {
				return // the end of the file
			}
			switch {
			case c.Plan != nil:
				if err := router.Change(c.Plan); err != nil {
					changed <- err
					return
				}
			case c.Paces != nil:
				for _, p := range c.Paces {
					router.Pace(p.Node, p.Up, p.Down)
				}
			default:
				self.Tell(router.Stats())
			}
		}
	}()
	if spec.Layout == nil {
		self.Ready()
	}
	if err := router.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	select {
	case err := <-changed:
		return err
	default:
	}
	self.Tell(router.Stats())
	return nil
}
