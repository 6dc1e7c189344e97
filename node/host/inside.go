//go:build linux

package host

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"testbed/node"
	"testbed/node/host/sandbox"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping"
	"testbed/shaping/kernel"
)

const (
	// startupPatience bounds how long the nodes may take to come up; emulated
	// machines are slow.
	startupPatience = 2 * time.Minute
	// partPatience bounds how long workers may take to end after the run.
	partPatience = 5 * time.Second
)

// RunInside is what the binary does as the init of a sandbox. It returns when
// the run is over; the kernel then removes all that is left.
func RunInside() error {
	// Links are made in the namespace of the thread that makes them.
	runtime.LockOSThread()
	box, err := sandbox.Init()
	if err != nil {
		return err
	}
	notes := json.NewEncoder(os.NewFile(sandbox.FirstFile+1, "notes"))
	i := &inside{
		box: box, tell: func(n note) { _ = notes.Encode(n) }, // nobody hears: the lifeline ends us
		nodes: map[string]*child{}, inbox: make(chan any, 1024),
	}
	if err := i.run(); err != nil {
		n := note{Error: err.Error()}
		var unsupported *kernel.UnsupportedError
		if errors.As(err, &unsupported) {
			n.Error, n.Mend = fmt.Sprintf("%s: not available here: %v", unsupported.Feature, unsupported.Err), unsupported.Mend
		}
		i.tell(n)
		return err
	}
	i.tell(note{Done: true})
	return nil
}

type inside struct {
	job
	box      *sandbox.Inside
	tell     func(note)
	plan     *shaping.Plan
	backend  kernel.Backend
	network  *kernel.Network
	nodes    map[string]*child
	inbox    chan any // childReport, childEnd, func()
	measured measurements

	began time.Time // when the run started; zero before
	over  bool      // the coordinator has recorded the end of the run
}

// child is a node's process.
type child struct {
	name    string
	id      policy.ID // of a worker
	process *sandbox.Process
	words   *json.Encoder
	wordsTo *os.File
	ready   bool
	ended   bool
	excused bool // it is meant to end: crashed, left or evicted
	lastErr string
}

type childReport struct {
	child  *child
	report nodeReport
}

type childEnd struct {
	child  *child
	status sandbox.Status
}

func (i *inside) run() error {
	if err := json.NewDecoder(bufio.NewReader(os.NewFile(sandbox.FirstFile, "job"))).Decode(&i.job); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	if i.Probe {
		i.probe()
		return nil
	}
	if err := i.build(); err != nil {
		return err
	}
	if err := i.startNodes(); err != nil {
		return err
	}
	if err := i.play(); err != nil {
		return err
	}
	return i.finish()
}

// build makes the network and has it read back.
func (i *inside) build() (err error) {
	if i.plan, err = i.Scenario.Plan(); err != nil {
		return err
	}
	why := ""
	if i.backend, why, err = chooseBackend(i.Links); err != nil {
		return err
	}
	begin := time.Now()
	if i.network, err = kernel.Build(i.plan, i.backend); err != nil {
		return fmt.Errorf("building the network: %w", err)
	}
	for _, name := range i.network.Nodes() {
		if err := i.box.BindNetNS(name, int(i.network.NS(name))); err != nil {
			return err
		}
	}
	differences, err := i.network.ReadBack()
	if err != nil {
		return fmt.Errorf("reading the network back: %w", err)
	}
	if len(differences) > 0 {
		return fmt.Errorf("the kernel holds something else than planned, %d differences, the first: %s", len(differences), differences[0])
	}
	i.tell(note{Stage: fmt.Sprintf("%s links (%s): %d nodes built and read back in %d ms",
		i.backend, why, len(i.plan.Nodes), time.Since(begin).Milliseconds())})
	return nil
}

// chooseBackend resolves the user's choice of links and says why.
func chooseBackend(links string) (kernel.Backend, string, error) {
	can := kernel.Probe()
	switch links {
	case LinksNetem:
		return kernel.BackendNetem, "as asked", can.Supports(kernel.BackendNetem)
	case LinksUser:
		return kernel.BackendUser, "as asked", can.Supports(kernel.BackendUser)
	}
	if can.Supports(kernel.BackendNetem) == nil {
		return kernel.BackendNetem, "the kernel has netem", nil
	}
	return kernel.BackendUser, "the kernel has no netem", can.Supports(kernel.BackendUser)
}

func (i *inside) startNodes() error {
	if i.backend == kernel.BackendUser {
		if _, err := i.start("router", -1, spec{Router: i.plan}, nil); err != nil {
			return err
		}
		if err := i.await("the router", func() bool { return i.nodes["router"].ready }); err != nil {
			return err
		}
	}
	authority, err := node.NewAuthority()
	if err != nil {
		return err
	}
	issue := func(name string) (node.Credentials, error) { return authority.Issue(name) }
	credentials, err := issue(scenarios.Coordinator)
	if err != nil {
		return err
	}
	coordinator := i.plan.Nodes[i.plan.Index(scenarios.Coordinator)].Addr.Addr()
	_, err = i.start(scenarios.Coordinator, int(i.network.NS(scenarios.Coordinator)), spec{Coordinator: &coordinatorSpec{
		Scenario: i.Scenario, Policy: i.Policy, Links: string(i.backend), Addr: coordinator, Credentials: credentials,
	}}, nil)
	if err != nil {
		return err
	}
	if err := i.await("the coordinator", func() bool { return i.nodes[scenarios.Coordinator].ready }); err != nil {
		return err
	}
	for _, w := range i.Scenario.Workers {
		name := scenarios.NodeName(w.ID)
		if credentials, err = issue(name); err != nil {
			return err
		}
		c, err := i.start(name, int(i.network.NS(name)), spec{Worker: &workerSpec{
			Scenario: i.Scenario, ID: w.ID, Credentials: credentials,
			Addr: i.plan.Nodes[i.plan.Index(name)].Addr.Addr(), Coordinator: coordinator,
		}}, workerEnv(len(i.Scenario.Workers)))
		if err != nil {
			return err
		}
		c.id = w.ID
	}
	ready := func() bool {
		for _, c := range i.nodes {
			if !c.ready {
				return false
			}
		}
		return true
	}
	if err := i.await("the workers", ready); err != nil {
		return err
	}
	i.tell(note{Stage: fmt.Sprintf("coordinator and %d workers are up", len(i.Scenario.Workers))})
	for _, w := range i.Scenario.Workers {
		if w.JoinAt == i.Scenario.FirstJoin() {
			i.command(w.ID, node.Command{Op: node.OpJoin})
		}
	}
	return i.await("the first workers to join", func() bool { return !i.began.IsZero() })
}

// workerEnv gives each worker of a crowd a single thread to run Go code on:
// many schedulers on few cores disturb each other.
func workerEnv(workers int) []string {
	if workers > 2*runtime.NumCPU() {
		return []string{"GOMAXPROCS=1"}
	}
	return nil
}

// start starts a node's process and listens to it.
func (i *inside) start(name string, ns int, s spec, env []string) (*child, error) {
	wrap := func(err error) error { return fmt.Errorf("starting %s: %w", name, err) }
	log, err := os.Create(i.Dir.Log(name))
	if err != nil {
		return nil, wrap(err)
	}
	defer log.Close()
	var theirs, ours [3]*os.File // spec, reports, words
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
	c := &child{name: name, words: json.NewEncoder(ours[2]), wordsTo: ours[2]}
	i.nodes[name] = c
	c.process, err = i.box.Start(sandbox.Command{
		Name: name, NetNS: ns, Args: []string{VerbNode}, Env: env, Files: theirs[:], Stdout: log, Stderr: log,
	})
	if err != nil {
		return nil, wrap(err)
	}
	go func() {
		_ = json.NewEncoder(ours[0]).Encode(s) // a node that died is reported by its end
		ours[0].Close()
	}()
	go func() {
		in := json.NewDecoder(bufio.NewReader(ours[1]))
		for {
			var r nodeReport
			if err := in.Decode(&r); err != nil {
				break
			}
			i.inbox <- childReport{c, r}
		}
		ours[1].Close()
		i.inbox <- childEnd{c, c.process.Wait()}
	}()
	return c, nil
}

// command sends a word to a worker. One that is dead does not hear it.
func (i *inside) command(id policy.ID, c node.Command) {
	_ = i.nodes[scenarios.NodeName(id)].words.Encode(c)
}

// await handles what comes in until done, an error, or the end of patience.
func (i *inside) await(what string, done func() bool) error {
	patience := time.NewTimer(startupPatience)
	defer patience.Stop()
	for !done() {
		select {
		case m := <-i.inbox:
			if err := i.handle(m); err != nil {
				return err
			}
		case <-patience.C:
			return fmt.Errorf("waited %v for %s in vain; see the logs in %s", startupPatience, what, i.Dir.Path(runlog.LogsDir))
		}
	}
	return nil
}

// play handles what comes in until the coordinator has ended.
func (i *inside) play() error {
	for !i.nodes[scenarios.Coordinator].ended {
		if err := i.handle(<-i.inbox); err != nil {
			return err
		}
	}
	return nil
}

func (i *inside) handle(m any) error {
	switch m := m.(type) {
	case func():
		m()
	case childReport:
		i.report(m.child, m.report)
	case childEnd:
		return i.ended(m.child, m.status)
	}
	return nil
}

func (i *inside) report(c *child, r nodeReport) {
	c.ready = c.ready || r.Ready
	if r.Error != "" {
		c.lastErr = r.Error
	}
	if r.Lateness != nil {
		i.measured.lateness = append(i.measured.lateness, *r.Lateness)
	}
	if r.RTT > 0 {
		i.measured.rtt(i.plan, c.name, r.RTT)
	}
	if r.Router != nil {
		i.measured.router(r.Router)
	}
	if e := r.Event; e != nil {
		i.tell(note{Event: e})
		switch e.Type {
		case runlog.RunStart:
			i.began, i.measured.pressure = time.Now(), cpuPressure()
			i.schedule()
		case runlog.Evict:
			if gone := i.nodes[e.Node]; gone != nil {
				gone.excused = true
			}
		case runlog.RunEnd:
			i.over = true
		}
	}
}

// ended judges the end of a node's process.
func (i *inside) ended(c *child, status sandbox.Status) error {
	c.ended = true
	c.wordsTo.Close()
	reason := status.String()
	if c.lastErr != "" {
		reason = c.lastErr
	}
	switch {
	case c.name == "router":
		if !i.over {
			return fmt.Errorf("the router died during the run: %s; see %s", reason, i.Dir.Log(c.name))
		}
	case c.name == scenarios.Coordinator:
		if !i.over || c.lastErr != "" {
			return fmt.Errorf("the coordinator died during the run: %s; see %s", reason, i.Dir.Log(c.name))
		}
	case i.began.IsZero():
		return fmt.Errorf("worker %s died during start-up: %s; see %s", c.name, reason, i.Dir.Log(c.name))
	case !i.over && !c.excused:
		i.measured.failures = append(i.measured.failures, fmt.Sprintf("worker %s died of itself: %s", c.name, reason))
		i.tell(note{Stage: fmt.Sprintf("worker %s died of itself: %s", c.name, reason)})
	}
	return nil
}

// finish waits for the workers, stops the router and hands the measurements in.
func (i *inside) finish() error {
	timeout := time.AfterFunc(partPatience, func() {
		i.inbox <- func() {
			for _, c := range i.nodes {
				if c.id >= 0 && c.name != "router" && !c.ended {
					c.process.Kill()
				}
			}
		}
	})
	defer timeout.Stop()
	all := func(yes func(*child) bool) func() bool {
		return func() bool {
			for _, c := range i.nodes {
				if !yes(c) {
					return false
				}
			}
			return true
		}
	}
	if err := i.await("the workers to end", all(func(c *child) bool { return c.ended || c.name == "router" })); err != nil {
		return err
	}
	if router := i.nodes["router"]; router != nil {
		router.wordsTo.Close()
		if err := i.await("the router to end", all(func(c *child) bool { return c.ended })); err != nil {
			return err
		}
	}
	m := i.measured.conclude(time.Since(i.began))
	i.tell(note{Measured: &m})
	return nil
}
