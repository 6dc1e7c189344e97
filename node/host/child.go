//go:build linux

package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"

	"testbed/bench"
	"testbed/node"
	"testbed/node/identity"
	"testbed/node/state"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
	"testbed/shaping/userlink"
)

// Ports of the nodes. Each node has a network of its own, so they never clash.
const (
	controlPort = 7000
	ringPort    = 7001
	fetchPort   = 7002
)

// The descriptors that a node's process inherits.
const (
	specFD    = 3 // its spec, as JSON, then end of file
	reportsFD = 4 // its reports, as JSON lines
	wordsFD   = 5 // commands to it, as JSON lines; services stop at its end
	moreFD    = 6 // the coordinator's journal, or the memory for a worker's checkpoints; see start
	restoreFD = 7 // the checkpoint that a worker begins from, and its residual's
)

// spec tells a node's process what it is.
type spec struct {
	Qlog        int              `json:",omitempty"` // descriptor of the directory for its qlog files; 0: none
	Coordinator *coordinatorSpec `json:",omitempty"`
	Worker      *workerSpec      `json:",omitempty"`
	Router      *shaping.Plan    `json:",omitempty"`
	Capture     *captureSpec     `json:",omitempty"`
	Prober      *proberSpec      `json:",omitempty"`
	Bench       *benchSpec       `json:",omitempty"`
}

// name is that of the node, or of the router; empty for other services.
func (s *spec) name() string {
	switch {
	case s.Coordinator != nil:
		return scenarios.Coordinator
	case s.Worker != nil:
		return scenarios.NodeName(s.Worker.ID)
	case s.Router != nil:
		return routerName
	}
	return ""
}

type coordinatorSpec struct {
	Scenario    *scenarios.Scenario
	Policy      string
	Links       string
	Addr        netip.Addr
	Credentials identity.Credentials
	Delays      node.RingDelays
	Name        string // of the run
	Reported    int
	Resume      *node.Resume
}

type workerSpec struct {
	Scenario    *scenarios.Scenario
	ID          policy.ID
	Addr        netip.Addr
	Coordinator netip.Addr
	Credentials identity.Credentials
	Near        bool   // as in quicring.Config
	Name        string // of the run
	Restore     bool   // from the checkpoint at restoreFD
	Residual    bool   // and from that of its residual after it
}

// nodeReport is a line from a node's process: a report, or what a service has
// to tell.
type nodeReport struct {
	node.Report
	// Saved says that a checkpoint lies in the worker's memory.
	Saved    *state.Checkpoint `json:"saved,omitempty"`
	Router   *userlink.Stats   `json:"router,omitempty"`
	Captured *captured         `json:"captured,omitempty"`
	Probed   *probed           `json:"probed,omitempty"`
	Bench    *bench.Report     `json:"bench,omitempty"`
	Usage    *Usage            `json:"usage,omitempty"`
}

// RunNode is what the binary does inside a node: it is a worker, the
// coordinator, the router, or another service, as its spec says.
func RunNode() error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	reports := json.NewEncoder(os.NewFile(reportsFD, "reports"))
	var mu sync.Mutex
	report := func(r nodeReport) {
		mu.Lock()
		defer mu.Unlock()
		if err := reports.Encode(r); err != nil {
			log.Error("nobody listens any more", "err", err)
			os.Exit(1)
		}
	}
	err := runNode(log, report)
	if err != nil {
		log.Error("giving up", "err", err)
		report(nodeReport{Report: node.Report{Error: err.Error()}})
	}
	return err
}

func runNode(log *slog.Logger, report func(nodeReport)) error {
	var s spec
	in := os.NewFile(specFD, "spec")
	err := json.NewDecoder(bufio.NewReader(in)).Decode(&s)
	in.Close()
	if err != nil {
		return fmt.Errorf("reading the node's spec: %w", err)
	}
	plain := func(r node.Report) { report(nodeReport{Report: r}) }
	var tracing node.Tracing
	if s.Qlog > 0 {
		q, err := openQlogs(s.Qlog, log)
		if err != nil {
			return err
		}
		defer q.close()
		tracing = q.tracer
	}
	if name := s.name(); name != "" {
		go watchUsage(name, func(u Usage) { report(nodeReport{Usage: &u}) })
	}
	if err := slowMonitor(); err != nil {
		log.Warn("this takes more processor time", "err", err)
	}
	switch {
	case s.Coordinator != nil:
		return runCoordinator(s.Coordinator, tracing, log, plain)
	case s.Worker != nil:
		return runWorker(s.Worker, tracing, log, report)
	case s.Router != nil:
		return runRouter(s.Router, report)
	case s.Capture != nil:
		return runCapture(s.Capture, report)
	case s.Prober != nil:
		return runProber(s.Prober, report)
	case s.Bench != nil:
		return runBenchWorker(s.Bench, log, report)
	}
	return errors.New("the node's spec is empty")
}

func listen(addr netip.Addr, port uint16) (*net.UDPConn, error) {
	return net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, port)))
}

func runCoordinator(s *coordinatorSpec, tracing node.Tracing, log *slog.Logger, report func(node.Report)) error {
	tlsConfig, err := s.Credentials.TLS()
	if err != nil {
		return err
	}
	udp, err := listen(s.Addr, controlPort)
	if err != nil {
		return err
	}
	conn, err := newErrorConn(udp)
	if err != nil {
		return err
	}
	return node.RunCoordinator(context.Background(), node.CoordinatorConfig{
		Scenario: s.Scenario, Policy: s.Policy, Links: s.Links, Delays: s.Delays,
		Conn: conn, TLS: tlsConfig, Unreachable: conn.unreachable, Tracing: tracing, Log: log, Report: report,
		Run: s.Name, Journal: os.NewFile(moreFD, "journal"), Reported: s.Reported, Resume: s.Resume,
	})
}

func runWorker(s *workerSpec, tracing node.Tracing, log *slog.Logger, report func(nodeReport)) error {
	tlsConfig, err := s.Credentials.TLS()
	if err != nil {
		return err
	}
	cfg := node.WorkerConfig{
		Scenario: s.Scenario, ID: s.ID, Coordinator: netip.AddrPortFrom(s.Coordinator, controlPort),
		TLS: tlsConfig, Tracing: tracing, Log: log, Report: func(r node.Report) { report(nodeReport{Report: r}) }, Run: s.Name, Near: s.Near,
	}
	for port, conn := range map[uint16]*net.PacketConn{0: &cfg.Control, ringPort: &cfg.Ring, fetchPort: &cfg.Fetch} {
		udp, err := listen(s.Addr, port)
		if err != nil {
			return err
		}
		*conn = udp
	}
	free := make(chan struct{}, 1) // the memory is not in use
	free <- struct{}{}
	memory := os.NewFile(moreFD, "memory")
	cfg.Save = func(write func(io.Writer) (state.Checkpoint, error)) error {
		select {
		case <-free:
		default:
			return errors.New("the one before has not been written yet")
		}
		c, err := saveIn(memory, write)
		if err != nil {
			free <- struct{}{}
			return err
		}
		report(nodeReport{Saved: &c})
		return nil
	}
	if s.Restore {
		restore := os.NewFile(restoreFD, "checkpoint")
		defer restore.Close()
		cfg.Restore = restore
	}
	if s.Residual {
		residual := os.NewFile(restoreFD+1, "residual")
		defer residual.Close()
		cfg.Residual = residual
	}
	commands := make(chan node.Command, 16)
	cfg.Commands = commands
	go func() {
		words := json.NewDecoder(os.NewFile(wordsFD, "commands"))
		for {
			var c node.Command
			if err := words.Decode(&c); err != nil {
				return // whoever gives the commands has nothing more to say
			}
			if c.Op == opSaved {
				free <- struct{}{}
				continue
			}
			commands <- c
		}
	}()
	return node.RunWorker(context.Background(), cfg)
}

// routerWord is a command to the router: another plan for the same nodes, or to
// tell its count so far.
type routerWord struct {
	Plan *shaping.Plan `json:"plan,omitempty"`
}

// runRouter carries packets between the nodes until its words end.
func runRouter(plan *shaping.Plan, report func(nodeReport)) error {
	router, err := userlink.Open(plan)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	count := func() {
		stats := router.Stats()
		report(nodeReport{Router: &stats})
	}
	changed := make(chan error, 1)
	go func() {
		defer cancel()
		words := json.NewDecoder(os.NewFile(wordsFD, "words"))
		for {
			var w routerWord
			if words.Decode(&w) != nil {
				return // the end of the file
			}
			if w.Plan == nil {
				count()
				continue
			}
			if err := router.Change(w.Plan); err != nil {
				changed <- err
				return
			}
		}
	}()
	report(nodeReport{Report: node.Report{Ready: true}})
	if err := router.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	select {
	case err := <-changed:
		return err
	default:
	}
	count()
	return nil
}
