//go:build linux

// Package programs is the network for users' own programs, whoever starts them:
// its description (Network), the network itself (Ground) with captures and a
// verdict, and the programs' environment.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// Environment of a program on the emulated network.
const (
	EnvNodes = "TESTBED_NODES" // the names, space separated
	envAddr  = "TESTBED_ADDR_" // and the node's name in capitals: its address
	EnvNode  = "TESTBED_NODE"  // the node that a program was started in
)

// Exit codes for a program that cannot be started, as in shells.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

const (
	// OwnBin is a directory in the sandbox's private /run with a link to this
	// binary, so that `testbed in` works in whatever way the binary was started.
	OwnBin = "/run/testbed-bin"
	// ownExe is this binary, which the sandbox's init runs.
	ownExe = "/proc/1/exe"
	// ExecSocket is where the job receives requests for programs on other hosts.
	ExecSocket = OwnBin + "/exec"
)

// Network is the network to build, as the user asks for it.
type Network struct {
	Scenario *resolved.Scenario
	Links    string // the backend, as in package emulation
	// Hosts asks for a network over several hosts; nil for this host alone.
	Hosts *cluster.Request
	// Pcap names the nodes whose frames are written to NODE.pcap in PcapDir, each
	// file at most PcapLimit bytes long.
	Pcap      []string
	PcapDir   string
	PcapLimit int64
}

// Spec is a Network for the job that builds it.
type Spec struct {
	Name      string // of the scenario
	Plan      *shaping.Plan
	Dilation  float64
	Faults    *faults.Schedule
	Links     string
	Layout    *network.Layout `json:",omitempty"`
	Pcap      []string
	PcapDir   string
	PcapLimit int64
}

// Nodes are the names of the network's nodes.
func (n *Network) Nodes() (names []string) {
	for _, node := range n.Scenario.Plan.Nodes {
		names = append(names, node.Name)
	}
	return names
}

// Check reports a request that cannot be built.
func (n *Network) Check() error {
	nodes := n.Nodes()
	for _, name := range n.Pcap {
		if !slices.Contains(nodes, name) {
			return errs.Usagef("--pcap: the network has no node %q; its nodes are %s", name, strings.Join(nodes, " "))
		}
	}
	if len(n.Pcap) > 0 && n.Hosts != nil {
		return errs.Usagef("--pcap writes on one host only; leave it out, or leave --hosts out")
	}
	if len(n.Pcap) > 0 && n.PcapLimit < pcapLeastAllowed {
		return errs.Usagef("--pcap-limit is %d bytes: it must be at least %d, to hold one frame", n.PcapLimit, pcapLeastAllowed)
	}
	return nil
}

// Form waits for the hosts of the network, and returns them with the spec for their
// leader's job. The caller closes them.
func (n *Network) Form(ctx context.Context, progress func(string)) (*cluster.Cluster, Spec, error) {
	hosts, links, err := cluster.Form(ctx, n.Hosts, cluster.NetworkOf(n.Scenario), n.Links, progress)
	if err != nil {
		return nil, Spec{}, err
	}
	return hosts, Spec{
		Name: n.Scenario.Name, Plan: n.Scenario.Plan, Dilation: n.Scenario.Slowdown(), Faults: n.Scenario.Faults,
		Links: links, Layout: hosts.Layout, Pcap: n.Pcap, PcapDir: n.PcapDir, PcapLimit: n.PcapLimit,
	}, nil
}

// Ground is the network that is up, in the sandbox.
type Ground struct {
	S     *network.Supervisor
	Hosts *cluster.Hosts
	Links *network.Network

	spec     *Spec
	over     chan struct{}
	captures []*capture
	watch    *monitor.Watch
	faults   *network.LinkFaults
	began    time.Time      // the record
	asked    []func() error // for each count that the router was asked for
	waits    map[string]*waits
	sampled  map[string][2]uint64 // the last sample of each node; nil without Sample
	isolated bool                 // some node was, some time
}

// Build makes the network.
func Build(s *network.Supervisor, spec *Spec) (*Ground, error) {
	g := &Ground{S: s, spec: spec, over: make(chan struct{}), waits: map[string]*waits{}}
	var err error
	if g.Hosts, err = cluster.Connect(s, spec.Layout); err != nil {
		return nil, err
	}
	if g.Links, err = s.BringUp(spec.Plan, spec.Dilation, spec.Links, g.counted); err != nil {
		return nil, err
	}
	g.faults = g.Links.LinkFaults(spec.Faults)
	if err := g.Links.Kernel.KeepNeighbours(g.over); err != nil {
		return nil, err
	}
	if err := g.Links.Kernel.CountARP(); err != nil {
		return nil, err
	}
	for _, name := range spec.Pcap {
		c, err := startCapture(s, g.Links, name, captureSpec{File: filepath.Join(spec.PcapDir, name+".pcap"), Limit: spec.PcapLimit})
		if err != nil {
			return nil, err
		}
		g.captures = append(g.captures, c)
	}
	return g, nil
}

// Env is the environment of programs, in which they find the nodes and this binary.
func (g *Ground) Env() ([]string, error) {
	if err := LinkBinary(); err != nil {
		return nil, err
	}
	// In this process too, because the program itself may be testbed.
	if err := os.Setenv("PATH", OwnBin+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return nil, err
	}
	var names []string
	for _, n := range g.Links.Plan.Nodes {
		names = append(names, n.Name)
	}
	env := []string{EnvNodes + "=" + strings.Join(names, " ")}
	for _, name := range names {
		env = append(env, addrVariable(name)+"="+g.Links.Addr(name).String())
	}
	return env, nil
}

// LinkBinary makes OwnBin, if it does not exist.
func LinkBinary() error {
	if err := os.MkdirAll(OwnBin, 0o755); err != nil {
		return fmt.Errorf("making the folder of the command testbed: %w", err)
	}
	if err := os.Symlink(ownExe, filepath.Join(OwnBin, "testbed")); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the folder of the command testbed: %w", err)
	}
	return nil
}

// Captures are the processes of captures in a node.
func (g *Ground) Captures(node string) (pids []int) {
	for _, c := range g.captures {
		if c.node == node {
			pids = append(pids, c.child.Process.Pid())
		}
	}
	return pids
}

// Watch begins to measure the network's fidelity.
func (g *Ground) Watch() {
	g.watch = monitor.NewWatch(g.Links, g.Links.Kernel.Nodes())
	g.Hosts.OnSample = g.watch.Remote
	if g.Hosts.Several() {
		g.ask(func() error { return nil }) // so that other hosts begin, too
	}
}

// Isolate cuts a node off from all others, and calls then when none of the
// node's packets is under way any more. Or it reconnects the node, and calls
// then at once.
func (g *Ground) Isolate(node string, cut bool, then func() error) error {
	g.isolated = true
	if err := g.faults.Isolate(node, cut); err != nil {
		return err
	}
	if !cut || g.Links.Router() == nil {
		return then()
	}
	g.ask(then) // the router answers after it has carried out all earlier orders
	return nil
}

// ask asks the router for its count, and calls do when the router has answered.
func (g *Ground) ask(do func() error) {
	g.asked = append(g.asked, do)
	g.Links.AskCount()
}

// counted receives a count of the router. Nobody asked for the last count.
func (g *Ground) counted(*userlink.Stats) {
	if len(g.asked) > 0 {
		do := g.asked[0]
		g.asked = g.asked[1:]
		g.S.Post(do)
	}
}

// End takes the network down, when all programs have ended, and returns its
// fidelity since Watch: nil without a Watch.
func (g *Ground) End() (*monitor.Record, error) {
	defer close(g.over)
	var seen fidelity.Measurements
	if g.watch != nil {
		seen = g.watch.Stop()
		for _, w := range g.waits {
			seen.CPUWait = max(seen.CPUWait, w.share())
		}
	}
	if err := endCaptures(g.S, g.captures); err != nil {
		return nil, err
	}
	router, err := g.Links.TakeDown()
	if err != nil {
		return nil, err
	}
	if err := g.tellStrays(); err != nil {
		return nil, err
	}
	if g.watch == nil {
		return nil, nil
	}
	counts, err := g.Links.Kernel.Counters()
	if err != nil {
		return nil, err
	}
	if _, some := g.spec.Faults.Next(-1); !some && !g.isolated { // a planned cut loses packets, and netem does not separate them from other losses
		seen.UnplannedDrops = monitor.NetemExcess(g.spec.Plan, counts)
	}
	monitor.EnterRouter(router, &seen)
	g.watch.Conclude(router, &seen)
	r := &monitor.Record{Verdict: fidelity.Judge(seen), Measured: seen, Rounds: []*monitor.Round{}}
	if r.Drops, err = g.Links.Drops(router); err != nil {
		return nil, err
	}
	for _, d := range r.Drops {
		g.S.Tell("%s", record.LinkDrops(d))
	}
	return r, nil
}

// tellStrays reports packets of programs that no link carries.
func (g *Ground) tellStrays() error {
	strays, err := g.Links.Kernel.Strays()
	if err != nil {
		return err
	}
	for _, stray := range strays {
		g.S.Tell("undelivered packets of %s; links deliver only IPv4 unicast between nodes", stray)
	}
	return nil
}

// InNode is an environment in a node.
func InNode(env []string, node string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, EnvNode+"=") })
	return append(sandbox.MachineEnv(env, node), EnvNode+"="+node)
}

// Prepare makes a command of a program, for the node whose namespaces this
// thread is in. It looks up the program in the PATH of the program's
// environment, which becomes this process's environment.
func Prepare(p cluster.Program) (*exec.Cmd, error) {
	for _, v := range p.Env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return nil, err
			}
		}
	}
	path, err := exec.LookPath(p.Command[0])
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: p.Command, Env: InNode(p.Env, p.Node), Dir: p.Dir}
	if _, err := os.Stat(p.Dir); err != nil {
		cmd.Dir = "/" // this host has no such directory
	}
	return cmd, nil
}

// NotStarted is the exit code of a program that could not be started, with the
// reason.
func NotStarted(err error) (int, error) {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return ExitNotFound, err
	}
	return ExitNotExecutable, err
}

// addrVariable is the environment variable with the node's address.
func addrVariable(name string) string {
	return envAddr + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
