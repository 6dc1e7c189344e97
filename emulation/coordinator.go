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
	"testbed/internal/errs"
	"testbed/internal/lines"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/faults"
)

// maxDeaths is the number of unexpected deaths of the coordinator that a run
// tolerates. A cause that has killed it so often will do so again.
const maxDeaths = 3

// coordinator is the present coordinator.
type coordinator struct {
	child *network.Child
	// spec is the next coordinator's, too.
	spec process.CoordinatorSpec
	down bool      // it is dead, and the next one has not started yet
	back time.Time // when the next one starts
	// unexpected deaths
	deaths int
}

// gone reports whether it has ended and will not be replaced.
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
				return fmt.Errorf("internal error: parsing a report of the coordinator: %w", err)
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

// coordinatorEnded handles the end of a coordinator's process. After an
// unexpected death it is replaced, unless it gave up for a reason: with the
// same journal it would give up again.
func (p *player) coordinatorEnded(child *network.Child, reason string) error {
	c := &p.coordinator
	switch {
	case c.down: // because of an inject
	case p.over && child.Failure == "":
		return nil
	case p.over || !p.clock.running() || child.Failure != "" || c.deaths == maxDeaths:
		again := ""
		if c.deaths > 0 {
			again = fmt.Sprintf(" (it had already failed and been restarted %s)", errs.Count(c.deaths, "time"))
		}
		did := "died"
		if child.Failure != "" {
			did = "gave up"
		}
		return fmt.Errorf("the coordinator %s: %s%s; see %s", did, reason, again, p.s.Log(child.Name))
	default:
		c.deaths++
		c.down, c.back, c.spec.Forgets = true, time.Now(), false
		p.monitor.Failed("the coordinator died unexpectedly: " + reason)
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

// crashCoordinator kills the coordinator. It is replaced when it has ended and
// the time of the inject is over.
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
