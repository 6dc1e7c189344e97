//go:build linux

package emulation

import (
	"context"
	"errors"

	"testbed/shaping"
	"testbed/shaping/userlink"
)

// KindRouter is the program of the router: RunRouter.
const KindRouter = "router"

// routerName is the router's among the processes. No node is called so.
const routerName = "router"

// routerCommand has the router take another plan for the same nodes, or, without
// one, tell its count so far.
type routerCommand struct {
	Plan *shaping.Plan `json:"plan,omitempty"`
}

// RunRouter carries packets between the nodes until its commands end.
func RunRouter(self *Self) error {
	var plan shaping.Plan
	if err := self.Spec(&plan); err != nil {
		return err
	}
	router, err := userlink.Open(&plan)
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
			var c routerCommand
			if commands.Decode(&c) != nil {
				return // the end of the file
			}
			if c.Plan == nil {
				self.Tell(router.Stats())
				continue
			}
			if err := router.Change(c.Plan); err != nil {
				changed <- err
				return
			}
		}
	}()
	self.Ready()
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
