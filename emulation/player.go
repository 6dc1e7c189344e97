//go:build linux

package emulation

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"testbed/allreduce"
	"testbed/emulation/cluster"
	"testbed/emulation/linkcheck"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/process"
	"testbed/internal/errs"
	"testbed/internal/lines"
	"testbed/internal/steady"
	"testbed/node"
	"testbed/node/identity"
	"testbed/policy"
	"testbed/policy/program"
	"testbed/record"
)

// Files of the run directory.
const (
	// LinkCheckFile holds the measurements of the links before the run.
	LinkCheckFile = "linkcheck.json"
	// UsageFile holds the processes' use of the machine over time: lines of
	// emulation.Usage.
	UsageFile = "usage.jsonl"
	// HostsFile holds the cluster.Record of a run over several hosts.
	HostsFile = "hosts.json"
)

const (
	// endPatience limits how long workers may take to end after the run.
	endPatience = 5 * time.Second
	// lossPatience is endPatience for workers that train. They compute the
	// losses that are still due, at the lowest priority.
	lossPatience = 2 * time.Minute
	// qlogEndPatience is endPatience for workers with qlog files to end: first
	// they hang up (2 s) and close the ring, waiting for a dead peer's streams (5
	// s).
	qlogEndPatience = 10*time.Second + process.QlogPatience
)

// player is a run of the scenario in the sandbox's init.
type player struct {
	spec    scenarioSpec
	s       *network.Supervisor
	network *network.Network
	hosts   *cluster.Hosts
	faults  *network.LinkFaults
	clock   clock

	monitor *monitor.Monitor
	links   *monitor.Links    // nil before the run has begun
	queues  *monitor.QueueLog // nil likewise

	coordinator coordinator
	store       store
	workers     map[string]*worker               // last process of each worker, by name
	specs       map[policy.ID]process.WorkerSpec // spec of each worker's next process
	slowed      map[policy.ID]float64            // current factors of Slow
	meter       monitor.Meter                    // processor time of the nodes
	keeping     sync.WaitGroup                   // checkpoints on their way to the run directory
	early       []earlyEvent                     // waiting events of workers
	over        bool                             // the coordinator has recorded the end of the run
}

// RunScenario is Play and Resume in the sandbox.
func RunScenario(s *network.Supervisor, raw json.RawMessage) (err error) {
	p := &player{s: s, workers: map[string]*worker{}, specs: map[policy.ID]process.WorkerSpec{}, slowed: map[policy.ID]float64{}, meter: monitor.Meter{}}
	if err := json.Unmarshal(raw, &p.spec); err != nil {
		return fmt.Errorf("internal error: parsing the sandbox's job, a run: %w", err)
	}
	p.clock.scenario = p.spec.Scenario
	algorithm, _ := allreduce.ParseAlgorithm(p.spec.Scenario.Reduction.Algorithm) // the scenario is valid
	p.monitor = monitor.New(p.spec.Scenario.InnerSteps, algorithm)
	if err := p.keepUsage(); err != nil {
		return err
	}
	if err := p.connectHosts(); err != nil {
		return err
	}
	if p.network, err = s.BringUp(p.spec.Scenario.Plan, p.spec.Scenario.Slowdown(), p.spec.Links, p.monitor.Routed); err != nil {
		return err
	}
	p.faults = p.network.LinkFaults(p.spec.Scenario.Faults)
	if err := p.checkLinks(); err != nil {
		return err
	}
	if err := p.startNodes(); err != nil {
		return err
	}
	// Nothing can end without these processes.
	s.WatchSilence(func() []*network.Child { return []*network.Child{p.coordinator.child, p.network.Router()} })
	// The coordinator ends when it has recorded the end of the run.
	if err := s.HandleUntil(p.coordinator.gone); err != nil {
		return err
	}
	return p.finish()
}

// keepUsage writes down the usage of all processes.
func (p *player) keepUsage() error {
	name := p.s.Dir.Path(UsageFile)
	file, err := lines.Append(name)
	if err != nil {
		return err
	}
	before := 0.0 // duration of a resumed run before its death
	if err := lines.Read(file, "usage", func(_ int, _ []byte, u *network.Usage) error {
		before = max(before, u.Seconds)
		return nil
	}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	out, began, full := json.NewEncoder(file), time.Now(), false
	p.s.OnUsage = func(u network.Usage) {
		u.Seconds = before + time.Since(began).Seconds()
		full = full || out.Encode(u) != nil // a full disk shows in the record; nothing may follow half a line
	}
	p.s.WatchUsage()
	p.s.OnStall = func(process string, stood time.Duration) { p.monitor.Stalled(process, steady.Now(), stood) }
	p.s.WatchStalls()
	return nil
}

// checkLinks measures the round trips that the run depends on.
func (p *player) checkLinks() error {
	begin := time.Now()
	checked, err := linkcheck.Check(p.s, p.hosts, p.network, p.spec.Scenario.IDs(), p.spec.Scenario.Reduction)
	if err != nil {
		return err
	}
	p.coordinator.spec.Ways = checked.Ways
	if err := p.s.Dir.WriteJSON(LinkCheckFile, checked.Report); err != nil {
		return err
	}
	for _, pair := range checked.Pairs {
		p.monitor.Pair(pair)
	}
	if checked.Wrong > 0 {
		p.s.Tell("measured %s, %d of them NOT AS PLANNED; see %s", errs.Count(len(checked.Found), "round trip"), checked.Wrong, p.s.Dir.Path(LinkCheckFile))
	} else {
		p.s.Tell("measured %s in %.1f s, all as planned", errs.Count(len(checked.Found), "round trip"), time.Since(begin).Seconds())
	}
	return nil
}

func (p *player) startNodes() error {
	authority, err := identity.NewAuthority()
	if err != nil {
		return err
	}
	credentials, err := authority.Issue(policy.CoordinatorNode)
	if err != nil {
		return err
	}
	addr := p.network.Addr(policy.CoordinatorNode)
	p.coordinator.spec = process.CoordinatorSpec{
		CoordinatorSettings: node.NewCoordinatorSettings(p.spec.Scenario), Links: string(p.network.Backend), Addr: addr, Credentials: credentials,
		Ways: p.coordinator.spec.Ways, Name: p.spec.Name, Reported: p.spec.Reported, Resume: p.spec.Resume,
	}
	if own, is := p.coordinator.spec.Policy.Policy.(*program.Policy); is {
		p.coordinator.spec.Policy.Policy = own.Logged(p.s.Dir.Log("policy"))
	}
	if err := p.startCoordinator(); err != nil {
		return err
	}
	if err := p.s.Await(network.StartupPatience, "the coordinator to start", func() bool { return p.coordinator.child.Ready }); err != nil {
		return err
	}
	if err := p.startStore(authority); err != nil {
		return err
	}
	shortPaths := p.network.Plan.ShortPaths(p.spec.Scenario.WorkerNodes(), allreduce.ShortRTT)
	for _, w := range p.spec.Scenario.Workers {
		name := w.ID.Node()
		if credentials, err = authority.Issue(name); err != nil {
			return err
		}
		p.specs[w.ID] = process.WorkerSpec{
			WorkerSettings: node.NewWorkerSettings(p.spec.Scenario, w, p.spec.Incarnations[w.ID]), Credentials: credentials,
			Addr: p.network.Addr(name), Coordinator: addr, ShortPaths: shortPaths, Name: p.spec.Name,
			Trainer: trainerOf(p.spec.Scenario, p.s.Dir, p.s.Dir.Path(resumeDir)),
		}
		if p.isGone(w.ID) {
			continue
		}
		if err := p.startWorker(w.ID); err != nil {
			return err
		}
	}
	patience := p.patient(network.StartupPatience)
	if t := p.spec.Scenario.Train; t.Foreign() {
		patience += 2 * t.Limit() // one process after the other, if a worker also has the validating one
	}
	if err := p.s.AwaitAll(patience, "all nodes to start", func() []string {
		starting := p.names(func(w *worker) bool { return !w.child.Ready && !w.child.Ended })
		if c := p.coordinator.child; !c.Ready && !c.Ended {
			starting = append(starting, policy.CoordinatorNode)
		}
		return starting
	}); err != nil {
		return err
	}
	p.s.Tell("the coordinator and %s are up", errs.Count(len(p.spec.Scenario.Workers), "worker"))
	for _, w := range p.spec.Scenario.Workers {
		if p.isFirst(w) {
			p.command(w.ID, node.Command{Op: node.OpJoin})
		}
	}
	return p.s.Await(p.patient(network.StartupPatience), "the first workers to join", p.clock.running)
}

// patient converts a real time to the machine's clock, at least the plan's
// patience.
func (p *player) patient(d time.Duration) time.Duration {
	return p.spec.Scenario.OnClock(max(d, p.spec.Scenario.Patience))
}

// startChild starts a node. It leaves qlog files if requested.
func (p *player) startChild(c network.ChildSpec) (*network.Child, error) {
	c.Watched = true
	if p.spec.Qlog {
		dir, err := process.OpenQlog(p.qlogDir(c.Name))
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", c.Name, err)
		}
		defer dir.Close()
		c.Files, c.FileNames = append(c.Files, dir), append(c.FileNames, process.Qlog)
	}
	ended := c.OnEnd
	c.OnEnd = func(child *network.Child, reason string) error {
		if p.spec.Qlog {
			if err := process.TrimQlog(p.qlogDir(c.Name)); err != nil {
				p.s.Tell("the qlog files of %s may be cut off: %v", c.Name, err)
			}
		}
		return ended(child, reason)
	}
	return p.network.StartNode(c)
}

func (p *player) qlogDir(name string) string {
	return p.s.Dir.Path(filepath.Join(record.QlogDir, name))
}

// record passes an event on for the record.
func (p *player) record(e record.Event) error { return p.s.Hand(playerNote{Event: &e}) }

// heard takes an event of a node. Processes do not wait for each other, so a
// worker's event may arrive before the coordinator's events that caused it;
// after is their number. It then waits for them, so that the record has causes
// first.
func (p *player) heard(after int, e *record.Event) error {
	known := &p.coordinator.spec.Reported
	if after > *known {
		p.early = append(p.early, earlyEvent{after, e})
		return nil
	}
	if err := p.happened(e); err != nil || e.Seq <= *known {
		return err
	}
	*known = e.Seq
	early := p.early
	p.early = nil
	for _, e := range early { // in the order of their arrival
		if err := p.heard(e.after, e.event); err != nil {
			return err
		}
	}
	return nil
}

type earlyEvent struct {
	after int
	event *record.Event
}

// happened handles an event of a node, in its order.
func (p *player) happened(e *record.Event) error {
	if err := p.record(*e); err != nil {
		return err
	}
	if len(p.workers) == 0 {
		return nil // the journal has it from the life before, which was killed before it was recorded
	}
	switch e.Type {
	case record.RunStart, record.RunResume:
		for _, w := range p.workers {
			w.member = w.member || slices.Contains(e.IDs, w.id) // a worker that goes on does not join again
		}
		p.begin(e)
	case record.OuterStep:
		p.monitor.EndRound(e.Round, len(e.Participants), p.sample(p.links.Round()))
		p.network.AskCount()
		return p.upload(p.store.queue.OuterStep(p.spec.Scenario.Upload, e.Round, p.spec.Scenario.TargetOuterSteps, e.Participants))
	case record.Sideline:
		p.monitor.LeftOut(e.Node, e.Round, false, steady.Now())
	case record.Evict:
		if e.Reason.Rule == policy.RuleStraggler {
			p.monitor.LeftOut(e.Node, e.Round, true, steady.Now())
		}
		if gone := p.workers[e.Node]; gone != nil && e.Reason.Rule != policy.RuleReplaced { // otherwise it was the process before
			gone.excused, gone.member = true, false
			gone.left = gone.left || e.Reason.Rule == policy.RuleLeave
			gone.gaveUp = e.Reason.Rule == policy.RuleGaveUp
		}
	case record.Join:
		if w := p.workers[e.Node]; w != nil && w.incarnation == e.Incarnation {
			w.member = true
		}
	case record.RunEnd:
		p.over = true
		p.monitor.Ended(steady.Now())
		p.endWorkers()
	}
	return nil
}

// begin begins or resumes the run, at the event that marks this.
func (p *player) begin(e *record.Event) {
	p.coordinator.spec.Resume = nil
	p.clock.begin(e.T, e.Type == record.RunResume)
	p.monitor.Begin(p.sample(nil))
	if p.hosts.Several() {
		p.network.AskCount() // so that other hosts begin, too
	}
	var err error
	if p.queues, err = monitor.NewQueueLog(p.s.Dir, p.network.Kernel.Nodes(), p.clock.at); err != nil {
		p.s.Tell("the run does not record the queues of links: %v", err)
		p.queues = nil
	}
	p.links = monitor.WatchLinks(p.network, p.network.Kernel.Nodes(), p.queues)
	p.schedule()
	horizon := p.spec.Scenario.Horizon
	time.AfterFunc(time.Until(p.clock.due(horizon))+p.patient(network.StartupPatience), func() {
		p.s.Post(func() error {
			if p.over {
				return nil
			}
			return fmt.Errorf("the coordinator did not end the run within %v after the horizon of %v; see %s", p.patient(network.StartupPatience).Round(time.Second), time.Duration(horizon)*time.Microsecond, p.s.Log(policy.CoordinatorNode))
		})
	})
}

// sample is the monitor's sample of this moment.
func (p *player) sample(busy []monitor.BusyLink) monitor.Sample {
	waits := map[string]time.Duration{}
	for name, w := range p.workers {
		if !w.child.Ended && w.child.Process != nil { // otherwise another host observes it
			waits[name] = monitor.RunnableWait(w.child.Process.Pid())
		}
	}
	return monitor.Sample{At: steady.Now(), Machine: monitor.ReadMachine(), Waits: waits, Nodes: p.use(), Busy: busy}
}

// use is what the workers' nodes on this host have sent and computed so far.
func (p *player) use() map[string]monitor.NodeUse {
	all := map[string]monitor.NodeUse{}
	for k, name := range p.network.Kernel.Nodes() {
		w := p.workers[name]
		if w == nil {
			continue
		}
		load, err := p.network.UpLoad(k)
		if err != nil {
			continue // the record lacks the node
		}
		pid := 0
		if !w.child.Ended && w.child.Process != nil {
			pid = w.child.Process.Pid()
		}
		all[name] = monitor.NodeUse{Sent: load.Bytes, Processor: p.meter.Read(name, pid)}
	}
	return all
}

// finish waits for the workers, stops the router and delivers the verdict.
func (p *player) finish() error {
	if err := p.awaitWorkers(); err != nil {
		return err
	}
	busy := p.links.Stop()
	router, err := p.network.TakeDown()
	if err != nil {
		return err
	}
	excess, err := p.netemExcess()
	if err != nil {
		return err
	}
	note := p.monitor.Conclude(p.sample(busy), router, excess)
	if note.Drops, err = p.network.Drops(router); err != nil {
		return err
	}
	lost, err := p.queues.Close()
	if err != nil {
		return err
	}
	if lost > 0 {
		p.s.Tell("%s reached its size limit, so %s of queues could not be recorded", record.QueuesFile, errs.Count(lost, "later change"))
	}
	if err := p.s.Dir.WriteJSON(record.FidelityFile, note); err != nil {
		return err
	}
	verdict := note.Verdict
	if err := p.s.Hand(playerNote{Fidelity: &verdict, Underlay: note.Measured.Underlay, Drops: note.Drops}); err != nil {
		return err
	}
	p.keeping.Wait()
	if err := p.keepModel(); err != nil {
		p.s.Tell("the trained model could not be saved: %v", err)
	}
	return nil // the user's process tidies the run directory, when all others are gone
}

// netemExcess counts the packets that the kernel lost against the plan.
func (p *player) netemExcess() (uint64, error) {
	counts, err := p.network.Kernel.Counters()
	if err != nil {
		return 0, err
	}
	if _, faults := p.spec.Scenario.Faults.Next(-1); faults { // a planned cut loses packets, and netem does not separate them from other losses
		return 0, nil
	}
	return monitor.NetemExcess(p.network.Plan, counts), nil
}
