//go:build linux

package emulation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"testbed/emulation/network"
	"testbed/emulation/process"
	"testbed/emulation/sandbox"
	"testbed/internal/steady"
	"testbed/node"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
	"testbed/train"
)

// worker is a worker of the run, in the sandbox's init.
type worker struct {
	name        string
	id          policy.ID
	incarnation int
	child       *network.Child
	memory      *os.File // where it leaves a checkpoint

	member  bool            // of the run
	excused bool            // its end is expected: crashed, left or evicted
	pausing bool            // it has been told of its pause
	stopped time.Duration   // when it was stopped, by steady.Now
	paused  bool            // it is stopped
	awaits  []faults.Inject // injects to carry out when it continues
	fails   bool            // it has been told to give up
	left    bool            // it has been told to leave, or has left
	gaveUp  bool            // it has told the coordinator that it gives up
	returns bool            // another process begins when this one has ended
}

// command sends a worker a command. A dead worker does not receive it.
func (w *worker) command(c node.Command) { _ = w.child.Send(c) }

// command sends the worker of an id a command, if there is one.
func (p *player) command(id policy.ID, c node.Command) {
	if w := p.worker(id); w != nil {
		w.command(c)
	}
}

func (p *player) worker(id policy.ID) *worker { return p.workers[id.Node()] }

// names are the names of the workers for which so holds, sorted.
func (p *player) names(so func(*worker) bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(p.workers)) {
		if so(p.workers[name]) {
			names = append(names, name)
		}
	}
	return names
}

// isGone reports whether the worker no longer takes part in a resumed run.
func (p *player) isGone(id policy.ID) bool { return slices.Contains(p.spec.Gone, id) }

// isFirst reports whether this worker is one with which the run begins, or is
// resumed.
func (p *player) isFirst(w resolved.Worker) bool {
	if r := p.spec.Resume; r != nil {
		return slices.Contains(r.Holders, w.ID)
	}
	return w.JoinAt == p.spec.Scenario.FirstJoin()
}

// anyFirst reports whether a worker with which the run can begin is alive.
func (p *player) anyFirst() bool {
	return slices.ContainsFunc(p.spec.Scenario.Workers, func(of resolved.Worker) bool {
		w := p.worker(of.ID)
		return of.JoinAt == p.spec.Scenario.FirstJoin() && (w == nil || !w.child.Ended)
	})
}

// startWorker starts a process of a worker. In a resumed run, the first process
// begins from a checkpoint.
func (p *player) startWorker(id policy.ID) error {
	spec := p.specs[id]
	w := &worker{name: id.Node(), id: id, incarnation: spec.Incarnation}
	var err error
	if w.memory, err = network.NewMemory("checkpoints of " + w.name); err != nil {
		return fmt.Errorf("starting %s: %w", w.name, err)
	}
	files, names := []*os.File{w.memory}, []string{process.Memory}
	if r := p.spec.Resume; r != nil && !p.clock.running() && slices.Contains(r.Holders, id) {
		for name, file := range map[string]string{process.Restore: checkpointName(r.OuterSteps), process.Residual: residualName(r.OuterSteps, w.name)} {
			f, err := os.Open(p.s.Dir.Path(filepath.Join(resumeDir, file)))
			if name == process.Residual && errors.Is(err, fs.ErrNotExist) {
				continue // the worker reports that it goes on without
			}
			if err != nil {
				return fmt.Errorf("starting %s: %w", w.name, err)
			}
			defer f.Close()
			files, names = append(files, f), append(names, name)
		}
	}
	w.child, err = p.startChild(network.ChildSpec{
		Name: w.name, Kind: process.KindWorker, Spec: spec, Env: network.WorkerEnv(len(p.spec.Scenario.Workers)),
		Files: files, FileNames: names,
		OnData: func(data json.RawMessage) error { return p.reported(w, data) },
		OnEnd:  func(_ *network.Child, reason string) error { return p.workerEnded(w, reason) },
	})
	if err == nil {
		p.workers[w.name] = w
		spec.Incarnation++
		p.specs[id] = spec
	}
	return err
}

// restart begins a new process of a worker, once the process before has ended.
// The new process is as slow as the old one.
func (p *player) restart(id policy.ID) error {
	w := p.worker(id)
	switch {
	case p.over:
		return nil
	case w != nil && !w.child.Ended:
		w.returns = true
		return nil
	}
	if err := p.startWorker(id); err != nil {
		return err
	}
	now := p.clock.now()
	if factor, slowed := p.slowed[id]; slowed {
		p.command(id, node.Command{Op: node.OpSlow, At: now, Factor: factor})
	}
	p.command(id, node.Command{Op: node.OpJoin, At: now})
	w = p.worker(id)
	return p.record(record.Event{T: now, Type: record.Restart, Node: w.name, Incarnation: w.incarnation})
}

// reported handles a report of a worker.
func (p *player) reported(w *worker, data json.RawMessage) error {
	var r process.Report
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("internal error: parsing a report of %s: %w", w.name, err)
	}
	if r.Lateness != nil {
		p.monitor.Timer(w.name, r.Round, *r.Lateness)
	}
	if r.Behind > 0 {
		p.monitor.Waited(w.name, r.Round, r.Behind)
	}
	if r.Computing > 0 {
		p.monitor.Computed(r.Computing)
	}
	if r.Saved != nil {
		if err := p.keep(w, *r.Saved); err != nil {
			return err
		}
	}
	if r.Paused {
		if err := p.stop(w); err != nil {
			return err
		}
	}
	if r.Event != nil {
		return p.heard(r.After, r.Event)
	}
	return nil
}

// inOrder is the end of a process that was told to end. The coordinator tells
// the worker, and the event about it may come later.
var inOrder = sandbox.Status{}.String()

// workerEnded handles the end of a worker's process.
func (p *player) workerEnded(w *worker, reason string) error {
	switch {
	case !p.clock.running() && !p.anyFirst():
		return fmt.Errorf("worker %s ended during start-up, and no worker is left to start the run: %s; see %s", w.name, reason, p.s.Log(w.name))
	case !p.over && !w.excused && reason != inOrder || p.trainerFailed(w):
		did := "died"
		if w.child.Failure != "" {
			did = "gave up"
		}
		line := fmt.Sprintf("worker %s %s unexpectedly: %s", w.name, did, reason)
		p.monitor.Failed(line)
		p.s.Tell("%s; see %s", line, p.s.Log(w.name))
	}
	if w.returns {
		return p.restart(w.id)
	}
	if !p.clock.running() {
		_ = p.coordinator.child.Send(w.id) // a dead one waits for nobody
	}
	return nil
}

// trainerFailed reports whether a worker gave up because of its program. It has
// told the coordinator, and was evicted for it. The run may be over by now.
func (p *player) trainerFailed(w *worker) bool {
	return p.spec.Scenario.Train.Foreign() && w.child.Failure != "" && !w.fails
}

// endWorkers continues stopped workers, so that they learn of the end of the
// run. It ends those that nobody will tell. A worker that is leaving has qlog
// files to end, and one that gave up has still to report why.
func (p *player) endWorkers() {
	if !p.store.gone() {
		p.store.child.Kill()
	}
	for _, w := range p.workers {
		switch {
		case w.child.Ended || w.left && p.spec.Qlog || w.gaveUp:
		case !w.member:
			w.child.Kill()
		case w.paused || w.pausing:
			p.resume(w)
		}
	}
}

// awaitWorkers waits until all have ended, and ends them after a time.
func (p *player) awaitWorkers() error {
	patience := p.patient(endPatience)
	switch {
	case p.spec.Scenario.Train.Real():
		patience = p.patient(lossPatience)
	case p.spec.Qlog:
		patience = p.patient(qlogEndPatience)
	}
	timeout := time.AfterFunc(patience, func() {
		p.s.Post(func() error {
			for _, w := range p.workers {
				if !w.child.Ended {
					w.child.Kill()
				}
			}
			return nil
		})
	})
	defer timeout.Stop()
	return p.s.AwaitAll(network.StartupPatience+patience, "the processes of workers to end", func() []string {
		alive := p.names(func(w *worker) bool { return !w.child.Ended })
		if !p.store.gone() {
			alive = append(alive, train.StoreNode)
		}
		return alive
	})
}

// pausePatience limits how long a worker may take to acknowledge its pause. A
// busy worker is stopped without acknowledgement. Its inner step then ends
// during the pause.
const pausePatience = 100 * time.Millisecond

// pause tells a worker that it is about to be stopped, and then stops it.
func (p *player) pause(w *worker) {
	w.pausing = true
	w.command(node.Command{Op: node.OpPause})
	time.AfterFunc(pausePatience, func() { p.s.Post(func() error { return p.stop(w) }) })
}

// stop stops the process of a worker that is to be paused.
func (p *player) stop(w *worker) error {
	if !w.pausing || w.child.Ended || p.over {
		return nil
	}
	w.pausing, w.paused, w.stopped = false, true, steady.Now()
	w.child.SignalGroup(syscall.SIGSTOP)
	if !p.clock.running() {
		return nil
	}
	return p.record(record.Event{T: p.clock.now(), Type: record.Pause, Node: w.name})
}

// resume continues a stopped worker.
func (p *player) resume(w *worker) {
	if w.paused && w.stopped > 0 {
		p.monitor.Paused(w.name, w.stopped, steady.Now())
		w.stopped = 0
	}
	w.pausing, w.paused = false, false
	w.command(node.Command{Op: node.OpResume})
	w.child.SignalGroup(syscall.SIGCONT)
}
