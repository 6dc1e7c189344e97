//go:build linux

package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/emulation/programs"
	"testbed/policy"
	"testbed/record"
)

// driver carries out the decisions of a Machine, in the job's goroutine.
type driver struct {
	s       *network.Supervisor
	spec    *spec
	machine *Machine
	ground  *programs.Ground
	agents  map[string]*network.Child
	printer *printer
	env     []string // of programs, without their ranks
	dir     string
	began   time.Time
	ticks   int // the last timer that was set
	over    bool

	incarnations map[string]int
	told         map[string]bool   // programs that were told to end, and not by an inject
	injects      map[string]Action // injects whose outcome the node's agent will report
}

// RunLaunch is Run in the sandbox.
func RunLaunch(s *network.Supervisor, raw json.RawMessage) error {
	d := &driver{s: s, spec: new(spec), agents: map[string]*network.Child{}, incarnations: map[string]int{}, told: map[string]bool{}, injects: map[string]Action{}, began: time.Now()}
	if err := json.Unmarshal(raw, d.spec); err != nil {
		return fmt.Errorf("internal error: parsing the sandbox's job, the programs to launch: %w", err)
	}
	d.machine = NewMachine(d.spec.Machine)
	for _, line := range d.spec.Unfit {
		s.Tell("%s", line)
	}
	go func() {
		for {
			var c signalCommand
			if s.NextCommand(&c) != nil {
				return
			}
			s.Post(func() error { return d.signalled(c.Signal) })
		}
	}()
	// The reader of the output may close it.
	signal.Ignore(unix.SIGPIPE)
	var err error
	if d.ground, err = programs.Build(s, &d.spec.Network); err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	commands := map[string][]string{}
	for node, s := range d.spec.Starts {
		commands[node] = s.Command
	}
	d.began = time.Now() // the record begins now, too
	if err := d.ground.RecordBegin(commands, d.spec.Machine.Clock); err != nil {
		return err
	}
	if err := d.tell(Began{}); err != nil {
		return err
	}
	if err := s.HandleUntil(func() bool { return d.over }); err != nil {
		return err
	}
	d.printer.close()
	left := d.left()
	if d.machine.Exit() == 0 { // otherwise there is a better reason
		for _, line := range left {
			s.Tell("%s", line)
		}
	}
	result := Result{Missed: append(d.machine.Missed(), left...), Exit: d.machine.Exit(), Cause: d.cause(), Limit: d.machine.Limited(), Unclocked: d.machine.Unclocked()}
	if err := d.ground.Record(record.ProgramEvent{Type: record.ProgramsFinish, Code: &result.Exit, Cause: result.Cause}); err != nil {
		return err
	}
	if result.Fidelity, err = d.ground.End(); err != nil {
		return err
	}
	return s.Hand(note{Result: &result})
}

// left is what was not due before the end, in words.
func (d *driver) left() (lines []string) {
	injects, late := d.machine.Left()
	for _, node := range late {
		lines = append(lines, node+" was not started: all other programs had ended before its join_at")
	}
	var words []string
	for _, in := range injects {
		words = append(words, fmt.Sprintf("%s %s", in.Op, in.Node))
	}
	if len(words) > 0 {
		lines = append(lines, "all programs had ended before these injects: "+strings.Join(words, ", "))
	}
	return lines
}

// prepare starts the agents and the printer.
func (d *driver) prepare() error {
	var err error
	if d.env, err = d.ground.Env(); err != nil {
		return err
	}
	d.env = append(os.Environ(), d.env...)
	if d.dir, err = os.Getwd(); err != nil {
		d.dir = "/"
	}
	if d.ground.Hosts.Several() {
		if err := cluster.ServeExec(d.s, d.ground.Links, programs.ExecSocket); err != nil {
			return err
		}
	}
	var nodes []string
	for _, p := range d.spec.Machine.Programs {
		nodes = append(nodes, p.Node)
	}
	d.printer, err = newPrinter(nodes, d.spec.Dir, d.spec.Most.Output, d.spec.Colours, os.Stdout, os.Stderr,
		func(node string) {
			d.s.Post(func() error { return d.order(node, order{Taken: true}) })
		},
		func(err error) {
			d.s.Post(func() error { return d.broken(err) })
		})
	if err != nil {
		return fmt.Errorf("keeping the programs' output: %w", err)
	}
	for _, node := range nodes {
		agent, err := d.ground.Links.StartIn(node, network.ChildSpec{
			Name: "agent-" + node, Kind: KindAgent, Spec: agentSpec{Node: node, Spare: d.ground.Captures(node), Peers: d.peers(node), Most: d.spec.Most}, Env: []string{"GOMAXPROCS=1"},
			OnData: func(data json.RawMessage) error { return d.heard(node, data) },
			OnEnd: func(c *network.Child, reason string) error {
				if d.over {
					return nil
				}
				return fmt.Errorf("the process of testbed that runs the program of %s ended unexpectedly: %s; see %s", node, reason, d.s.Log("agent-"+node))
			},
		})
		if err != nil {
			return err
		}
		d.agents[node] = agent
	}
	return d.s.AwaitAll(network.StartupPatience, "a process of testbed to start in every node", func() (missing []string) {
		for _, node := range nodes {
			if !d.agents[node].Ready {
				missing = append(missing, node)
			}
		}
		return missing
	})
}

// peers are the other workers, if the first byte from a worker to one of them
// is awaited; nil if not.
func (d *driver) peers(node string) (all []netip.Addr) {
	if d.spec.Machine.Clock != programs.ClockTraffic || d.spec.Starts[node].Rank == nil {
		return nil
	}
	for name, s := range d.spec.Starts {
		if name != node && s.Rank != nil {
			all = append(all, d.ground.Links.Addr(name))
		}
	}
	return all
}

// tell gives the machine an event, and carries out its decisions.
func (d *driver) tell(e Event) error {
	if d.over {
		return nil
	}
	for _, a := range d.machine.Step(time.Since(d.began), e) {
		if err := d.do(a); err != nil {
			return err
		}
	}
	at, is := d.machine.Next()
	d.ticks++
	if tick := d.ticks; is {
		time.AfterFunc(at-time.Since(d.began), func() {
			d.s.Post(func() error {
				if tick != d.ticks {
					return nil // there is a later one
				}
				return d.tell(Tick{})
			})
		})
	}
	return nil
}

// signalled passes on a signal to the user's process.
func (d *driver) signalled(sig syscall.Signal) error {
	if !d.over && d.ground != nil {
		if err := d.ground.Record(record.ProgramEvent{Type: record.ProgramSignal, Signal: unix.SignalName(sig)}); err != nil {
			return err
		}
	}
	return d.tell(Signalled{sig})
}

func (d *driver) do(a Action) error {
	switch a.Do {
	case Start:
		return d.start(a)
	case Signal:
		if a.Inject != "" {
			if err := d.injected(a, nil); err != nil {
				return err
			}
		} else {
			d.told[a.Node] = true
		}
		return d.order(a.Node, order{Signal: a.Signal})
	case Kill:
		d.told[a.Node] = true
		return d.order(a.Node, order{Kill: true})
	case PowerOff:
		d.injects[a.Node] = a
		return d.ground.Isolate(a.Node, true, func() error { return d.order(a.Node, order{Kill: true}) })
	case PowerOn:
		return d.ground.Isolate(a.Node, false, func() error { return nil })
	case Freeze:
		d.injects[a.Node] = a
		return d.order(a.Node, order{Freeze: true})
	case Thaw:
		if a.Inject != "" {
			if err := d.injected(a, nil); err != nil {
				return err
			}
		}
		return d.order(a.Node, order{Thaw: true})
	case Slow:
		if err := d.injected(a, nil); err != nil {
			return err
		}
		if d.spec.Factors != "" {
			return d.writeFactor(a.Node, a.Factor)
		}
		return d.order(a.Node, order{Slow: a.Factor})
	case Restore:
		if err := d.injected(a, nil); err != nil {
			return err
		}
		if d.spec.Factors != "" {
			return d.writeFactor(a.Node, 1)
		}
		return d.order(a.Node, order{Slow: 1})
	case StartClock:
		return d.ground.StartClock(a.Text, d.spec.Zero)
	case Say:
		d.s.Tell("%s", a.Text)
	case Finish:
		d.over = true
	}
	return nil
}

// writeFactor tells the program of a node, in a file, how many times as long its
// steps take.
func (d *driver) writeFactor(node string, factor float64) error {
	name := filepath.Join(d.spec.Factors, node)
	temporary := name + ".new"
	if err := os.WriteFile(temporary, fmt.Appendf(nil, "%g\n", factor), 0o644); err != nil {
		return fmt.Errorf("writing the factor of the inject Slow: %w", err)
	}
	if err := os.Rename(temporary, name); err != nil {
		return fmt.Errorf("writing the factor of the inject Slow: %w", err)
	}
	return nil
}

// injected records and reports that an inject has happened. met counts its
// processes.
func (d *driver) injected(a Action, met *met) error {
	e := record.ProgramEvent{Type: record.ProgramInject, Node: a.Node, Op: string(a.Inject), Factor: a.Factor}
	text := fmt.Sprintf("%s %s", a.Inject, a.Node)
	if a.Factor != 0 {
		text += fmt.Sprintf(" by %g", a.Factor)
	}
	if met != nil {
		e.Processes, e.Left, e.Duration = &met.Processes, met.Left, policy.Time(met.Took.Microseconds())
		text += " affected " + processes(met.Processes)
		if met.Left > 0 {
			text += fmt.Sprintf(", and %s could not be stopped while waiting for a device", processes(met.Left))
		}
	}
	d.s.Tell("%.1f s: %s", time.Since(d.began).Seconds(), text)
	return d.ground.Record(e)
}

// processes is a number of processes in words.
func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// slowed records the result of a Slow.
func (d *driver) slowed(node string, s *slowed) error {
	d.s.Tell("under Slow, %s used %.3g of a processor while it computed, and %.3g before Slow: it was slower by a factor of %.3g (intended: %.3g)",
		node, s.Used, s.Before, s.Before/s.Used, s.Before/s.Intended)
	return d.ground.Record(record.ProgramEvent{Type: record.ProgramSlowed, Node: node, ShareBefore: s.Before, ShareIntended: s.Intended, ShareUsed: s.Used})
}

// order sends an order to the agent of a node. The end of an agent has been
// reported.
func (d *driver) order(node string, o order) error {
	_ = d.agents[node].Send(o)
	return nil
}

func (d *driver) start(a Action) error {
	s := d.spec.Starts[a.Node]
	env := environment(d.env, nil, s.Rank)
	env = append(env, fmt.Sprintf("%s=%d", envIncarnation, a.Incarnation))
	env = lastCounts(append(env, d.spec.Env...))
	if err := d.ground.Record(record.ProgramEvent{Type: record.ProgramStart, Node: a.Node, Incarnation: a.Incarnation}); err != nil {
		return err
	}
	if d.incarnations[a.Node] = a.Incarnation; a.Incarnation > 0 {
		d.s.Tell("%.1f s: the program of %s starts again, as incarnation %d", time.Since(d.began).Seconds(), a.Node, a.Incarnation)
	}
	d.told[a.Node] = false
	return d.order(a.Node, order{Start: &cluster.Program{Node: a.Node, Command: s.Command, Env: env, Dir: d.dir}})
}

// heard handles a report of an agent.
func (d *driver) heard(node string, data json.RawMessage) error {
	var r agentReport
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("internal error: parsing a report of node %s: %w", node, err)
	}
	switch {
	case d.over: // the printer is about to close
	case r.Data != nil:
		d.printer.in <- piece{node: node, stream: r.Stream, data: r.Data}
	case r.Ended != nil:
		d.printer.in <- piece{node: node, ended: true}
		e := record.ProgramEvent{Type: record.ProgramExit, Node: node, Incarnation: d.incarnations[node], Code: &r.Ended.Code, Cause: r.Ended.Why, Told: d.told[node]}
		if r.Ended.Signal != 0 {
			e.Signal = unix.SignalName(r.Ended.Signal)
		}
		if err := d.ground.Record(e); err != nil {
			return err
		}
		return d.tell(*r.Ended)
	case r.Complaint != "":
		d.s.Tell("%s: %s", node, r.Complaint)
		return d.ground.Record(record.ProgramEvent{Type: record.ProgramInvalidMark, Node: node, Cause: r.Complaint})
	case r.Carried:
		return d.tell(Carried{node})
	case r.Mark != nil:
		if err := d.ground.RecordMark(*r.Mark); err != nil {
			return err
		}
		if r.Mark.Type == programs.MarkStart {
			return d.tell(Marked{node})
		}
		return d.tell(Heard{node})
	case r.Killed != nil:
		if a, is := d.injects[node]; is && a.Do == PowerOff {
			delete(d.injects, node)
			if err := d.injected(a, r.Killed); err != nil {
				return err
			}
		} else if r.Killed.Left > 0 {
			d.s.Tell("%s in %s could not be ended while waiting for a device", processes(r.Killed.Left), node)
		}
		return d.tell(Killed{node})
	case r.Frozen != nil:
		if a, is := d.injects[node]; is && a.Do == Freeze {
			delete(d.injects, node)
			return d.injected(a, r.Frozen)
		}
	case r.Slowed != nil:
		return d.slowed(node, r.Slowed)
	case r.Sample != nil:
		d.ground.Waited(node, r.Sample.Waited)
		return d.ground.Record(record.ProgramEvent{
			Type: record.ProgramSample, Node: node, BytesSent: &r.Sample.Sent, BytesReceived: &r.Sample.Received,
			Processor: new(policy.Time(r.Sample.Processor.Microseconds())), Waited: policy.Time(r.Sample.Waited.Microseconds()),
		})
	}
	return nil
}

// broken handles the first error of writing output.
func (d *driver) broken(err error) error {
	if errors.Is(err, unix.EPIPE) {
		return d.tell(Unheard{})
	}
	d.s.Tell("the programs' output is incomplete: %v", err)
	return nil
}

// printable is a line of a program without characters that control a terminal.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, line)
}

// longestCause is the longest shown part of a program's last line.
const longestCause = 300

// cause is the first failure in words.
func (d *driver) cause() string {
	c := d.machine.Cause()
	if c == nil {
		return ""
	}
	if c.Node == "" {
		return c.Text
	}
	text := fmt.Sprintf("%s %s after %.1f s", c.Node, c.Text, c.After.Seconds())
	if strings.HasPrefix(c.Text, "exited with code 0") { // with the circumstances that make it a failure
		text = fmt.Sprintf("%s %s (%.1f s after its start)", c.Node, c.Text, c.After.Seconds())
	}
	if n := len(d.spec.Machine.Programs); n > 1 {
		text += fmt.Sprintf(", the first failure among %d programs", n)
	}
	if strings.HasPrefix(c.Text, "could not") {
		text = c.Node + " " + c.Text
	}
	if last := printable(d.printer.nodes[c.Node].cause); last != "" {
		if len(last) > longestCause {
			last = strings.ToValidUTF8(last[:longestCause], "") + " …"
		}
		text += " (its last line: " + last + ")"
	}
	return text
}
