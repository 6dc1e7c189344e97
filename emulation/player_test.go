//go:build linux

package emulation

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/allreduce"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/node"
	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
)

// load takes a library scenario apart.
func load(t *testing.T, name string) *resolved.Scenario {
	t.Helper()
	s, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(scenarios.Baseline)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newPlayer returns a player of a library scenario whose workers have started,
// as far as it knows, and what it tells.
func newPlayer(t *testing.T, scenario string) (*player, *bytes.Buffer) {
	t.Helper()
	s := load(t, scenario)
	var notes bytes.Buffer
	p := &player{
		spec: scenarioSpec{Scenario: s}, s: network.NewSupervisor(strings.NewReader(""), &notes),
		monitor: monitor.New(s.InnerSteps, allreduce.Ring), clock: clock{scenario: s}, workers: map[string]*worker{}, slowed: map[policy.ID]float64{},
	}
	for _, w := range s.Workers {
		name := w.ID.Node()
		p.workers[name] = &worker{name: name, id: w.ID, child: &network.Child{Name: name}}
	}
	return p, &notes
}

// told returns the words and the events of a player, in order.
func told(t *testing.T, notes *bytes.Buffer) (all []string) {
	t.Helper()
	for in := json.NewDecoder(notes); ; {
		var n network.Note
		switch err := in.Decode(&n); {
		case err == io.EOF:
			return all
		case err != nil:
			t.Fatal(err)
		case n.Stage != "":
			all = append(all, n.Stage)
			continue
		}
		var p playerNote
		if err := json.Unmarshal(n.Data, &p); err != nil {
			t.Fatal(err)
		}
		if p.Event != nil {
			all = append(all, strings.TrimSpace(string(p.Event.Type)+" "+p.Event.Node))
		}
	}
}

func failures(p *player) string {
	r := p.monitor.Conclude(monitor.Sample{}, nil, 0)
	return strings.Join(r.Verdict.Reasons, "\n")
}

func TestCoordinatorEnded(t *testing.T) {
	const asked, running, over = 1, 2, 4
	for name, test := range map[string]struct {
		state   int
		failure string
		deaths  int
		err     string // part of it
		down    bool   // another one takes its place
		blamed  bool   // in the verdict
	}{
		"at the end of the run":       {running | over, "", 0, "", false, false},
		"at the end, with an error":   {running | over, "disk full", 0, "gave up: disk full", false, false},
		"killed by an inject":         {running | asked, "", 0, "", true, false},
		"unexpectedly":                {running, "", 0, "", true, true},
		"unexpectedly too often":      {running, "", maxDeaths, "it had already failed and been restarted 3 times", false, false},
		"gave up for a reason":        {running, "bad journal", 0, "bad journal", false, false},
		"before the run":              {0, "", 0, "died: signal: killed", false, false},
		"killed, and had an error to": {running | asked, "interrupted", 0, "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, notes := newPlayer(t, "homogeneous")
			if test.state&running > 0 {
				p.clock.begin(0, false)
			}
			p.over = test.state&over > 0
			p.coordinator.down, p.coordinator.deaths = test.state&asked > 0, test.deaths
			p.coordinator.back = time.Now().Add(time.Hour)
			child := &network.Child{Name: policy.CoordinatorNode, Ended: true, Failure: test.failure}
			p.coordinator.child = child
			reason := test.failure
			if reason == "" {
				reason = "signal: killed"
			}
			err := p.coordinatorEnded(child, reason)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, want %q", err, test.err)
			}
			if p.coordinator.down != test.down || err == nil && p.coordinator.gone() == test.down {
				t.Errorf("down %v", p.coordinator.down)
			}
			events := told(t, notes)
			if (len(events) == 1 && events[0] == string(record.CoordinatorCrash)) != test.blamed {
				t.Errorf("events %q", events)
			}
			if strings.Contains(failures(p), "the coordinator died unexpectedly: signal: killed") != test.blamed {
				t.Errorf("reasons %q", failures(p))
			}
		})
	}
}

func TestWorkerEnded(t *testing.T) {
	p, notes := newPlayer(t, "homogeneous")
	var dead sent
	p.coordinator.child = p.s.NewRemoteChild(network.ChildSpec{Name: policy.CoordinatorNode}, &dead)
	reason := "exit status 2"
	end := func(name string) error {
		w := p.workers[name]
		w.child.Ended = true
		return p.workerEnded(w, reason)
	}
	if err := end("w0"); err != nil {
		t.Errorf("one before the run, and others are left: %v", err)
	}
	p.workers["w1"].excused = true
	if err := end("w1"); err != nil {
		t.Error(err)
	}
	if got := told(t, notes); len(got) != 1 || got[0] != "worker w0 died unexpectedly: exit status 2; see "+p.s.Log("w0") {
		t.Errorf("%q", got)
	}
	if got := failures(p); got != "worker w0 died unexpectedly: exit status 2" {
		t.Errorf("reasons %q", got)
	}
	_ = end("w2")
	if got := strings.Fields(dead.String()); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("the coordinator is told that %q are dead", got)
	}
	if err := end("w3"); err == nil || !strings.Contains(err.Error(), "no worker is left to start the run") {
		t.Errorf("the last one before the run: %v", err)
	}
	p, notes = newPlayer(t, "homogeneous")
	p.clock.begin(0, false)
	reason = "exit status 0" // it was evicted, say, and of that nothing has been heard yet
	if err := end("w0"); err != nil || len(told(t, notes)) > 0 || failures(p) != "" {
		t.Errorf("in order: %v, %s", err, failures(p))
	}
	p.over, reason = true, "exit status 2"
	if err := end("w1"); err != nil || len(told(t, notes)) > 0 || failures(p) != "" {
		t.Errorf("after the run: %v", err)
	}
}

// TestEventsOfTheLifeBefore: what the journal has and the record lacks is recorded, and does
// not begin or end the run that goes on: its workers would lack their checkpoints.
func TestEventsOfTheLifeBefore(t *testing.T) {
	p, notes := newPlayer(t, "homogeneous")
	p.workers = map[string]*worker{}
	for _, e := range []record.Event{{Type: record.RunResume}, {Type: record.OuterStep, Round: 1}, {Type: record.RunEnd}} {
		if err := p.happened(&e); err != nil {
			t.Fatal(err)
		}
	}
	if p.clock.running() || p.over {
		t.Errorf("the clock runs: %v, the run is over: %v", p.clock.running(), p.over)
	}
	if got := strings.Join(told(t, notes), ", "); got != "run_resume, outer_step, run_end" {
		t.Errorf("recorded: %s", got)
	}
}

// TestWorkersThatGaveUpSayWhy: the end of the run, just after, does not kill them.
func TestWorkersThatGaveUpSayWhy(t *testing.T) {
	p, _ := newPlayer(t, "homogeneous")
	p.clock.begin(0, false)
	p.store.child = &network.Child{Ended: true}
	killed := make(map[string]bool)
	for name, rule := range map[string]policy.Rule{"w1": policy.RuleGaveUp, "w2": policy.RuleHeartbeat} {
		w := p.workers[name]
		w.member = true
		w.child = p.s.NewRemoteChild(network.ChildSpec{Name: name}, &killable{killed: func() { killed[name] = true }})
		if err := p.happened(&record.Event{Type: record.Evict, Node: name, Reason: &policy.Reason{Rule: rule}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"w0", "w3"} {
		p.workers[name].child.Ended = true
	}
	p.endWorkers()
	if killed["w1"] || !killed["w2"] {
		t.Errorf("killed %v, want w2 alone", killed)
	}
}

type killable struct {
	sent
	killed func()
}

func (k *killable) Signal(syscall.Signal, bool) { k.killed() }

// TestInjectsAreRecordedOnce: what a resumed run injects again, so that it is
// as it was, is not recorded twice.
func TestInjectsAreRecordedOnce(t *testing.T) {
	for _, test := range []struct {
		resumed bool
		want    string
	}{{false, "slow w1"}, {true, ""}} {
		p, notes := newPlayer(t, "homogeneous")
		p.workers["w1"].child = sink(t)
		p.clock.begin(5000, test.resumed)
		id, factor := policy.ID(1), 3.0
		if err := p.inject(faults.Inject{Op: faults.Slow, At: 4000, ID: &id, Factor: &factor}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(told(t, notes), ", "); got != test.want {
			t.Errorf("resumed %v: %q", test.resumed, got)
		}
		p.over = true
		if err := p.inject(faults.Inject{Op: faults.Slow, At: 6000, ID: &id, Factor: &factor}); err != nil || notes.Len() > 0 {
			t.Errorf("after the run: %v", err)
		}
	}
}

// sent is the control of a child without a process: it keeps the commands.
type sent struct{ bytes.Buffer }

func (s *sent) Send(command any) error                        { return json.NewEncoder(s).Encode(command) }
func (*sent) CloseCommands()                                  {}
func (*sent) Signal(syscall.Signal, bool)                     {}
func (*sent) Fetch(string, *os.File, func(error) error) error { return nil }

// sink is a child that takes commands.
func sink(t *testing.T) *network.Child {
	t.Helper()
	return new(network.Supervisor).NewRemoteChild(network.ChildSpec{Name: "w1"}, &sent{})
}

// TestLeaveOfAPausedWorker: it leaves when it goes on.
func TestLeaveOfAPausedWorker(t *testing.T) {
	p, notes := newPlayer(t, "homogeneous")
	p.clock.begin(0, false)
	w := p.workers["w1"]
	w.child, w.paused = sink(t), true
	id := policy.ID(1)
	if err := p.inject(faults.Inject{Op: faults.Leave, At: 10, ID: &id}); err != nil || len(w.awaits) != 1 || w.left || w.excused {
		t.Errorf("%+v, %v", w, err)
	}
	w.paused, w.awaits = false, nil
	if err := p.inject(faults.Inject{Op: faults.Leave, At: 10, ID: &id}); err != nil || len(w.awaits) > 0 || !w.left || !w.excused {
		t.Errorf("%+v, %v", w, err)
	}
	if got := strings.Join(told(t, notes), ", "); got != "leave w1" {
		t.Errorf("%q", got)
	}
}

func TestLinkEvents(t *testing.T) {
	s := &faults.Schedule{Scale: timescale.Scale{TimeScale: 1}}
	s.Injects = []faults.Inject{
		{Op: faults.Partition, At: 1000, IDs: []policy.ID{1, 2}}, {Op: faults.ClearPartition, At: 3000, IDs: []policy.ID{1, 2}},
	}
	for _, test := range []struct {
		before, at time.Duration
		want       string
	}{
		{-1, 500 * time.Microsecond, ""}, {500 * time.Microsecond, time.Millisecond, "partition"},
		{time.Millisecond, 3 * time.Millisecond, "heal"}, {-1, time.Hour, "partition heal"},
	} {
		var got []string
		for _, e := range resolved.NetworkChanges(s, test.before, test.at) {
			got = append(got, string(e.Type))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("after %v until %v: %q, want %q", test.before, test.at, got, test.want)
		}
	}
}

// TestFirstWorkers are those that join first, or those that hold the state.
func TestFirstWorkers(t *testing.T) {
	p, _ := newPlayer(t, "homogeneous")
	p.spec.Scenario.Workers[2].JoinAt = 9000
	first := func() (ids []policy.ID) {
		for _, w := range p.spec.Scenario.Workers {
			if p.isFirst(w) {
				ids = append(ids, w.ID)
			}
		}
		return ids
	}
	if got := first(); len(got) != 3 || got[2] != 3 {
		t.Errorf("%v", got)
	}
	p.spec.Resume = &node.Resume{Holders: []policy.ID{2}}
	if got := first(); len(got) != 1 || got[0] != 2 {
		t.Errorf("resumed: %v", got)
	}
}

func TestClock(t *testing.T) {
	s := load(t, "homogeneous")
	s.TimeScale = 100
	c := clock{scenario: s}
	if c.running() {
		t.Error("it runs before it begins")
	}
	c.begin(2000, false)
	if got := c.at(c.due(7000)); got != 7000 {
		t.Errorf("7000 µs is due when it is %d", got)
	}
	if got := c.due(3000).Sub(c.due(2000)); got != 100*time.Millisecond {
		t.Errorf("1 ms takes %v", got)
	}
	if got := c.scenario.ScenarioTime(time.Second); got != 10_000 {
		t.Errorf("1 s is %d µs", got)
	}
	if now := c.now(); now < 2000 || c.resumed != -1 {
		t.Errorf("now %d, resumed %d", now, c.resumed)
	}
}

// TestCausesComeFirst: what workers tell waits for what it follows from, and no
// longer.
func TestCausesComeFirst(t *testing.T) {
	p, notes := newPlayer(t, "homogeneous")
	for _, e := range []earlyEvent{
		{0, &record.Event{Type: record.Join, Node: "w0", Seq: 1}},
		{2, &record.Event{Type: record.Step, Node: "w0"}},
		{3, &record.Event{Type: record.Step, Node: "w1"}},
		{1, &record.Event{Type: record.Merge, Node: "w0"}},
		{2, &record.Event{Type: record.Merge, Node: "w2"}},
		{0, &record.Event{Type: record.Sideline, Node: "w3", Seq: 2}},
		{0, &record.Event{Type: record.Rejoin, Node: "w3", Seq: 3}},
	} {
		if err := p.heard(e.after, e.event); err != nil {
			t.Fatal(err)
		}
	}
	want := "join w0, merge w0, sideline w3, step w0, merge w2, rejoin w3, step w1"
	if got := strings.Join(told(t, notes), ", "); got != want || len(p.early) > 0 {
		t.Errorf("%s\nwant %s; waiting: %v", got, want, p.early)
	}
}
