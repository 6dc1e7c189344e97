//go:build linux

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"testbed/node"
	"testbed/node/identity"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

// partPatience bounds how long workers may take to end after the run.
const partPatience = 5 * time.Second

// maxDeaths is how many deaths of the coordinator that nobody asked for a run
// bears. What kills it so often will do so again.
const maxDeaths = 3

// play is a run of the scenario, as the sandbox's init sees it.
type play struct {
	*inside
	monitor monitor
	used    func(process string, u Usage)

	delays node.RingDelays // what rings are ordered by

	began time.Time // when the run started; zero before
	// boss is the spec of the coordinator; the next one gets it too.
	boss  coordinatorSpec
	since policy.Time // where it goes on after its death, else before all times
	away  bool        // the coordinator is dead, and the next one has yet to start
	back  time.Time   // when it is to start
	// deaths of the coordinator that nobody asked for.
	deaths int
	// keeping are checkpoints on their way to the run directory.
	keeping sync.WaitGroup
	over    bool // the coordinator has recorded the end of the run
}

func (p *play) run() error {
	p.onReport, p.onEnd = p.report, p.nodeEnded
	if err := p.keepUsage(); err != nil {
		return err
	}
	if err := p.bringUp(); err != nil {
		return err
	}
	if err := p.checkLinks(); err != nil {
		return err
	}
	go p.hearMeddling()
	if err := p.startNodes(); err != nil {
		return err
	}
	// The coordinator ends when it has recorded the end of the run.
	for p.away || !p.nodes[scenarios.Coordinator].ended {
		if err := p.handle(<-p.inbox); err != nil {
			return err
		}
	}
	return p.finish()
}

func (p *play) startNodes() error {
	authority, err := identity.NewAuthority()
	if err != nil {
		return err
	}
	issue := func(name string) (identity.Credentials, error) { return authority.Issue(name) }
	credentials, err := issue(scenarios.Coordinator)
	if err != nil {
		return err
	}
	coordinator := p.addr(scenarios.Coordinator)
	p.boss = coordinatorSpec{
		Scenario: p.Scenario, Policy: p.Run.Policy, Links: string(p.backend), Addr: coordinator, Credentials: credentials,
		Delays: p.delays, Name: p.Run.Name, Reported: p.Run.Reported, Resume: p.Run.Resume,
	}
	if err := p.startCoordinator(); err != nil {
		return err
	}
	if err := p.await("the coordinator", func() bool { return p.nodes[scenarios.Coordinator].ready }); err != nil {
		return err
	}
	near := p.plan.Near(p.Scenario.Nodes()[1:]) // without the coordinator
	for _, w := range p.Scenario.Workers {
		if slices.Contains(p.Run.Gone, w.ID) {
			continue
		}
		name := scenarios.NodeName(w.ID)
		if credentials, err = issue(name); err != nil {
			return err
		}
		if err := p.startWorker(workerSpec{
			Scenario: p.Scenario, ID: w.ID, Credentials: credentials,
			Addr: p.addr(name), Coordinator: coordinator, Near: near, Name: p.Run.Name,
			Restore: p.Run.Resume != nil && slices.Contains(p.Run.Resume.Holders, w.ID),
		}); err != nil {
			return err
		}
	}
	ready := func() bool {
		for _, c := range p.nodes {
			if !c.ready && !c.ended {
				return false
			}
		}
		return true
	}
	if err := p.await("the workers", ready); err != nil {
		return err
	}
	p.tell(note{Stage: fmt.Sprintf("coordinator and %d workers are up", len(p.Scenario.Workers))})
	for _, w := range p.Scenario.Workers {
		if p.isFirst(w) {
			p.command(w.ID, node.Command{Op: node.OpJoin})
		}
	}
	return p.await("the first workers to join", func() bool { return !p.began.IsZero() })
}

// isFirst says whether the run begins, or goes on, with this worker.
func (p *play) isFirst(w scenarios.Worker) bool {
	if r := p.Run.Resume; r != nil {
		return slices.Contains(r.Holders, w.ID)
	}
	return w.JoinAt == p.Scenario.FirstJoin()
}

// startCoordinator starts the first coordinator, or another one in its place.
func (p *play) startCoordinator() error {
	journal, err := os.OpenFile(p.Dir.Path(filepath.Join(resumeDir, journalFile)), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("starting the coordinator: %w", err)
	}
	defer journal.Close()
	_, err = p.start(scenarios.Coordinator, p.ns(scenarios.Coordinator), spec{Coordinator: &p.boss}, nil, journal)
	return err
}

func (p *play) startWorker(w workerSpec) error {
	name := scenarios.NodeName(w.ID)
	memory, err := newMemory(name)
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	files := []*os.File{memory}
	if w.Restore {
		checkpoint, err := os.Open(p.Dir.Path(filepath.Join(resumeDir, checkpointName(p.Run.Resume.OuterSteps))))
		if err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
		defer checkpoint.Close()
		files = append(files, checkpoint)
		residual, err := os.Open(p.Dir.Path(filepath.Join(resumeDir, residualName(p.Run.Resume.OuterSteps, name))))
		if w.Residual = err == nil; w.Residual { // else the worker says that it goes on without
			defer residual.Close()
			files = append(files, residual)
		}
	}
	c, err := p.start(name, p.ns(name), spec{Worker: &w}, workerEnv(len(p.Scenario.Workers)), files...)
	if err != nil {
		return err
	}
	c.id, c.memory = w.ID, memory
	return nil
}

// command sends a word to a worker. One that is dead does not hear it.
func (p *play) command(id policy.ID, c node.Command) {
	if to := p.nodes[scenarios.NodeName(id)]; to != nil {
		_ = to.words.Encode(c)
	}
}

func (p *play) report(c *child, r nodeReport) {
	if r.Lateness != nil {
		p.monitor.timer(*r.Lateness)
	}
	if r.Usage != nil {
		p.used(c.name, *r.Usage)
	}
	if r.Paused {
		p.stop(c)
	}
	if r.Router != nil {
		p.monitor.routed(r.Router)
	}
	if r.Saved != nil {
		p.keep(c, *r.Saved)
	}
	if e := r.Event; e != nil {
		p.boss.Reported = max(p.boss.Reported, e.Seq)
		p.tell(note{Event: e})
		switch e.Type {
		case runlog.RunStart, runlog.RunResume:
			p.boss.Resume = nil
			p.began = time.Now().Add(-p.Scenario.RealDuration(e.T - p.Scenario.FirstJoin()))
			p.since = -1
			if e.Type == runlog.RunResume {
				p.since = e.T
			}
			p.monitor.begin(p.Scenario.InnerSteps, p.Scenario.Real.AllReduce.Algorithm, p.waits)
			queues, err := newQueueLog(p.Dir, p.net.Nodes(), p.scenarioTimeAt)
			if err != nil {
				p.tell(note{Stage: err.Error()}) // the record lacks it, and that is all
				queues = nil
			}
			p.monitor.busy = watchBusyLinks(p.net, queues)
			p.schedule()
		case runlog.OuterStep:
			p.monitor.endRound(e.Round, len(e.Participants))
			if router := p.nodes[routerName]; router != nil {
				_ = router.words.Encode(routerWord{}) // one that has died is noticed elsewhere
			}
		case runlog.Evict:
			if gone := p.nodes[e.Node]; gone != nil {
				gone.excused, gone.member = true, false
			}
		case runlog.Join:
			if new := p.nodes[e.Node]; new != nil {
				new.member = true
			}
		case runlog.RunEnd:
			p.over = true
			p.endWorkers()
		}
	}
}

// endWorkers has the workers that are stopped go on, to hear that the run is
// over, and ends those that nobody will tell.
func (p *play) endWorkers() {
	for name, c := range p.nodes {
		switch {
		case c.service || name == scenarios.Coordinator || c.ended:
		case !c.member:
			c.process.Kill()
		case c.paused || c.pausing:
			p.resume(c)
		}
	}
}

// waits is how long each worker has waited for a processor so far.
func (p *play) waits() map[string]time.Duration {
	all := map[string]time.Duration{}
	for name, c := range p.nodes {
		if !c.service && name != scenarios.Coordinator && !c.ended {
			all[name] = runnableWait(c.process.Pid())
		}
	}
	return all
}

// nodeEnded judges the end of a node's process.
func (p *play) nodeEnded(c *child, reason string) error {
	switch {
	case c.service:
		if r := c.lastErr; r != "" {
			return fmt.Errorf("%s: %s", c.name, r)
		}
	case c.name == scenarios.Coordinator && (p.away || p.outlive(c, reason)):
		time.AfterFunc(time.Until(p.back), func() {
			p.inbox <- func() error {
				p.away = false
				return p.startCoordinator()
			}
		})
	case c.name == scenarios.Coordinator:
		if !p.over || c.lastErr != "" {
			again := ""
			if p.deaths > 0 {
				again = fmt.Sprintf(", after %d others that it was replaced for", p.deaths)
			}
			return fmt.Errorf("the coordinator died during the run: %s%s; see %s", reason, again, p.log(c.name))
		}
	case p.began.IsZero() && !p.anyFirst():
		return fmt.Errorf("worker %s died during start-up, and none is left to begin: %s; see %s", c.name, reason, p.log(c.name))
	case !p.over && !c.excused:
		p.monitor.failures = append(p.monitor.failures, fmt.Sprintf("worker %s died of itself: %s", c.name, reason))
		p.tell(note{Stage: fmt.Sprintf("worker %s died of itself: %s", c.name, reason)})
	}
	return nil
}

// outlive says whether the run goes on with another coordinator although nobody
// asked for the end of this one. One that gave up for a reason would do so again
// with the same journal.
func (p *play) outlive(c *child, reason string) bool {
	if p.over || p.began.IsZero() || c.lastErr != "" || p.deaths == maxDeaths {
		return false
	}
	p.deaths++
	p.away, p.back = true, time.Now()
	p.tell(note{Event: &runlog.Event{T: p.now(), Type: runlog.CoordinatorCrash, Cause: reason}})
	p.monitor.failures = append(p.monitor.failures, "the coordinator died of itself: "+reason)
	return true
}

// anyFirst says whether a worker is alive that the run can begin with.
func (p *play) anyFirst() bool {
	return slices.ContainsFunc(p.Scenario.Workers, func(w scenarios.Worker) bool {
		c := p.nodes[scenarios.NodeName(w.ID)]
		return w.JoinAt == p.Scenario.FirstJoin() && (c == nil || !c.ended)
	})
}

// finish waits for the workers, stops the router and hands the measurements in.
func (p *play) finish() error {
	timeout := time.AfterFunc(partPatience, func() {
		p.inbox <- func() error {
			for _, c := range p.nodes {
				if !c.service && !c.ended {
					c.process.Kill()
				}
			}
			return nil
		}
	})
	defer timeout.Stop()
	ended := func() bool {
		for _, c := range p.nodes {
			if !c.service && !c.ended {
				return false
			}
		}
		return true
	}
	if err := p.await("the workers to end", ended); err != nil {
		return err
	}
	if err := p.takeDown(); err != nil {
		return err
	}
	counts, err := p.net.Counters()
	if err != nil {
		return err
	}
	var excess uint64
	if _, faults := p.Scenario.NextLinkFault(-1); !faults { // a cut loses packets by plan, and netem counts all losses alike
		excess = netemExcess(p.plan, counts)
	}
	m := p.monitor.conclude(p.routed, excess)
	lost, err := p.monitor.busy.endQueues()
	if err != nil {
		return err
	}
	if lost > 0 {
		p.tell(note{Stage: fmt.Sprintf("%s is full: %d later changes of queues are not in it", runlog.QueuesFile, lost)})
	}
	if err := p.Dir.WriteJSON(FidelityFile, p.monitor.record(m)); err != nil {
		return err
	}
	p.tell(note{Measured: &m})
	p.keeping.Wait()
	if err := os.RemoveAll(p.Dir.Path(resumeDir)); err != nil {
		return fmt.Errorf("tidying the run directory: %w", err)
	}
	return nil
}
