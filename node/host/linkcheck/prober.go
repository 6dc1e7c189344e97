//go:build linux

package linkcheck

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"testbed/node/host/emulation"
	"testbed/node/host/sandbox"
	"testbed/shaping"
	"testbed/shaping/probe"
)

// KindProber is the program of a prober: RunProber.
const KindProber = "prober"

// proberName is the prober's among the processes. No node is called so.
const proberName = "prober"

// proberSpec has one process measure pairs of nodes. It has its sockets in
// their namespaces, so that what it measures is what they have.
type proberSpec struct {
	Plan  *shaping.Plan
	Pairs []probe.Pair
	// Short asks for round trips without load only, and for the rates of the
	// Rated pairs.
	Short bool
	Rated []probe.Pair
	// Spread says that there are several hosts. Each has a prober, which measures the
	// pairs from its own nodes when it is told to, and answers the others until its
	// commands end.
	Spread bool `json:",omitempty"`
}

// probed is what the prober found.
type probed struct {
	Stage string        `json:",omitempty"` // what it does next; nothing is found yet
	Found []probe.Found `json:",omitempty"`
	Notes []string      `json:",omitempty"`
}

// probePairs starts a prober on each host and waits for what they find.
func probePairs(s *emulation.Supervisor, network *emulation.Network, spec proberSpec) (*probed, error) {
	var results []*probed
	spec.Spread = network.Spread()
	children, err := network.StartEverywhere(emulation.ChildSpec{
		Name: proberName, Kind: KindProber, Spec: spec,
		OnData: func(data json.RawMessage) error {
			var p probed
			if err := json.Unmarshal(data, &p); err != nil {
				return fmt.Errorf("reading what the prober found: %w", err)
			}
			if p.Stage != "" {
				s.Tell("%s", p.Stage)
				return nil
			}
			results = append(results, &p)
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	all := func(so func(*emulation.Child) bool) func() bool {
		return func() bool {
			return !slices.ContainsFunc(children, func(c *emulation.Child) bool { return !so(c) })
		}
	}
	ended := func(c *emulation.Child) bool { return c.Ended }
	if spec.Spread {
		if err := s.Await(emulation.StartupPatience, "the probers", all(func(c *emulation.Child) bool { return c.Ready || c.Ended })); err != nil {
			return nil, err
		}
		for _, c := range children {
			_ = c.Send(struct{}{}) // one that has ended is noticed by that
		}
	}
	patience := emulation.StartupPatience + probe.Tries*(probe.Estimate(spec.Plan, spec.Pairs)+probe.EstimateRates(spec.Plan, spec.Rated))
	if err := s.Await(patience, "the measurement of the links", func() bool {
		return len(results) == len(children) || slices.ContainsFunc(children, ended)
	}); err != nil {
		return nil, err
	}
	for _, c := range children {
		c.CloseCommands()
	}
	if err := s.Await(emulation.StartupPatience, "the probers to end", all(ended)); err != nil {
		return nil, err
	}
	for _, c := range children {
		if c.Failure != "" || len(results) < len(children) {
			return nil, c.Err()
		}
	}
	return merge(results), nil
}

// merge is what several probers have found, each of whose pairs one has measured.
func merge(results []*probed) *probed {
	whole := results[0]
	for _, r := range results[1:] {
		for k, f := range r.Found {
			if f.Asked > 0 {
				whole.Found[k] = f
			}
		}
		whole.Notes = append(whole.Notes, r.Notes...)
	}
	return whole
}

// RunProber is the process of a prober.
func RunProber(self *emulation.Self) error {
	var s proberSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	var elsewhere func(int) bool
	if s.Spread {
		elsewhere = func(node int) bool { return !isHere(s.Plan.Nodes[node].Name) }
	}
	p, err := probe.New(s.Plan, s.Pairs, elsewhere, func(name string, port int) (*net.UDPConn, error) {
		return listenIn(name, s.Plan, port)
	})
	if err != nil {
		return err
	}
	defer p.Close()
	commands := self.Commands()
	if s.Spread {
		self.Ready()
		var begin struct{}
		if err := commands.Decode(&begin); err != nil {
			return fmt.Errorf("waiting for the other hosts: %w", err)
		}
	}
	tell := func(stage string) { self.Tell(probed{Stage: stage}) }
	var result probed
	if s.Short {
		result.Found = p.Check()
		p.Rates(result.Found, s.Rated, tell)
	} else {
		result.Found, result.Notes = p.Verify(tell)
	}
	self.Tell(result)
	if s.Spread {
		var end struct{}
		_ = commands.Decode(&end) // when all have measured
	}
	return nil
}

// isHere says whether a node is on this host.
func isHere(name string) bool {
	_, err := os.Stat(filepath.Join(sandbox.NetNSDir, name))
	return err == nil
}

// listenIn opens a UDP socket in the namespace of a node. The socket stays
// there; the thread that went in does not come back.
func listenIn(name string, plan *shaping.Plan, port int) (conn *net.UDPConn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread dies
		var ns *os.File
		if ns, err = os.Open(filepath.Join(sandbox.NetNSDir, name)); err != nil {
			return
		}
		defer ns.Close()
		if err = os.NewSyscallError("setns", unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)); err != nil {
			return
		}
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: plan.Nodes[plan.Index(name)].Addr.Addr().AsSlice(), Port: port})
	}()
	<-done
	return conn, err
}
