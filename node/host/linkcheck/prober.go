//go:build linux

package linkcheck

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

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
}

// probed is what the prober found.
type probed struct {
	Stage string        `json:",omitempty"` // what it does next; nothing is found yet
	Found []probe.Found `json:",omitempty"`
	Notes []string      `json:",omitempty"`
}

// probePairs starts a prober and waits for what it finds.
func probePairs(s *emulation.Supervisor, spec proberSpec) (*probed, error) {
	var result *probed
	c, err := s.StartChild(emulation.ChildSpec{
		Name: proberName, NetNS: emulation.Hub, Kind: KindProber, Spec: spec,
		OnData: func(data json.RawMessage) error {
			var p probed
			if err := json.Unmarshal(data, &p); err != nil {
				return fmt.Errorf("reading what the prober found: %w", err)
			}
			if p.Stage != "" {
				s.Tell("%s", p.Stage)
				return nil
			}
			result = &p
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	patience := emulation.StartupPatience + probe.Tries*(probe.Estimate(spec.Plan, spec.Pairs)+probe.EstimateRates(spec.Plan, spec.Rated))
	if err := s.Await(patience, "the measurement of the links", func() bool { return c.Ended }); err != nil {
		return nil, err
	}
	if result == nil {
		return nil, c.Err()
	}
	return result, nil
}

// RunProber is the process of a prober.
func RunProber(self *emulation.Self) error {
	var s proberSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	p, err := probe.New(s.Plan, s.Pairs, func(name string) (*net.UDPConn, error) {
		return listenIn(name, s.Plan)
	})
	if err != nil {
		return err
	}
	defer p.Close()
	tell := func(stage string) { self.Tell(probed{Stage: stage}) }
	var result probed
	if s.Short {
		result.Found = p.Check()
		p.Rates(result.Found, s.Rated, tell)
	} else {
		result.Found, result.Notes = p.Verify(tell)
	}
	self.Tell(result)
	return nil
}

// listenIn opens a UDP socket in the namespace of a node. The socket stays
// there; the thread that went in does not come back.
func listenIn(name string, plan *shaping.Plan) (conn *net.UDPConn, err error) {
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
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: plan.Nodes[plan.Index(name)].Addr.Addr().AsSlice()})
	}()
	<-done
	return conn, err
}
