//go:build linux

package network

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"testbed/emulation/sandbox"
	"testbed/internal/lines"
)

// The descriptors that a child inherits, and the files of its ChildSpec after
// them.
const (
	specFD     = 3 // its spec, as JSON, then end of file
	reportsFD  = 4 // its reports, as JSON lines
	commandsFD = 5 // commands to it, as JSON lines; services stop at its end
	filesFD    = 6
)

// Hub is the network namespace between all links: that of the sandbox's init.
const Hub = -1

// ChildSpec is a process to start on the network: a node, or a service such as
// the router.
type ChildSpec struct {
	Name  string
	NetNS int    // descriptor of its network namespace, or Hub
	Kind  string // which program of RunChild it is
	Spec  any    // of the kind's own type
	Env   []string
	// Files are inherited. The child gets them by the names in FileNames.
	Files     []*os.File
	FileNames []string
	// Watched makes the child report its Usage periodically, and its stalls.
	Watched bool
	// OnData is called with the child's data, and OnEnd with the reason for its
	// end. An error ends the job. Either may be nil.
	OnData func(json.RawMessage) error
	OnEnd  func(c *Child, reason string) error
	// Log is the destination of its output; nil: the log of its name.
	Log *os.File
	// OnReport, if not nil, is called with its unchanged reports, in place of
	// OnData.
	OnReport func(Report)
}

// Child is a process on the network, in the sandbox's init.
type Child struct {
	Name    string
	Process *sandbox.Process // nil on another host
	Ready   bool
	Ended   bool
	Failure string // why it gave up, in its own words

	missed  int // looks of WatchSilence since its last report
	spec    ChildSpec
	s       *Supervisor
	control Control
}

// Control is the way to reach the process of a Child. An ended process receives
// nothing.
type Control interface {
	Send(command any) error
	CloseCommands()
	// Signal sends a signal to the process or, with group, also to its children.
	Signal(signal syscall.Signal, group bool)
	Fetch(name string, to *os.File, done func(error) error) error
}

// pipes are the control of a process in this sandbox.
type pipes struct {
	process  *sandbox.Process
	out      *json.Encoder
	commands io.WriteCloser
}

func (p *pipes) Send(command any) error { return p.out.Encode(command) }

func (p *pipes) CloseCommands() { _ = p.commands.Close() } // may be closed already

func (p *pipes) Signal(signal syscall.Signal, group bool) {
	if group {
		_ = p.process.SignalGroup(signal) // the only error is that it has ended
	} else {
		_ = p.process.Signal(signal) // likewise
	}
}

// Fetch has nothing to do: both processes share the memory.
func (p *pipes) Fetch(_ string, _ *os.File, done func(error) error) error { return done(nil) }

// rawChild is the part of a ChildSpec that the child receives.
type rawChild struct {
	Name      string
	Kind      string
	Spec      json.RawMessage
	FileNames []string
	Watched   bool
}

// Report is a line of a child.
type Report struct {
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"` // why it gives up
	Usage *Usage `json:"usage,omitempty"`
	// Stalled is the length of a stall that ends now.
	Stalled time.Duration   `json:"stalled_ns,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"` // of a type of the kind's own
	// Raise is a thread for which it asks priority over other programs.
	Raise int `json:"raise,omitempty"`
}

// NewRemoteChild returns a child whose process is on another host. The
// connection to that host calls Reported and HasEnded.
func (s *Supervisor) NewRemoteChild(spec ChildSpec, control Control) *Child {
	return &Child{Name: spec.Name, spec: spec, s: s, control: control}
}

// StartChild starts a process and receives its reports.
func (s *Supervisor) StartChild(spec ChildSpec) (*Child, error) {
	wrap := func(err error) error { return fmt.Errorf("starting %s: %w", spec.Name, err) }
	raw, err := json.Marshal(spec.Spec)
	if err != nil {
		return nil, wrap(err)
	}
	log := os.Stderr
	switch {
	case spec.Log != nil:
		log = spec.Log
	case s.Dir != "":
		if log, err = lines.AppendText(s.Dir.Log(spec.Name)); err != nil {
			return nil, wrap(err)
		}
		defer log.Close()
	}
	var theirs, ours [filesFD - specFD]*os.File // spec, reports, commands
	for k := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, wrap(err)
		}
		theirs[k], ours[k] = r, w
		if k+specFD == reportsFD {
			theirs[k], ours[k] = w, r
		}
		defer theirs[k].Close()
	}
	specTo, reports, commandsTo := ours[0], ours[1], ours[2]
	c := &Child{Name: spec.Name, spec: spec, s: s}
	c.Process, err = s.Box.Start(sandbox.Command{
		Name: spec.Name, NetNS: spec.NetNS, Args: []string{VerbNode}, Env: spec.Env,
		Files: append(theirs[:], spec.Files...), Stdout: log, Stderr: log,
	})
	if err != nil {
		for _, f := range ours {
			f.Close()
		}
		return nil, err
	}
	c.control = &pipes{c.Process, json.NewEncoder(commandsTo), commandsTo}
	go func() {
		// The end of a child that died is reported.
		_ = json.NewEncoder(specTo).Encode(rawChild{spec.Name, spec.Kind, raw, spec.FileNames, spec.Watched})
		specTo.Close()
	}()
	go c.listen(reports)
	return c, nil
}

// listen passes on the reports of a child, and its end.
func (c *Child) listen(reports *os.File) {
	in := json.NewDecoder(bufio.NewReader(reports))
	for {
		var r Report
		if err := in.Decode(&r); err != nil {
			break
		}
		c.s.Post(func() error { return c.Reported(r) })
	}
	reports.Close()
	status := c.Process.Wait()
	c.Process.KillGroup()
	c.s.Post(func() error {
		c.CloseCommands()
		return c.HasEnded(status.String())
	})
}

// Reported handles a report of the child's process.
func (c *Child) Reported(r Report) error {
	c.missed = 0
	if r.Raise > 0 {
		if c.Process != nil { // otherwise another host handles it
			c.s.Raise(r.Raise)
		}
		return nil
	}
	if c.spec.OnReport != nil {
		c.spec.OnReport(r)
		return nil
	}
	c.Ready = c.Ready || r.Ready
	if r.Error != "" {
		c.Failure = r.Error
	}
	if r.Usage != nil && c.s.OnUsage != nil {
		c.s.OnUsage(*r.Usage)
	}
	if r.Stalled > 0 && c.s.OnStall != nil {
		c.s.OnStall(c.Name, r.Stalled)
	}
	if r.Data != nil && c.spec.OnData != nil {
		return c.spec.OnData(r.Data)
	}
	return nil
}

// HasEnded handles the end of the child's process.
func (c *Child) HasEnded(reason string) error {
	c.Ended = true
	if c.Failure != "" {
		reason = c.Failure
	}
	if c.spec.OnEnd != nil {
		return c.spec.OnEnd(c, reason)
	}
	return nil
}

// Send sends the child a command, of a type of its kind's own. It fails if the
// child is dead.
func (c *Child) Send(command any) error { return c.control.Send(command) }

// CloseCommands reports that no more commands will come; it ends a service.
func (c *Child) CloseCommands() { c.control.CloseCommands() }

// Kill ends the child at once, if it has not ended.
func (c *Child) Kill() { c.Signal(syscall.SIGKILL) }

// Signal sends a signal to the child, if it has not ended.
func (c *Child) Signal(signal syscall.Signal) { c.control.Signal(signal, false) }

// SignalGroup sends a signal to the child and its children, if it has not
// ended.
func (c *Child) SignalGroup(signal syscall.Signal) { c.control.Signal(signal, true) }

// Fetch copies the content of a memory that the child shares under a name to
// the file that stands for it here, and then calls done. On this host they are
// the same.
func (c *Child) Fetch(name string, to *os.File, done func(error) error) error {
	return c.control.Fetch(name, to, done)
}

// Err is the reason for the end of a child that ended without a result.
func (c *Child) Err() error {
	if c.Failure != "" {
		return fmt.Errorf("%s: %s", c.Name, c.Failure)
	}
	return fmt.Errorf("the process %s ended without a result; see %s", c.Name, c.s.Log(c.Name))
}
