package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"testbed/emulation/programs"
	"testbed/scenarios/faults"
)

// Config is the configuration of a Machine. Durations are by the machine's
// clock.
type Config struct {
	Programs  []Program // in the order in which they are started
	Grace     time.Duration
	KeepGoing bool // the end of one program does not end the others
	// Together marks programs that begin together: the launch fails if one of them ends
	// before the clock has started. Late programs are not among them.
	Together bool
	// Unattended marks programs that nobody would interrupt twice: after a signal of the
	// user they have Grace to end.
	Unattended bool
	Clock      programs.Rule
	Injects    []Inject // by their times
	Limits     Limits
}

// Limits end a launch that makes no progress. Each is a failure, and ends all
// programs even if KeepGoing is set; 0 is no limit.
type Limits struct {
	Startup time.Duration // from the start of the programs to the start of the clock
	Silence time.Duration // after the start of the clock, without any mark
	Length  time.Duration // since the start of the clock
}

// Program is the program of a node.
type Program struct {
	Node string
	// Central marks a program for the others: it is ended when they have ended.
	Central bool
	// Late programs start on the scenario's clock, at JoinAt.
	Late   bool
	JoinAt time.Duration
}

// Inject is a scheduled event for the program of a node, on the scenario's
// clock.
type Inject struct {
	// Op is Crash, Restart, Pause, Resume, Slow, Restore or Preempt.
	Op     faults.Op
	Node   string
	At     time.Duration
	After  time.Duration // of Restart: until the program is started again
	Notice time.Duration // of Preempt: from the warning to the end
	Factor float64       // of Slow
}

// Event is an event for a Machine: one of the types below.
type Event any

// The events.
type (
	Began struct{} // the network is up
	Ended struct { // the program of a node has ended, or could not be started
		Node   string
		Code   int            // -1 if a signal ended it
		Signal syscall.Signal // or 0
		Why    string         // it could not be started; then Code is a shell's
	}
	Killed    struct{ Node string }           // nothing is left in a node
	Signalled struct{ Signal syscall.Signal } // the user's process has got a signal
	Unheard   struct{}                        // nobody reads the programs' output any more
	Marked    struct{ By string }             // testbed mark start
	Heard     struct{ From string }           // any other mark
	Carried   struct{ By string }             // the first byte between workers
	Tick      struct{}                        // the time of Next has come
)

// Verb is the kind of an Action.
type Verb string

// The verbs.
const (
	Start      Verb = "start"       // the program of a node
	Signal     Verb = "signal"      // the program and its process group
	Kill       Verb = "kill"        // everything that runs in a node; the answer is Killed
	PowerOff   Verb = "power_off"   // cut the links of a node, then Kill
	PowerOn    Verb = "power_on"    // join the links of a node again
	Freeze     Verb = "freeze"      // stop everything that runs in a node
	Thaw       Verb = "thaw"        // the end of Freeze
	Slow       Verb = "slow"        // a node gets 1/Factor of the processor time that it used
	Restore    Verb = "restore"     // the end of Slow
	StartClock Verb = "start_clock" // from now on links change by it
	Say        Verb = "say"         // show the user Text
	Finish     Verb = "finish"      // everything is over
)

// Action is an action for the driver of a Machine.
type Action struct {
	Do          Verb
	Node        string
	Incarnation int            // of Start, from 0
	Signal      syscall.Signal // of Signal
	Factor      float64        // of Slow
	Inject      faults.Op      // that it is part of, or empty
	Text        string         // of Say; of StartClock: what started it
}

// Cause is the first failure.
type Cause struct {
	Node  string
	Text  string        // what happened, such as "exited with code 3"
	After time.Duration // since the program was started
	Code  int           // exit code for the user
}

// program is the state of a Program.
type program struct {
	Program
	phase       phase
	incarnation int
	began       time.Duration // start of the last incarnation
	killing     bool          // until nothing is left in the node
	injured     bool          // the scenario causes its end
	off         bool          // its links are cut
	frozen      bool
	restartAt   time.Duration // if restarts
	restarts    bool
}

type phase int

const (
	waiting phase = iota
	running
	over
)

// Machine decides which programs are started and which end. It has no clock:
// the caller gives every time, since any moment.
type Machine struct {
	cfg      Config
	programs []*program
	injects  []Inject // not due yet
	notices  []Inject // of preemptions; At is when they end

	clockAt  time.Duration
	clock    programs.Clock
	begun    bool
	began    time.Duration // the programs
	heard    time.Duration // the last mark
	finished bool
	signals  int // of the user
	first    syscall.Signal
	ending   bool // nothing is started any more
	killAt   time.Duration
	kills    bool
	giveUpAt time.Duration
	givesUp  bool
	cause    *Cause
	missed   []string // injects whose programs had ended, in words
	limited  string   // the limit that has ended the launch, in words; or empty

	now     time.Duration
	actions []Action
}

// ExitLimit is the exit code of a launch that a limit has ended, as of
// timeout(1).
const ExitLimit = 124

// lastPatience is how long the end of killed programs is awaited.
const lastPatience = 10 * time.Second

// NewMachine returns a machine that waits for Began.
func NewMachine(cfg Config) *Machine {
	m := &Machine{cfg: cfg, injects: slices.Clone(cfg.Injects), clock: programs.Clock{Rule: cfg.Clock}}
	slices.SortStableFunc(m.injects, func(a, b Inject) int { return cmp.Compare(a.At, b.At) })
	for _, p := range cfg.Programs {
		m.programs = append(m.programs, &program{Program: p, incarnation: -1})
	}
	return m
}

// Cause is the first failure so far, nil without one.
func (m *Machine) Cause() *Cause { return m.cause }

// Limited is the limit that has ended the launch, in words; empty if none has.
func (m *Machine) Limited() string { return m.limited }

// running are the nodes of workers whose programs run.
func (m *Machine) running() (nodes []string) {
	for _, p := range m.programs {
		if p.phase == running && !p.Central {
			nodes = append(nodes, p.Node)
		}
	}
	return nodes
}

// Exit is the exit code for the user.
func (m *Machine) Exit() int {
	if m.cause != nil {
		return m.cause.Code
	}
	return 0
}

// Clocked reports whether the scenario's clock has started, and when.
func (m *Machine) Clocked() (at time.Duration, yes bool) { return m.clockAt, m.clock.By != "" }

// Unclocked explains in words why the clock has not started; it is empty if it
// has.
func (m *Machine) Unclocked() string {
	if m.clock.By != "" {
		return ""
	}
	return m.clock.Silent()
}

// Left are the injects and late programs that were not due before the end.
func (m *Machine) Left() (injects []Inject, programs []string) {
	for _, p := range m.programs {
		if p.incarnation < 0 {
			programs = append(programs, p.Node)
		}
	}
	return m.injects, programs
}

// Missed are the injects that had come when their programs had ended, in words.
func (m *Machine) Missed() []string { return m.missed }

// Next is when the machine needs a Tick, if ever.
func (m *Machine) Next() (at time.Duration, ok bool) {
	consider := func(t time.Duration, is bool) {
		if is && (!ok || t < at) {
			at, ok = t, true
		}
	}
	if m.finished || !m.begun {
		return 0, false
	}
	consider(m.killAt, m.kills)
	consider(m.giveUpAt, m.givesUp)
	if m.ending {
		return at, ok
	}
	_, clocked := m.Clocked()
	if clocked {
		if len(m.injects) > 0 {
			consider(m.clockAt+m.injects[0].At, true)
		}
		for _, n := range m.notices {
			consider(m.clockAt+n.At, true)
		}
	}
	if at, is := m.limit(); is {
		consider(at.at, true)
	}
	for _, p := range m.programs {
		consider(m.clockAt+p.JoinAt, clocked && p.phase == waiting && p.Late)
		consider(p.restartAt, p.restarts && p.phase == over && !p.killing)
	}
	return at, ok
}

// Step gives the machine an event and returns the actions that follow, in
// order. Times must not decrease.
func (m *Machine) Step(now time.Duration, e Event) []Action {
	m.now, m.actions = now, nil
	switch e := e.(type) {
	case Began:
		m.begin()
	case Ended:
		m.ended(e)
	case Killed:
		m.program(e.Node).killing = false
	case Signalled:
		m.signalled(e.Signal)
	case Unheard:
		m.unheard()
	case Marked:
		starts, objection := m.clock.Mark(e.By)
		if objection != "" {
			m.say("%s", objection)
		}
		m.startClock(starts)
	case Carried:
		m.startClock(m.clock.Carried(e.By))
	case Heard:
		m.heard = now
	}
	if m.begun && !m.finished {
		m.due()
		m.conclude()
	}
	return m.actions
}

func (m *Machine) do(a Action) { m.actions = append(m.actions, a) }

func (m *Machine) say(format string, args ...any) {
	m.do(Action{Do: Say, Text: fmt.Sprintf(format, args...)})
}

func (m *Machine) program(node string) *program {
	return m.programs[slices.IndexFunc(m.programs, func(p *program) bool { return p.Node == node })]
}

func (m *Machine) begin() {
	m.begun, m.began = true, m.now
	if m.signals > 0 { // it came before there was anything to signal
		m.cause = &Cause{Text: "the launch was interrupted before the programs were started (" + m.first.String() + ")", Code: 128 + int(m.first)}
		m.ending = true
		return
	}
	for _, p := range m.programs {
		if !p.Late {
			m.start(p)
		}
	}
	m.startClock(m.clock.Begin())
}

func (m *Machine) start(p *program) {
	p.phase, p.began, p.injured, p.restarts = running, m.now, false, false
	p.incarnation++
	if p.off {
		p.off = false
		m.do(Action{Do: PowerOn, Node: p.Node})
	}
	m.do(Action{Do: Start, Node: p.Node, Incarnation: p.incarnation})
}

func (m *Machine) startClock(starts bool) {
	if starts {
		m.clockAt, m.heard = m.now, m.now
		m.do(Action{Do: StartClock, Text: m.clock.By})
	}
}

// deadline is a limit's time, and the failure if it is reached.
type deadline struct {
	at   time.Duration
	text string
}

// limit is the next limit that ends the launch, if there is any.
func (m *Machine) limit() (next deadline, is bool) {
	consider := func(limit, since time.Duration, format string) {
		if limit > 0 && (!is || since+limit < next.at) {
			next, is = deadline{since + limit, fmt.Sprintf(format, strconv.FormatFloat(limit.Round(time.Millisecond).Seconds(), 'f', -1, 64))}, true
		}
	}
	if _, clocked := m.Clocked(); !clocked {
		consider(m.cfg.Limits.Startup, m.began, "the programs did not begin within %s s: "+strings.ReplaceAll(m.clock.Silent(), "%", "%%"))
		return next, is
	}
	consider(m.cfg.Limits.Silence, m.heard, "no program reported any progress for %s s")
	consider(m.cfg.Limits.Length, m.clockAt, "the programs did not end within %s s after the start of the clock")
	return next, is
}

// due handles everything that is due.
func (m *Machine) due() {
	if m.kills && m.now >= m.killAt {
		m.kills = false
		m.killAll()
	}
	if m.ending {
		return
	}
	if d, is := m.limit(); is && m.now >= d.at {
		m.limited = d.text
		if nodes := m.running(); len(nodes) > 0 {
			m.limited += " (still running: " + strings.Join(nodes, ", ") + ")"
		}
		if m.cause == nil {
			m.cause = &Cause{Text: m.limited, Code: ExitLimit}
		}
		m.end(syscall.SIGTERM)
		return
	}
	_, clocked := m.Clocked()
	for _, p := range m.programs {
		if clocked && p.phase == waiting && p.Late && m.now >= m.clockAt+p.JoinAt {
			m.start(p)
		}
		if p.restarts && p.phase == over && !p.killing && m.now >= p.restartAt {
			m.start(p)
		}
	}
	for clocked && len(m.injects) > 0 && m.now >= m.clockAt+m.injects[0].At {
		in := m.injects[0]
		m.injects = m.injects[1:]
		m.inject(in)
	}
	for k := 0; k < len(m.notices); {
		if in := m.notices[k]; m.now >= m.clockAt+in.At {
			m.notices = slices.Delete(m.notices, k, k+1)
			if p := m.program(in.Node); p.phase == running {
				m.powerOff(p, in.Op)
			}
			continue
		}
		k++
	}
}

// inject applies an inject of the scenario to a program.
func (m *Machine) inject(in Inject) {
	p := m.program(in.Node)
	if p.phase != running {
		what := "had ended"
		if p.phase == waiting {
			what = "had not been started"
		}
		missed := fmt.Sprintf("%s %s did not happen: the program of %[2]s %[3]s", in.Op, in.Node, what)
		m.missed = append(m.missed, missed)
		m.say("%s", missed)
		return
	}
	switch in.Op {
	case faults.Crash:
		m.powerOff(p, in.Op)
	case faults.Restart:
		m.powerOff(p, in.Op)
		p.restarts, p.restartAt = true, m.clockAt+in.At+in.After
	case faults.Pause:
		p.frozen = true
		m.do(Action{Do: Freeze, Node: in.Node, Inject: in.Op})
	case faults.Resume:
		m.thaw(p, in.Op)
	case faults.Slow:
		m.do(Action{Do: Slow, Node: in.Node, Factor: in.Factor, Inject: in.Op})
	case faults.Restore:
		m.do(Action{Do: Restore, Node: in.Node, Inject: in.Op})
	case faults.Preempt:
		p.injured = true
		m.thaw(p, "")
		m.do(Action{Do: Signal, Node: in.Node, Signal: syscall.SIGTERM, Inject: in.Op})
		in.At += in.Notice
		m.notices = append(m.notices, in)
	}
}

func (m *Machine) powerOff(p *program, by faults.Op) {
	p.injured, p.killing, p.off, p.frozen = true, true, true, false
	m.do(Action{Do: PowerOff, Node: p.Node, Inject: by})
}

func (m *Machine) thaw(p *program, by faults.Op) {
	if p.frozen {
		p.frozen = false
		m.do(Action{Do: Thaw, Node: p.Node, Inject: by})
	}
}

func (m *Machine) ended(e Ended) {
	p := m.program(e.Node)
	p.phase = over
	early := p.Central && !m.ending && m.busy()
	_, clocked := m.Clocked()
	missing := m.cfg.Together && !clocked && !p.Late && !m.ending && !p.injured
	code := e.Code
	if e.Signal != 0 {
		code = 128 + int(e.Signal)
	}
	if p.injured || p.Central && !early && !missing || code == 0 && !early && !missing {
		return
	}
	if !p.killing { // processes that the program has left behind
		p.killing = true
		m.do(Action{Do: Kill, Node: p.Node})
	}
	if m.cause != nil {
		return
	}
	text := fmt.Sprintf("exited with code %d", code)
	switch {
	case e.Why != "":
		text = "could not be started: " + e.Why
	case e.Signal != 0:
		text = fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), e.Signal)
	case code == 0 && missing:
		code, text = 1, "exited with code 0 before the programs began"
	case code == 0:
		code, text = 1, "exited with code 0 while programs of workers were still running"
	}
	m.cause = &Cause{Node: p.Node, Text: text, After: m.now - p.began, Code: code}
	if (!m.cfg.KeepGoing || missing) && m.signals == 0 {
		m.end(syscall.SIGTERM)
	}
}

// busy reports whether a program other than the central one runs, or will run.
func (m *Machine) busy() bool {
	return slices.ContainsFunc(m.programs, func(p *program) bool {
		return !p.Central && (p.phase == running || p.restarts && !m.ending)
	})
}

// end ends all programs: by a signal, and by force after the grace period.
func (m *Machine) end(sig syscall.Signal) {
	m.ending, m.kills, m.killAt = true, true, m.now+m.cfg.Grace
	m.pass(sig)
}

// pass passes a signal on to all programs. A stopped program could not act on
// it.
func (m *Machine) pass(sig syscall.Signal) {
	for _, p := range m.programs {
		if p.phase == running && !p.killing {
			m.thaw(p, "")
			m.do(Action{Do: Signal, Node: p.Node, Signal: sig})
		}
	}
}

func (m *Machine) killAll() {
	for _, p := range m.programs {
		if p.phase == running && !p.killing {
			p.killing = true
			m.do(Action{Do: Kill, Node: p.Node})
		}
	}
	m.givesUp, m.giveUpAt = true, m.now+lastPatience
}

func (m *Machine) signalled(sig syscall.Signal) {
	m.signals++
	if m.signals == 1 {
		m.first = sig
	}
	if !m.begun {
		return
	}
	m.ending = true // nothing new begins
	if m.signals > 1 {
		m.kills = false
		m.killAll()
		return
	}
	if m.cfg.Unattended {
		m.end(sig)
		return
	}
	m.pass(sig)
}

// unheard ends all programs, as the loss of its reader would end a single one.
func (m *Machine) unheard() {
	if m.cause == nil {
		m.cause = &Cause{Text: "the reader of the programs' output has closed it", Code: 128 + int(syscall.SIGPIPE)}
	}
	if m.begun && !m.ending {
		m.end(syscall.SIGTERM)
	}
}

// conclude ends the central program after the others, and everything when
// nothing runs.
func (m *Machine) conclude() {
	if m.givesUp && m.now >= m.giveUpAt {
		m.finish()
		return
	}
	if m.busy() {
		return
	}
	var central *program
	for _, p := range m.programs {
		if p.Central && (p.phase == running || p.restarts && !m.ending) {
			central = p
		}
	}
	if !m.ending {
		m.ending = true // late programs have nobody to join
		if central != nil && central.phase == running {
			m.end(syscall.SIGTERM)
		}
	}
	if central == nil || central.phase != running {
		m.finish()
	}
}

func (m *Machine) finish() {
	m.finished = true
	m.do(Action{Do: Finish})
}
