//go:build linux

package host

import (
	"context"
	"fmt"
	"os"
	"time"

	"testbed/bench"
	"testbed/node/host/sandbox"
	"testbed/shaping"
)

// BenchOptions say which all-reduce to measure, on which links, and what
// beside it.
type BenchOptions struct {
	bench.Settings
	Network bench.Links
	// Links is the backend; LinksAuto takes a bridge alone where the links
	// neither delay nor lose, and else what a run takes.
	Links   string
	Against []string
	// Timeout bounds every single reduction.
	Timeout time.Duration
	// Progress is told what happens in words; it may be nil.
	Progress func(string)
}

// LinksBridge is a backend for benchmarks alone: see kernel.BackendBridge.
const LinksBridge = "bridge"

type benchJob struct {
	Plan     *shaping.Plan
	Settings bench.Settings
	Network  bench.Links
	Ordered  *bench.Ordered // nil: the ring is in naive order
	Against  []string
	Timeout  time.Duration
}

// Bench measures the all-reduce between worker processes on a network of
// their own.
func Bench(ctx context.Context, o BenchOptions) (*bench.Ring, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	names := make([]string, o.Workers)
	for k := range names {
		names[k] = rankName(k)
	}
	plan, err := shaping.NewPlan(o.Network.Spec(names, o.GroupNumbers()), names, 0, o.Seed)
	if err != nil {
		return nil, &UsageError{err.Error()}
	}
	var ordered *bench.Ordered
	if o.Order == bench.OptimisedOrder {
		if ordered, err = bench.OrderRing(plan.Delays(names)); err != nil {
			return nil, err
		}
	}
	if o.Links == LinksBridge && !plan.Plain() {
		return nil, bench.Wrong("links", "bridge neither delays nor loses packets; choose auto, netem or user")
	}
	if o.Links == LinksAuto && plan.Plain() {
		o.Links = LinksBridge
	}
	s, err := openSession(ctx, job{Links: o.Links, Bench: &benchJob{
		Plan: plan, Settings: o.Settings, Network: o.Network, Ordered: ordered, Against: o.Against, Timeout: o.Timeout,
	}}, sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		return nil, err
	}
	defer s.close()
	for {
		n, err := s.next()
		switch {
		case err != nil:
			return nil, err
		case n.Benched != nil:
			return n.Benched, nil
		case n.Stage != "" && o.Progress != nil:
			o.Progress(n.Stage)
		}
	}
}

func (o *BenchOptions) check() error {
	if err := o.Settings.Check(); err != nil {
		return err
	}
	if o.Network.GroupDelay > 0 && o.Groups < 2 {
		return bench.Wrong("group_delay", "%v: there is one group; groups says how many", o.Network.GroupDelay)
	}
	if o.Timeout <= 0 {
		return bench.Wrong("timeout", "%v must be above 0", o.Timeout)
	}
	// Input, output and as much again for what the reduction needs; the exact
	// mean is spread over all.
	n := int64(o.Workers)*int64(o.Elements)*12 + int64(o.Elements)*8
	if free := availableMemory(); free > 0 && n > free {
		return bench.Wrong("elements", "%d: %d workers need about %d MB of memory, and this machine has %d MB to spare", o.Elements, o.Workers, n>>20, free>>20)
	}
	for _, name := range o.Against {
		if _, err := newRival(name); err != nil {
			return err
		}
	}
	return nil
}

// rankName is the name of a rank's node, and of its certificate.
func rankName(rank int) string { return fmt.Sprintf("w%d", rank) }
