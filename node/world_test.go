package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"testbed/internal/cpuwait"
	"testbed/internal/memnet"
	"testbed/internal/testscenario"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping"
)

// A world is one run of the real coordinator and the real workers over an
// in-process network, inside a synctest bubble: real code, virtual time.
type world struct {
	t        testing.TB
	scenario *scenarios.Scenario
	net      *memnet.Net
	logs     lockedBuffer

	mu      sync.Mutex
	events  []record.Event
	nodes   map[policy.ID]*worldNode
	onEvent func(record.Event) // called by one goroutine at a time
	hooks   sync.Mutex
	ready   chan struct{}
	began   time.Time
	failed  []string

	begin func(scenarios.Worker, int) // another process of a worker
	dead  chan policy.ID              // of the coordinator's

	waits     func(threads, processes []int) cpuwait.Times // as WorkerConfig.CPUWaits
	onReport  func(Report)                                 // called by one goroutine at a time
	reporting sync.Mutex

	missing policy.ID // a worker that does not start; 0 starts always

	journal  memJournal
	life     *life // the present coordinator
	reported int   // number of the last event of a coordinator
	over     bool  // the record has its end
	forgets  bool  // the next life of the coordinator has
	outages  policy.Time
}

// life is one life of the coordinator.
type life struct {
	socket *memnet.Socket
	cancel context.CancelFunc
	dead   atomic.Bool
	down   policy.Time // how long until the next one
}

// memJournal is a journal that survives the coordinator. Whoever writes to it
// has to be alive.
type memJournal struct {
	mu   sync.Mutex
	data []byte
}

type journalOf struct {
	*memJournal
	life *life
	read int
}

func (j *journalOf) Read(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.read == len(j.data) {
		return 0, io.EOF
	}
	n := copy(b, j.data[j.read:])
	j.read += n
	return n, nil
}

func (j *journalOf) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.life.dead.Load() {
		return 0, errors.New("this coordinator is dead")
	}
	j.data = append(j.data, b...)
	return len(b), nil
}

func (j *journalOf) Truncate(size int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.data = j.data[:size]
	return nil
}

// crashCoordinator ends the coordinator as SIGKILL does, at whatever it is
// doing, and with torn tears the last line of its journal; another one follows
// after down.
func (w *world) crashCoordinator(down policy.Time, torn bool) { w.crashLighthouse(down, torn, false) }

// crashLighthouse has the next one have forgotten what torchft's lighthouse does.
func (w *world) crashLighthouse(down policy.Time, torn, forgets bool) {
	w.mu.Lock()
	b := w.life
	if w.over || b.dead.Load() {
		w.mu.Unlock()
		return
	}
	b.down = down
	w.forgets = forgets
	b.dead.Store(true)
	w.outages += down
	w.events = append(w.events, record.Event{T: w.now(), Type: record.CoordinatorCrash})
	w.mu.Unlock()
	if torn {
		w.journal.mu.Lock()
		w.journal.data = append(w.journal.data, `{"t_us":1,"msg":{"ty`...)
		w.journal.mu.Unlock()
	}
	b.socket.Close()
	b.cancel()
}

// coordinate plays the coordinator, life by life.
func (w *world) coordinate(ctx context.Context, policyName string, port uint16) {
	settings := NewCoordinatorSettings(testscenario.Resolve(w.t, w.scenario, policyName))
	for {
		ctx, cancel := context.WithCancel(ctx)
		b := &life{socket: w.net.ListenAt(policy.CoordinatorNode, port), cancel: cancel}
		w.mu.Lock()
		w.life = b
		reported, forgets := w.reported, w.forgets
		w.mu.Unlock()
		err := RunCoordinator(ctx, CoordinatorConfig{
			CoordinatorSettings: settings, Links: "none", Conn: b.socket, Unreachable: b.socket.Unreachable, Dead: w.dead,
			TLS: memnet.TLS(w.t, policy.CoordinatorNode), Log: w.log(policy.CoordinatorNode),
			Journal: &journalOf{memJournal: &w.journal, life: b}, Reported: reported, Forgets: forgets,
			Clock: func() time.Duration { return 1000*time.Hour + time.Since(w.net.Began) },
			Report: func(r Report) {
				if !b.dead.Load() {
					w.report(r)
				}
			},
		})
		cancel()
		if !b.dead.Load() {
			if err != nil {
				w.fail("coordinator: %v", err)
			}
			return
		}
		time.Sleep(w.scenario.Scale().ClockDuration(b.down))
	}
}

type worldNode struct {
	commands chan Command
	process  int // its incarnation
	sockets  []*memnet.Socket
	cancel   context.CancelFunc
	excused  bool // what becomes of it is no news
	ended    chan struct{}
	err      error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

// log is a logger with virtual times.
func (w *world) log(name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(&w.logs, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Duration("t", time.Since(w.net.Began))
			}
			return a
		},
	})).With("node", name)
}

// newWorld sets up a run; its caller is inside a bubble.
func newWorld(t testing.TB, s *scenarios.Scenario) *world {
	plan, err := s.Plan()
	if err == nil {
		plan, err = plan.Dilated(s.Slowdown())
	}
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, scenario: s, net: memnet.New(plan), nodes: map[policy.ID]*worldNode{}, ready: make(chan struct{}), dead: make(chan policy.ID, len(s.Workers))}
}

// play runs the scenario. It returns when every node has ended, which it sees
// to after patience.
func (w *world) play(policyName string, patience time.Duration) (record.Summary, []record.Event) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const port = 7000
	control := netip.AddrPortFrom(w.net.Base.Nodes[w.net.Base.Index(policy.CoordinatorNode)].Addr.Addr(), port)
	coordinated := make(chan struct{})
	go func() {
		defer close(coordinated)
		w.coordinate(ctx, policyName, port)
	}()
	<-w.ready
	w.begin = func(spec scenarios.Worker, incarnation int) { w.start(ctx, spec, incarnation, control) }
	for _, spec := range w.scenario.Workers {
		if w.missing == 0 || spec.ID != w.missing {
			w.begin(spec, 0)
		}
	}
	<-coordinated
	w.mu.Lock()
	recorded := slices.Clone(w.events) // a fault due after the end may still add its own
	w.over = true
	nodes := maps.Clone(w.nodes)
	w.mu.Unlock()
	for id, n := range nodes {
		if !w.excused(id) && !admitted(id, recorded) {
			w.excuse(id)
			if spare := w.spare(id, recorded); spare > 0 {
				w.fail("worker %d was told to join %d µs before it would have been too late, and was not admitted", id, spare)
			}
		}
		timeout := time.After(10 * time.Second)
		select {
		case <-n.ended:
		case <-timeout:
			if !w.excused(id) {
				w.fail("worker %d has not ended with the run", id)
			}
			n.cancel()
			<-n.ended
		}
		if n.err != nil && !w.excused(id) {
			w.fail("worker %d: %v", id, n.err)
		}
	}
	w.mu.Lock()
	recorded = slices.Clone(w.events)
	w.mu.Unlock()
	sum := record.NewSummarizer(w.scenario.Setup())
	for _, e := range recorded {
		sum.Add(&e)
	}
	return sum.Summary(), recorded
}

func admitted(id policy.ID, events []record.Event) bool {
	return slices.ContainsFunc(events, func(e record.Event) bool {
		return e.Type == record.Join && e.Node == id.Node()
	})
}

// spare is how much sooner before the end of the run a worker was told to join
// than its hello takes to the coordinator. If it is negative the worker may have
// found nobody any more to tell it that the run is over: on a real network whoever
// started it ends it then.
func (w *world) spare(id policy.ID, events []record.Event) policy.Time {
	spec, _ := w.scenario.Worker(id)
	told, hello := spec.JoinAt, time.Duration(0)
	links := w.scenario.Real.Links.Default
	for _, d := range []*shaping.Duration{links.OneWayDelay, links.Jitter} {
		if d != nil {
			hello += 3 * time.Duration(*d) // there, back, and there with the hello
		}
	}
	lost := links.Loss != nil && *links.Loss > 0
	for _, e := range events {
		switch e.Type {
		case record.CoordinatorBack: // its packets to the one before are lost
			told, lost = max(told, e.T), true
		case record.RunEnd:
			if lost {
				hello += 15 * time.Second // QUIC sends again ever more seldom
			}
			return e.T - told - w.scenario.ScenarioTime(hello)
		}
	}
	return 0
}

func (w *world) excused(id policy.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[id].excused
}

func (w *world) start(ctx context.Context, spec scenarios.Worker, incarnation int, coordinator netip.AddrPort) {
	name := spec.ID.Node()
	ctx, cancel := context.WithCancel(ctx)
	n := &worldNode{commands: make(chan Command, 16), process: incarnation, excused: incarnation > 0, cancel: cancel, ended: make(chan struct{})}
	conns := make([]net.PacketConn, 3)
	for i := range conns {
		s := w.net.Listen(name)
		n.sockets, conns[i] = append(n.sockets, s), s
	}
	w.mu.Lock()
	w.nodes[spec.ID] = n
	w.mu.Unlock()
	if spec.JoinAt == w.scenario.FirstJoin() || incarnation > 0 {
		n.commands <- Command{Op: OpJoin}
	}
	settings := workerSettings(w.t, w.scenario, spec.ID, incarnation)
	go func() {
		defer close(n.ended)
		defer cancel()
		n.err = RunWorker(ctx, WorkerConfig{
			WorkerSettings: settings, Coordinator: coordinator,
			Control: conns[0], Ring: conns[1], Fetch: conns[2],
			TLS: memnet.TLS(w.t, name), Commands: n.commands, Log: w.log(name), Report: w.report, CPUWaits: w.waits,
		})
	}()
}

func (w *world) report(r Report) {
	if w.onReport != nil {
		w.reporting.Lock()
		w.onReport(r)
		w.reporting.Unlock()
	}
	if r.Ready {
		w.mu.Lock()
		select {
		case <-w.ready: // a worker's
		default:
			close(w.ready)
		}
		w.mu.Unlock()
	}
	if r.Event == nil {
		return
	}
	e := *r.Event
	w.mu.Lock()
	w.events = append(w.events, e)
	w.reported = max(w.reported, e.Seq)
	w.over = w.over || e.Type == record.RunEnd
	if e.Type == record.Evict {
		for id, n := range w.nodes {
			n.excused = n.excused || id.Node() == e.Node
		}
	}
	w.mu.Unlock()
	if e.Type == record.RunStart {
		w.began = time.Now()
		for _, spec := range w.scenario.Workers {
			if spec.JoinAt > w.scenario.FirstJoin() {
				w.at(spec.JoinAt, func() { w.command(spec.ID, Command{Op: OpJoin}) })
			}
		}
	}
	if w.onEvent != nil {
		w.hooks.Lock()
		defer w.hooks.Unlock()
		w.onEvent(e)
	}
}

// at has something done at a scenario time.
func (w *world) at(t policy.Time, do func()) {
	time.AfterFunc(time.Until(w.began.Add(w.scenario.Scale().ClockDuration(t-w.scenario.FirstJoin()))), do)
}

// now is the scenario time.
func (w *world) now() policy.Time {
	return w.scenario.FirstJoin() + w.scenario.Scale().ClockTime(time.Since(w.began))
}

func (w *world) command(id policy.ID, c Command) {
	select {
	case w.node(id).commands <- c:
	default: // nobody reads them any more
	}
}

func (w *world) excuse(id policy.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[id].excused = true
}

// freeze makes a node mute and deaf, as a stopped process is.
func (w *world) freeze(id policy.ID) {
	w.excuse(id)
	w.net.Fault(w.t, fmt.Sprintf("freeze %d", id), shaping.Partition{Nodes: []string{id.Node()}})
}

// crash ends a worker as SIGKILL does: nothing that it says on its way out
// reaches anybody.
func (w *world) crash(id policy.ID) {
	w.excuse(id)
	w.node(id).crash()
}

func (n *worldNode) crash() {
	for _, s := range n.sockets {
		s.Close()
	}
	n.cancel()
}

// node is the last process of a worker.
func (w *world) node(id policy.ID) *worldNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[id]
}

// restart begins another process of a worker whose last one has ended, unless the
// run is over.
func (w *world) restart(id policy.ID) {
	n := w.node(id)
	<-n.ended
	w.mu.Lock()
	over := w.over || w.nodes[id] != n // another one was faster
	w.mu.Unlock()
	if !over {
		spec, _ := w.scenario.Worker(id)
		w.begin(spec, n.process+1)
	}
}

// checkLineage holds the record against the invariant: one lineage of outer
// states, the same bytes at every participant of a round, and those that the
// record leads to, computed anew. A wrong divisor, a contribution that counts
// twice or a state that does not follow from the one before shows as another
// hash.
func checkLineage(s *scenarios.Scenario, events []record.Event) error {
	r, err := s.Resolve("")
	if err != nil {
		return err
	}
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	steps, seen := r.InitialStep(), map[string]int{}
	for _, e := range events {
		switch e.Type {
		case record.OuterStep:
			if steps++; e.Round != steps {
				bad("outer step %d follows %d", e.Round, steps-1)
			}
		case record.ReduceDone, record.State:
			if e.Identical == nil || !*e.Identical {
				bad("%s of round %d: the participants %v have different bytes", e.Type, e.Round, e.Participants)
			}
		}
		if e.Type != record.State || len(e.Regions) > 0 { // a region may begin anew from what was agreed on
			continue
		}
		if before, twice := seen[e.Hash]; twice {
			bad("the states after outer steps %d and %d are the same", before, e.Round)
		}
		seen[e.Hash] = e.Round
	}
	return errors.Join(append(problems, testscenario.CheckTraining(r, events))...)
}

func worldScenario(t testing.TB, workers int) *scenarios.Scenario {
	var text strings.Builder
	text.WriteString(`
seed: 1
inner_steps: 2
target_outer_steps: 6
horizon: 10000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
real: {time_scale: 100, parameters: 1500, stall_timeout: 1s, heed_unreachable: true}
workers:
`)
	for id := range workers {
		fmt.Fprintf(&text, "  - {id: %d, inner_step_mean: 1000}\n", id)
	}
	s, err := scenarios.Parse("world.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWorld plays a run without faults.
func TestWorld(t *testing.T) {
	for _, name := range scenarios.PolicyNames {
		t.Run(name, func(t *testing.T) {
			err := memnet.TryBubble(t, func(t *testing.T) {
				w := newWorld(t, worldScenario(t, 4))
				sum, events := w.play(name, time.Hour)
				if !sum.Complete || len(sum.Evicted)+len(sum.Sidelined) > 0 || len(w.failed) > 0 {
					t.Errorf("complete %v, evicted %v, sidelined %v, %q", sum.Complete, sum.Evicted, sum.Sidelined, w.failed)
				}
				if err := checkLineage(w.scenario, events); err != nil {
					t.Error(err)
				}
				var states int
				for _, e := range events {
					if e.Type == record.State {
						states++
					}
				}
				if want := w.scenario.TargetOuterSteps; states != want || !slices.Equal(sum.Rounds[want-1].Participants, []policy.ID{0, 1, 2, 3}) {
					t.Errorf("%d states compared, want %d; rounds %+v", states, want, sum.Rounds)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDilation: whatever the dilation, the same is decided, and takes as long in
// scenario time, while the clock shows so many times as much. A worker that gets
// slow, the heartbeats of one that dies and the deadlines of the policy stretch
// alike; what QUIC waits for by its own constants is the rest.
func TestDilation(t *testing.T) {
	t.Parallel()
	type outcome struct {
		decisions string
		wall      policy.Time
		took      time.Duration
	}
	of := func(dilation float64) (o outcome) {
		err := memnet.TryBubble(t, func(t *testing.T) {
			s := worldScenario(t, 5)
			s.Real.Parameters, s.Real.Dilation = 150_000, dilation
			rate, delay := shaping.Rate(10_000_000), shaping.Duration(10*time.Millisecond)
			s.Real.Links.Default = shaping.Properties{
				Access: shaping.Access{RateUp: &rate, RateDown: &rate}, Path: shaping.Path{OneWayDelay: &delay},
			}
			w := newWorld(t, s)
			w.onEvent = func(e record.Event) {
				if e.Type == record.OuterStep && e.Round == 1 {
					w.command(3, Command{Op: OpSlow, Factor: 10, At: 1})
				}
				if e.Type == record.OuterStep && e.Round == 4 {
					w.excuse(2)
					w.crash(2)
				}
			}
			began := time.Now()
			sum, events := w.play(scenarios.Straggler, 10*time.Hour)
			if !sum.Complete || sum.Dilation != dilation || len(w.failed) > 0 {
				t.Errorf("dilation %g: complete %v, dilation %g, %q", dilation, sum.Complete, sum.Dilation, w.failed)
			}
			if err := checkLineage(s, events); err != nil {
				t.Errorf("dilation %g: %v", dilation, err)
			}
			var decisions strings.Builder
			for _, m := range slices.Concat(sum.Sidelined, sum.Evicted) {
				fmt.Fprintf(&decisions, " %d:w%d %s", m.Round, m.ID, m.Reason)
			}
			for _, r := range sum.Rounds {
				fmt.Fprint(&decisions, " ", r.Participants)
			}
			o = outcome{decisions.String(), sum.WallClock, time.Since(began)}
		})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	plain := of(1)
	dilations := []float64{2, 8, 16}
	if testing.Short() {
		dilations = dilations[:1]
	}
	for _, x := range dilations {
		got := of(x)
		if wall := float64(got.wall) / float64(plain.wall); got.decisions != plain.decisions || wall < 0.98 || wall > 1.02 {
			t.Errorf("dilated %g times: %v of scenario time,%s; not dilated %v,%s", x, got.wall, got.decisions, plain.wall, plain.decisions)
		}
		if slow := float64(got.took) / float64(plain.took); slow < 0.8*x || slow > 1.1*x {
			t.Errorf("dilated %g times: the clock showed %v, not dilated %v", x, got.took, plain.took)
		}
		t.Logf("dilated %g times: %d µs of scenario time, %v by the clock", x, got.wall, got.took)
	}
	t.Logf("not dilated: %d µs of scenario time, %v by the clock;%s", plain.wall, plain.took, plain.decisions)
}

// TestStalenessWeight: a worker is late again and again. What it comes to is
// added to its next contribution with the weight, once, and all ranks have the
// same bytes.
func TestStalenessWeight(t *testing.T) {
	for _, weight := range []float64{0, 0.5, 1} {
		err := memnet.TryBubble(t, func(t *testing.T) {
			s := worldScenario(t, 4)
			s.TargetOuterSteps = 20
			straggler(s).FinishSteps, straggler(s).SidelineLimit = true, 20
			s.Policy.StalenessWeight = weight
			w := newWorld(t, s)
			w.onEvent = func(e record.Event) {
				if e.Type == record.OuterStep {
					switch e.Round % 5 { // two rounds are too short for it, and then it comes in time
					case 2:
						w.command(3, Command{Op: OpSlow, Factor: 1.7, At: 1})
					case 4:
						w.command(3, Command{Op: OpRestore, At: 1})
					}
				}
			}
			sum, events := w.play(scenarios.Straggler, time.Hour)
			if !sum.Complete || len(sum.Evicted)+len(w.failed) > 0 {
				t.Fatalf("complete %v, evicted %v, %q", sum.Complete, sum.Evicted, w.failed)
			}
			added := strings.Count(w.logs.String(), "this worker adds a late contribution")
			if len(sum.Sidelined) < 3 || len(sum.Rejoined) < 3 || (added >= 3) != (weight > 0) {
				t.Errorf("weight %g: sidelined %v, rejoined %v, %d late contributions added", weight, sum.Sidelined, sum.Rejoined, added)
			}
			if err := checkLineage(s, events); err != nil {
				t.Errorf("weight %g: %v", weight, err)
			}
			for _, other := range []float64{0, 0.5, 1} { // else the check says nothing
				s.Policy.StalenessWeight = other
				if other != weight && checkLineage(s, events) == nil {
					t.Errorf("the losses with the weight %g are those with %g", weight, other)
				}
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}
