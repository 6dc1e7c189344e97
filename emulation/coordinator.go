//go:build linux

package emulation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"testbed/emulation/network"
	"testbed/emulation/process"
	"testbed/internal/lines"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/faults"
)

// maxDeaths is how many deaths of the coordinator that nobody asked for a run
// bears. What kills it so often will do so again.
const maxDeaths = 3

// coordinator is the coordinator of the moment.
type coordinator struct {
	child *network.Child
	// spec is that of the next coordinator, too.
	spec process.CoordinatorSpec
	down bool      // it is dead, and the next one has yet to start
	back time.Time // when that is to start
	// deaths that nobody asked for.
	deaths int
}

// gone says whether it has ended and no other will take its place.
func (c *coordinator) gone() bool { return !c.down && c.child.Ended }

// startCoordinator starts the first coordinator, or another one in its place.
func (p *player) startCoordinator() error {
	journal, err := lines.Append(p.s.Dir.Path(filepath.Join(resumeDir, journalFile)))
	if err != nil {
		return fmt.Errorf("starting the coordinator: %w", err)
	}
	defer journal.Close()
	p.coordinator.child, err = p.startChild(network.ChildSpec{
		Name: policy.CoordinatorNode, Kind: process.KindCoordinator, Spec: p.coordinator.spec,
		Files: []*os.File{journal}, FileNames: []string{process.Journal},
		OnData: func(data json.RawMessage) error {
			var r process.Report
			if err := json.Unmarshal(data, &r); err != nil {
				return fmt.Errorf("reading a report of the coordinator: %w", err)
			}
			if r.Event == nil {
				return nil
			}
			return p.heard(0, r.Event)
		},
		OnEnd: p.coordinatorEnded,
	})
	return err
}

// coordinatorEnded judges the end of a coordinator's process. One that died of
// itself is replaced, unless it gave up for a reason: it would do so again with
// the same journal.
func (p *player) coordinatorEnded(child *network.Child, reason string) error {
	c := &p.coordinator
	switch {
	case c.down: // by an inject
	case p.over && child.Failure == "":
		return nil
	case p.over || !p.clock.running() || child.Failure != "" || c.deaths == maxDeaths:
		again := ""
		if c.deaths > 0 {
			again = fmt.Sprintf(", after %d earlier failures and restarts", c.deaths)
		}
		did := "died during the run"
		if child.Failure != "" {
			did = "gave up"
		}
		return fmt.Errorf("the coordinator %s: %s%s; see %s", did, reason, again, p.s.Log(child.Name))
	default:
		c.deaths++
		c.down, c.back, c.spec.Forgets = true, time.Now(), false
		p.monitor.Failed("the coordinator died of itself: " + reason)
		if err := p.record(record.Event{T: p.clock.now(), Type: record.CoordinatorCrash, Cause: reason}); err != nil {
			return err
		}
	}
	time.AfterFunc(time.Until(c.back), func() {
		p.s.Post(func() error {
			c.down = false
			return p.startCoordinator()
		})
	})
	return nil
}

// crashCoordinator kills the coordinator. Another one takes its place when it
// has ended and its time has come.
func (p *player) crashCoordinator(in faults.Inject) error {
	c := &p.coordinator
	if c.down || p.over || c.child.Ended {
		return nil
	}
	c.down, c.back = true, time.Now().Add(p.spec.Scenario.ClockDuration(in.Down))
	c.spec.Forgets = in.Forgets
	err := p.record(record.Event{T: p.clock.now(), Type: record.CoordinatorCrash})
	c.child.Kill()
	return err
}
