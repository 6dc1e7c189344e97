//go:build linux

// Package process has the processes of a worker and of the coordinator around
// the code of package node. They open sockets and files, receive commands, and
// report to the process that started them.
package process

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"

	"testbed/allreduce/ringorder"
	"testbed/emulation/network"
	"testbed/internal/cpuwait"
	"testbed/internal/steady"
	"testbed/node"
	"testbed/node/identity"
	"testbed/node/state"
	"testbed/policy"
)

// Kinds of processes, whose programs are RunCoordinator and RunWorker.
const (
	KindCoordinator = "coordinator"
	KindWorker      = "worker"
)

// Files that a process may inherit.
const (
	// Journal is the coordinator's.
	Journal = "journal"
	// Memory is where a worker writes checkpoints. Restore is the checkpoint that
	// it begins from. Residual is the checkpoint of its residual, which may be
	// missing.
	Memory   = "memory"
	Restore  = "checkpoint"
	Residual = "residual"
	// Qlog is the directory for qlog files. Without it there are none.
	Qlog = "qlog"
)

// OpSaved tells a worker that its checkpoint has been written to the run
// directory.
const OpSaved node.Op = "saved"

// Ports of the nodes. Each node has a network of its own, so they never clash.
const (
	controlPort = 7000
	ringPort    = 7001
	fetchPort   = 7002
)

// CoordinatorSpec configures the process of a coordinator; see
// node.CoordinatorConfig.
type CoordinatorSpec struct {
	node.CoordinatorSettings
	Links       string
	Addr        netip.Addr
	Credentials identity.Credentials
	Ways        ringorder.Ways // by which rings are ordered
	Name        string         // of the run
	Reported    int
	Resume      *node.Resume
	Forgets     bool
}

// WorkerSpec configures the process of a worker; see node.WorkerConfig.
type WorkerSpec struct {
	node.WorkerSettings
	Addr        netip.Addr
	Coordinator netip.Addr
	Credentials identity.Credentials
	ShortPaths  bool
	Name        string // of the run
	// Trainer describes how to run a user's own program for the worker; nil: none
	// trains.
	Trainer *Trainer
}

// Report is a process's report. Ready and Error of the embedded report are sent
// separately: see network.Report.
type Report struct {
	node.Report
	// Saved reports a checkpoint in the worker's memory.
	Saved *state.Checkpoint `json:"saved,omitempty"`
}

// tell passes on a node's report.
func tell(self *network.Self) func(node.Report) {
	return func(r node.Report) {
		if r.Ready {
			self.Ready()
			return
		}
		self.Tell(Report{Report: r})
	}
}

func listen(addr netip.Addr, port uint16) (*net.UDPConn, error) {
	return net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, port)))
}

// RunCoordinator is the process of a coordinator.
func RunCoordinator(self *network.Self) error {
	var s CoordinatorSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	return withQlog(self, func(tracing node.Tracing) error {
		cfg, err := s.config()
		if err != nil {
			return err
		}
		cfg.Tracing, cfg.Log, cfg.Report, cfg.Journal = tracing, self.Log, tell(self), self.File(Journal)
		cfg.Clock = steady.Now
		dead := make(chan policy.ID, len(s.Workers))
		cfg.Dead = dead
		go func() {
			for commands, id := self.Commands(), policy.ID(0); commands.Decode(&id) == nil; {
				dead <- id
			}
		}()
		return node.RunCoordinator(context.Background(), cfg)
	})
}

// config opens the files and sockets of a coordinator.
func (s *CoordinatorSpec) config() (cfg node.CoordinatorConfig, err error) {
	tlsConfig, err := s.Credentials.TLS()
	if err != nil {
		return cfg, err
	}
	udp, err := listen(s.Addr, controlPort)
	if err != nil {
		return cfg, err
	}
	conn, err := newErrorConn(udp)
	if err != nil {
		return cfg, err
	}
	return node.CoordinatorConfig{
		CoordinatorSettings: s.CoordinatorSettings, Links: s.Links, Ways: s.Ways,
		Conn: conn, TLS: tlsConfig, Unreachable: conn.unreachable,
		Run: s.Name, Reported: s.Reported, Resume: s.Resume, Forgets: s.Forgets,
	}, nil
}

// RunWorker is the process of a worker.
func RunWorker(self *network.Self) error {
	var s WorkerSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	if s.Trainer != nil {
		var err error
		if s.Train.Own, err = s.Trainer.Task(); err != nil {
			return err
		}
	}
	return withQlog(self, func(tracing node.Tracing) error {
		cfg, err := s.config()
		if err != nil {
			return err
		}
		cfg.Tracing, cfg.Log, cfg.Report, cfg.CPUWaits = tracing, self.Log, tell(self), cpuwait.Of
		for to, name := range map[*io.Reader]string{&cfg.Restore: Restore, &cfg.Residual: Residual} {
			if file := self.File(name); file != nil {
				defer file.Close()
				*to = file
			}
		}
		saved := make(chan struct{}, 1)
		cfg.Save = saver(self.File(Memory), saved, func(c state.Checkpoint) { self.Tell(Report{Saved: &c}) })
		commands := make(chan node.Command, 16)
		cfg.Commands = commands
		go takeCommands(self, saved, commands)
		return node.RunWorker(context.Background(), cfg)
	})
}

// config opens the files and sockets of a worker.
func (s *WorkerSpec) config() (cfg node.WorkerConfig, err error) {
	tlsConfig, err := s.Credentials.TLS()
	if err != nil {
		return cfg, err
	}
	cfg = node.WorkerConfig{
		WorkerSettings: s.WorkerSettings, Coordinator: netip.AddrPortFrom(s.Coordinator, controlPort),
		TLS: tlsConfig, Run: s.Name, ShortPaths: s.ShortPaths,
	}
	for port, conn := range map[uint16]*net.PacketConn{0: &cfg.Control, ringPort: &cfg.Ring, fetchPort: &cfg.Fetch} {
		udp, err := listen(s.Addr, port)
		if err != nil {
			return cfg, err
		}
		*conn = udp
	}
	return cfg, nil
}

// saver writes checkpoints to memory, one at a time: the next one after saved
// confirms that the one before has been taken.
func saver(memory *os.File, saved chan struct{}, tell func(state.Checkpoint)) func(func(io.Writer) (state.Checkpoint, error)) error {
	saved <- struct{}{}
	return func(write func(io.Writer) (state.Checkpoint, error)) error {
		select {
		case <-saved:
		default:
			return errors.New("the previous checkpoint has not been written yet")
		}
		c, err := saveIn(memory, write)
		if err != nil {
			saved <- struct{}{}
			return err
		}
		tell(c)
		return nil
	}
}

// saveIn writes a checkpoint to memory, replacing the content.
func saveIn(memory *os.File, write func(io.Writer) (state.Checkpoint, error)) (state.Checkpoint, error) {
	if err := memory.Truncate(0); err != nil {
		return state.Checkpoint{}, err
	}
	if _, err := memory.Seek(0, io.SeekStart); err != nil {
		return state.Checkpoint{}, err
	}
	out := bufio.NewWriterSize(memory, 1<<20)
	c, err := write(out)
	return c, errors.Join(err, out.Flush())
}

// takeCommands passes on the commands to a worker, until there are no more.
func takeCommands(self *network.Self, saved chan<- struct{}, to chan<- node.Command) {
	commands := self.Commands()
	for {
		var c node.Command
		if err := commands.Decode(&c); err != nil {
			return
		}
		if c.Op == OpSaved {
			saved <- struct{}{}
			continue
		}
		to <- c
	}
}
