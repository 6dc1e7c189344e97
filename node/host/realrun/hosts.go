//go:build linux

package realrun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"testbed/node/host/emulation"
	"testbed/node/host/monitor"
	"testbed/node/host/share"
	"testbed/runlog"
	"testbed/scenarios/placement"
)

// checkHosts says what of the options does not go over several hosts.
func checkHosts(o *Options) error {
	usage := func(problem string) error { return &emulation.UsageError{Problem: problem} }
	switch s := o.Scenario; {
	case o.Links != emulation.LinksUser && o.Links != emulation.LinksAuto:
		return usage(fmt.Sprintf("%s links cannot go over several hosts; take --links user", o.Links))
	case o.Qlog:
		return usage("--qlog records on one host only; leave it out, or leave --hosts out")
	case s.Train.Foreign():
		return usage("a trainer of your own runs on one host only; leave --hosts out")
	}
	return nil
}

// playOver gathers the hosts and plays the scenario on all of them.
func (r *recorder) playOver(ctx context.Context) (err error) {
	plan, err := r.spec.Scenario.Plan()
	if err != nil {
		return err
	}
	of, err := placement.Contiguous(r.spec.Scenario, plan, r.options.Hosts.Count)
	if err != nil {
		return &emulation.UsageError{Problem: err.Error()}
	}
	hosts, err := share.Gather(ctx, *r.options.Hosts, r.stage)
	if err != nil {
		return err
	}
	defer func() { hosts.Close(err) }()
	e := monitor.Environment(r.options.Command)
	if r.spec.Resume != nil {
		e.Command = r.command()
	}
	e.Hosts = hosts.Environments
	if err := r.dir.WriteJSON(runlog.EnvironmentFile, e); err != nil {
		return err
	}
	for _, h := range e.Hosts {
		if h.Processor != e.Processor || h.Processors != e.Processors {
			r.stage(fmt.Sprintf("host %s has other processors, %d of %s, than this one, %d of %s", h.Name, h.Processors, h.Processor, e.Processors, e.Processor))
		}
	}
	hosts.Spread.Of = of
	r.spec.Links, r.spec.Spread = emulation.LinksUser, hosts.Spread
	return r.play(ctx, emulation.JobSpec{Files: hosts.Files, FileNames: hosts.FileNames})
}

// command is the command line that the run began with, as far as that is known.
func (r *recorder) command() []string {
	var was runlog.Environment
	text, err := os.ReadFile(r.dir.Path(runlog.EnvironmentFile))
	if err != nil || json.Unmarshal(text, &was) != nil {
		return r.options.Command
	}
	return was.Command
}

// goOver has the network go over several hosts, if it is to.
func (p *player) goOver() error {
	if p.spec.Spread == nil {
		return nil
	}
	p.s.OnSample = func(host string, raw json.RawMessage) error {
		var s monitor.Sample
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("reading what the host %s has seen: %w", host, err)
		}
		p.monitor.Elsewhere(host, s)
		return nil
	}
	return p.s.SpreadOver(p.spec.Spread)
}
