package launch

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emulation/programs"
	"testbed/scenarios/faults"
)

// text is an action in a few words.
func (a Action) text() string {
	words := []string{string(a.Do)}
	if a.Node != "" {
		words = append(words, a.Node)
	}
	switch {
	case a.Do == Start && a.Incarnation > 0:
		words = append(words, fmt.Sprint(a.Incarnation))
	case a.Do == Signal:
		words = append(words, a.Signal.String())
	case a.Do == Slow:
		words = append(words, fmt.Sprint(a.Factor))
	case a.Do == Say:
		words = append(words, a.Text)
	}
	return strings.Join(words, " ")
}

// step is an event at a time in milliseconds, what is done about it, and when the machine
// wants to be told the time next (-1: never).
type step struct {
	at   int
	e    Event
	want string
	next int
}

func (s step) play(t *testing.T, m *Machine) {
	t.Helper()
	var got []string
	for _, a := range m.Step(time.Duration(s.at)*time.Millisecond, s.e) {
		got = append(got, a.text())
	}
	if text := strings.Join(got, "; "); text != s.want {
		t.Errorf("%d ms, %+v: %q, want %q", s.at, s.e, text, s.want)
	}
	next := -1
	if at, is := m.Next(); is {
		next = int(at.Milliseconds())
	}
	if next != s.next {
		t.Errorf("%d ms, %+v: next at %d, want %d", s.at, s.e, next, s.next)
	}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func workers(n int) (all []Program) {
	for k := range n {
		all = append(all, Program{Node: fmt.Sprintf("w%d", k)})
	}
	return all
}

func TestMachine(t *testing.T) {
	grace := ms(5000)
	central := append([]Program{{Node: "coordinator", Central: true}}, workers(2)...)
	together := Config{Programs: central, Grace: grace, KeepGoing: true, Together: true, Clock: programs.ClockMark}
	late := append(workers(2), Program{Node: "w2", Late: true, JoinAt: ms(300)})
	exit := func(node string, code int) Ended { return Ended{Node: node, Code: code} }
	killed := func(node string) Ended { return Ended{Node: node, Code: -1, Signal: syscall.SIGKILL} }
	const startAll = "start w0; start w1; start_clock"
	inject := func(injects ...Inject) Config {
		return Config{Programs: workers(2), Grace: grace, Clock: programs.ClockCommand, Injects: injects}
	}
	for name, c := range map[string]struct {
		cfg   Config
		steps []step
		exit  int
		cause string
	}{
		"all end well": {Config{Programs: workers(2), Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, -1},
			{10, exit("w1", 0), "", -1},
			{20, exit("w0", 0), "finish", -1},
		}, 0, ""},
		"one fails, the other heeds SIGTERM": {Config{Programs: workers(2), Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, -1},
			{1500, exit("w1", 3), "kill w1; signal w0 terminated", 6500},
			{1600, Killed{"w1"}, "", 6500},
			{1700, Ended{Node: "w0", Code: -1, Signal: syscall.SIGTERM}, "kill w0; finish", -1},
		}, 3, "w1 exited with code 3 1.5s"},
		"one fails, the other does not heed SIGTERM": {Config{Programs: workers(2), Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, -1},
			{1000, killed("w0"), "kill w0; signal w1 terminated", 6000},
			{6000, Tick{}, "kill w1", 16000},
			{6010, killed("w1"), "finish", -1},
		}, 137, "w0 was ended by signal 9 (killed) 1s"},
		"nothing ends it": {Config{Programs: workers(2), Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, -1},
			{1000, exit("w0", 1), "kill w0; signal w1 terminated; kill w1", 11000},
			{11000, Tick{}, "finish", -1},
		}, 1, "w0 exited with code 1 1s"},
		"not found": {Config{Programs: workers(1), Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, "start w0; start_clock", -1},
			{1, Ended{Node: "w0", Code: 127, Why: "no such file"}, "kill w0; finish", -1},
		}, 127, "w0 could not be started: no such file 1ms"},
		"keep going": {Config{Programs: workers(2), Grace: grace, KeepGoing: true, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, -1},
			{1000, exit("w1", 3), "kill w1", -1},
			{2000, exit("w0", 4), "kill w0; finish", -1},
		}, 3, "w1 exited with code 3 1s"},
		"interrupted once": {Config{Programs: workers(2), Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, -1},
			{1000, Signalled{syscall.SIGINT}, "signal w0 interrupt; signal w1 interrupt", -1},
			{1100, exit("w0", 0), "", -1},
			{9000, exit("w1", 5), "kill w1; finish", -1},
		}, 5, "w1 exited with code 5 9s"},
		"interrupted twice": {Config{Programs: workers(2), Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, -1},
			{1000, Signalled{syscall.SIGINT}, "signal w0 interrupt; signal w1 interrupt", -1},
			{1100, Signalled{syscall.SIGINT}, "kill w0; kill w1", 11100},
			{1110, killed("w0"), "", 11100},
			{1120, killed("w1"), "finish", -1},
		}, 137, "w0 was ended by signal 9 (killed) 1.11s"},
		"interrupted, with nobody to do it twice": {Config{Programs: workers(2), Grace: grace, Unattended: true, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, -1},
			{1000, Signalled{syscall.SIGTERM}, "signal w0 terminated; signal w1 terminated", 6000},
			{1100, exit("w0", 0), "", 6000},
			{6000, Tick{}, "kill w1", 16000},
			{6010, killed("w1"), "finish", -1},
		}, 137, "w1 was ended by signal 9 (killed) 6.01s"},
		"interrupted before the start": {Config{Programs: workers(2), Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Signalled{syscall.SIGTERM}, "", -1},
			{10, Began{}, "finish", -1},
		}, 143, " the launch was interrupted before the programs were started (terminated) 0s"},
		"nobody reads the output": {Config{Programs: workers(1), Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, "start w0; start_clock", -1},
			{10, Unheard{}, "signal w0 terminated", 5010},
			{20, Ended{Node: "w0", Code: -1, Signal: syscall.SIGTERM}, "kill w0; finish", -1},
		}, 141, " the reader of the programs' output has closed it 0s"},

		"the central program is first and last": {Config{Programs: central, Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, "start coordinator; start w0; start w1; start_clock", -1},
			{10, exit("w0", 0), "", -1},
			{20, exit("w1", 0), "signal coordinator terminated", 5020},
			{30, Ended{Node: "coordinator", Code: -1, Signal: syscall.SIGTERM}, "finish", -1},
		}, 0, ""},
		"the central program ends too soon": {Config{Programs: central, Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, "start coordinator; start w0; start w1; start_clock", -1},
			{10, exit("coordinator", 0), "kill coordinator; signal w0 terminated; signal w1 terminated", 5010},
			{20, exit("w0", 0), "", 5010},
			{30, exit("w1", 0), "finish", -1},
		}, 1, "coordinator exited with code 0 while programs of workers were still running 10ms"},
		"interrupted, the central program ends first": {Config{Programs: central, Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, "start coordinator; start w0; start w1; start_clock", -1},
			{10, Signalled{syscall.SIGINT}, "signal coordinator interrupt; signal w0 interrupt; signal w1 interrupt", -1},
			{20, exit("coordinator", 0), "", -1},
			{20, exit("w0", 0), "", -1},
			{30, exit("w1", 0), "finish", -1},
		}, 0, ""},

		"a late program": {Config{Programs: late, Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, 300},
			{300, Tick{}, "start w2", -1},
			{310, exit("w0", 0), "", -1},
			{320, exit("w1", 0), "", -1},
			{330, exit("w2", 0), "finish", -1},
		}, 0, ""},
		"a late program has nobody to join": {Config{Programs: late, Grace: grace, Clock: programs.ClockCommand}, []step{
			{0, Began{}, startAll, 300},
			{100, exit("w0", 0), "", 300},
			{110, exit("w1", 0), "finish", -1},
		}, 0, ""},
		"the clock starts with traffic": {Config{Programs: late, Grace: grace, Clock: programs.ClockTraffic}, []step{
			{0, Began{}, "start w0; start w1", -1},
			{1000, Carried{"w1"}, "start_clock", 1300},
			{1001, Carried{"w0"}, "", 1300},
			{1100, Marked{"w0"}, "say testbed mark start in w0 has no effect: the clock was already started by the first byte between workers, from w1; use --clock mark", 1300},
			{1110, Marked{"w1"}, "", 1300},
			{1300, Tick{}, "start w2", -1},
		}, 0, ""},
		"the clock starts with a mark": {Config{Programs: late, Grace: grace, Clock: programs.ClockMark}, []step{
			{0, Began{}, "start w0; start w1", -1},
			{1000, Carried{"w1"}, "", -1},
			{2000, Marked{"w1"}, "start_clock", 2300},
			{2001, Marked{"w0"}, "", 2300},
		}, 0, ""},
		"a mark before the first byte": {Config{Programs: late, Grace: grace, Clock: programs.ClockTraffic}, []step{
			{0, Began{}, "start w0; start w1", -1},
			{900, Marked{"w1"}, "start_clock", 1200},
			{1000, Carried{"w1"}, "", 1200},
		}, 0, ""},

		"a crash": {inject(Inject{Op: faults.Crash, Node: "w1", At: ms(100)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "power_off w1", -1},
			{110, Killed{"w1"}, "", -1},
			{111, killed("w1"), "", -1},
			{200, exit("w0", 0), "finish", -1},
		}, 0, ""},
		"a restart": {inject(Inject{Op: faults.Restart, Node: "w1", At: ms(100), After: ms(50)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "power_off w1", -1},
			{110, killed("w1"), "", -1},
			{120, Killed{"w1"}, "", 150},
			{130, exit("w0", 0), "", 150}, // it is waited for
			{150, Tick{}, "power_on w1; start w1 1", -1},
			{200, exit("w1", 0), "finish", -1},
		}, 0, ""},
		"a restart takes longer than it should": {inject(Inject{Op: faults.Restart, Node: "w1", At: ms(100)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "power_off w1", -1},
			{210, Killed{"w1"}, "", -1},
			{220, killed("w1"), "power_on w1; start w1 1", -1},
		}, 0, ""},
		"what has restarted may fail": {inject(Inject{Op: faults.Restart, Node: "w1", At: ms(100)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "power_off w1", -1},
			{110, killed("w1"), "", -1},
			{120, Killed{"w1"}, "power_on w1; start w1 1", -1},
			{220, exit("w1", 6), "kill w1; signal w0 terminated", 5220},
		}, 6, "w1 exited with code 6 100ms"},
		"a failure ends a pending restart": {inject(Inject{Op: faults.Restart, Node: "w1", At: ms(100), After: ms(900)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "power_off w1", -1},
			{110, killed("w1"), "", -1},
			{120, Killed{"w1"}, "", 1000},
			{130, exit("w0", 2), "kill w0; finish", -1},
		}, 2, "w0 exited with code 2 130ms"},
		"a pause": {inject(Inject{Op: faults.Pause, Node: "w1", At: ms(100)}, Inject{Op: faults.Resume, Node: "w1", At: ms(300)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "freeze w1", 300},
			{300, Tick{}, "thaw w1", -1},
		}, 0, ""},
		"an interrupt reaches what is paused": {inject(Inject{Op: faults.Pause, Node: "w1", At: ms(100)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "freeze w1", -1},
			{200, Signalled{syscall.SIGINT}, "signal w0 interrupt; thaw w1; signal w1 interrupt", -1},
		}, 0, ""},
		"slow": {inject(Inject{Op: faults.Slow, Node: "w1", At: ms(100), Factor: 4}, Inject{Op: faults.Restore, Node: "w1", At: ms(300)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "slow w1 4", 300},
			{300, Tick{}, "restore w1", -1},
		}, 0, ""},
		"preempted, it ends in time": {inject(Inject{Op: faults.Preempt, Node: "w1", At: ms(100), Notice: ms(200)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "signal w1 terminated", 300},
			{150, Ended{Node: "w1", Code: -1, Signal: syscall.SIGTERM}, "", 300},
			{300, Tick{}, "", -1},
			{400, exit("w0", 0), "finish", -1},
		}, 0, ""},
		"preempted, it stays": {inject(Inject{Op: faults.Preempt, Node: "w1", At: ms(100), Notice: ms(200)}), []step{
			{0, Began{}, startAll, 100},
			{100, Tick{}, "signal w1 terminated", 300},
			{300, Tick{}, "power_off w1", -1},
			{301, killed("w1"), "", -1},
			{400, exit("w0", 0), "finish", -1},
		}, 0, ""},
		"the clock never starts": {Config{Programs: workers(1), Grace: grace, KeepGoing: true, Clock: programs.ClockMark, Limits: Limits{Startup: ms(2000)}}, []step{
			{0, Began{}, "start w0", 2000},
			{1000, Heard{"w0"}, "", 2000},
			{2000, Tick{}, "signal w0 terminated", 7000},
			{2100, Ended{Node: "w0", Code: -1, Signal: syscall.SIGTERM}, "kill w0; finish", -1},
		}, 124, " the programs did not begin within 2 s: testbed mark start was not called (still running: w0) 0s"},
		"no marks any more": {Config{Programs: workers(1), Grace: grace, KeepGoing: true, Clock: programs.ClockMark, Limits: Limits{Startup: ms(2000), Silence: ms(500)}}, []step{
			{0, Began{}, "start w0", 2000},
			{1000, Marked{"w0"}, "start_clock", 1500},
			{1400, Heard{"w0"}, "", 1900},
			{1900, Tick{}, "signal w0 terminated", 6900},
			{6900, Tick{}, "kill w0", 16900},
			{6910, killed("w0"), "finish", -1},
		}, 124, " no program reported any progress for 0.5 s (still running: w0) 0s"},
		"longer than it may": {Config{Programs: workers(1), Grace: grace, Clock: programs.ClockCommand, Limits: Limits{Silence: ms(500), Length: ms(900)}}, []step{
			{0, Began{}, "start w0; start_clock", 500},
			{450, Heard{"w0"}, "", 900},
			{900, Tick{}, "signal w0 terminated", 5900},
			{950, exit("w0", 0), "finish", -1},
		}, 124, " the programs did not end within 0.9 s after the start of the clock (still running: w0) 0s"},
		"a limit after a failure": {Config{Programs: workers(2), Grace: grace, KeepGoing: true, Clock: programs.ClockCommand, Limits: Limits{Silence: ms(500)}}, []step{
			{0, Began{}, startAll, 500},
			{10, exit("w1", 3), "kill w1", 500},
			{500, Tick{}, "signal w0 terminated", 5500},
			{510, exit("w0", 0), "finish", -1},
		}, 3, "w1 exited with code 3 10ms"},
		"one of those that begin together ends well": {together, []step{
			{0, Began{}, "start coordinator; start w0; start w1", -1},
			{10, exit("w1", 0), "kill w1; signal coordinator terminated; signal w0 terminated", 5010},
			{20, exit("w0", 0), "", 5010},
			{30, Ended{Node: "coordinator", Code: -1, Signal: syscall.SIGTERM}, "finish", -1},
		}, 1, "w1 exited with code 0 before the programs began 10ms"},
		"one of those that begin together fails": {together, []step{
			{0, Began{}, "start coordinator; start w0; start w1", -1},
			{10, exit("coordinator", 3), "kill coordinator; signal w0 terminated; signal w1 terminated", 5010},
			{20, exit("w0", 0), "", 5010},
			{30, exit("w1", 0), "finish", -1},
		}, 3, "coordinator exited with code 3 10ms"},
		"those that have begun go on": {together, []step{
			{0, Began{}, "start coordinator; start w0; start w1", -1},
			{10, Marked{"w0"}, "start_clock", -1},
			{20, exit("w1", 3), "kill w1", -1},
			{30, exit("w0", 0), "signal coordinator terminated", 5030},
			{40, Ended{Node: "coordinator", Code: -1, Signal: syscall.SIGTERM}, "finish", -1},
		}, 3, "w1 exited with code 3 20ms"},
		"too late": {inject(Inject{Op: faults.Crash, Node: "w1", At: ms(100)}), []step{
			{0, Began{}, startAll, 100},
			{50, exit("w1", 0), "", 100},
			{100, Tick{}, "say Crash w1 did not happen: the program of w1 had ended", -1},
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMachine(c.cfg)
			for _, s := range c.steps {
				s.play(t, m)
			}
			cause := ""
			if got := m.Cause(); got != nil {
				cause = fmt.Sprintf("%s %s %v", got.Node, got.Text, got.After)
			}
			if m.Exit() != c.exit || cause != c.cause {
				t.Errorf("exit code %d, %q; want %d, %q", m.Exit(), cause, c.exit, c.cause)
			}
		})
	}
}

// TestMachineLimited: the limit that ends a launch is known even if another failure came
// first.
func TestMachineLimited(t *testing.T) {
	m := NewMachine(Config{Programs: workers(2), KeepGoing: true, Clock: programs.ClockCommand, Limits: Limits{Silence: ms(500)}})
	m.Step(0, Began{})
	m.Step(ms(10), Ended{Node: "w1", Code: 3})
	if m.Limited() != "" {
		t.Errorf("%q before the limit", m.Limited())
	}
	m.Step(ms(500), Tick{})
	if want := "no program reported any progress for 0.5 s (still running: w0)"; m.Limited() != want || m.Cause().Code != 3 {
		t.Errorf("%q, want %q; %+v", m.Limited(), want, m.Cause())
	}
}

func TestMachineTellsWhatWasLeft(t *testing.T) {
	m := NewMachine(Config{
		Programs: append(workers(1), Program{Node: "w1", Late: true, JoinAt: ms(5)}), Clock: programs.ClockMark,
		Injects: []Inject{{Op: faults.Crash, Node: "w0", At: ms(7)}},
	})
	m.Step(0, Began{})
	m.Step(ms(100), Ended{Node: "w0"})
	injects, programs := m.Left()
	if _, yes := m.Clocked(); yes || len(injects) != 1 || injects[0].Node != "w0" || strings.Join(programs, " ") != "w1" {
		t.Errorf("%+v, %v", injects, programs)
	}
}
