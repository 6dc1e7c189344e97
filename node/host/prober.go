//go:build linux

package host

import (
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"testbed/node/host/sandbox"
	"testbed/shaping"
	"testbed/shaping/probe"
)

// proberName is the prober's among the processes. No node is called so.
const proberName = "prober"

// proberSpec has one process measure pairs of nodes. It has its sockets in
// their namespaces, so that what it measures is what they have.
type proberSpec struct {
	Plan  *shaping.Plan
	Pairs []probe.Pair
	// Short asks for round trips without load only.
	Short bool
}

// probed is what the prober found.
type probed struct {
	Stage string        `json:",omitempty"` // what it does next; nothing is found yet
	Found []probe.Found `json:",omitempty"`
	Notes []string      `json:",omitempty"`
	Done  bool          `json:",omitempty"`
}

// probePairs starts a prober and waits for what it finds.
func (i *inside) probePairs(pairs []probe.Pair, short bool) (*probed, error) {
	c, err := i.start(proberName, -1, spec{Prober: &proberSpec{Plan: i.plan, Pairs: pairs, Short: short}}, nil)
	if err != nil {
		return nil, err
	}
	patience := startupPatience + probe.Estimate(i.plan, pairs)
	if err := i.awaitFor(patience, "the measurement of the links", func() bool { return c.ended }); err != nil {
		return nil, err
	}
	delete(i.nodes, proberName)
	if c.probed == nil {
		return nil, i.failure(c)
	}
	return c.probed, nil
}

// runProber is the process of a prober.
func runProber(s *proberSpec, report func(nodeReport)) error {
	p, err := probe.New(s.Plan, s.Pairs, func(name string) (*net.UDPConn, error) {
		return listenIn(name, s.Plan)
	})
	if err != nil {
		return err
	}
	defer p.Close()
	result := probed{Done: true}
	if s.Short {
		result.Found = p.Check()
	} else {
		result.Found, result.Notes = p.Verify(func(stage string) { report(nodeReport{Probed: &probed{Stage: stage}}) })
	}
	report(nodeReport{Probed: &result})
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
