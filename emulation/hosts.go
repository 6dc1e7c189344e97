//go:build linux

package emulation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"

	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/shaping/fidelity"
)

// checkHosts reports an option that does not work with several hosts.
func checkHosts(o *Options) error {
	if o.Hosts == nil {
		return errs.Usagef("--place assigns nodes to several hosts; add --hosts")
	}
	if err := cluster.CheckLinks(o.Links); err != nil {
		return err
	}
	switch {
	case o.Qlog:
		return errs.Usagef("--qlog records on one host only; leave it out, or leave --hosts out")
	case o.Scenario.Train.Foreign():
		return errs.Usagef("a trainer of your own runs on one host only; leave --hosts out")
	}
	s, err := o.Scenario.Resolve("")
	if err != nil {
		return err
	}
	return cluster.CheckPlacement(cluster.NetworkOf(s), o.Hosts.Count, o.Place)
}

// playOnHosts gathers the hosts and plays the scenario on all of them.
func (r *recorder) playOnHosts(ctx context.Context) (err error) {
	hosts, err := cluster.Gather(ctx, *r.options.Hosts, r.stage)
	if err != nil {
		return err
	}
	defer func() { hosts.Close(err) }()
	e := monitor.Environment(r.options.Command)
	if r.spec.Resume != nil {
		e.Command = r.command()
	}
	e.Hosts = hosts.Environments
	if err := r.dir.WriteJSON(record.EnvironmentFile, e); err != nil {
		return err
	}
	if r.spec.Processors = differing(hosts.Layout.Hosts[0].Name, e); r.spec.Processors != nil {
		r.stage("the hosts have different processors: " + strings.Join(r.spec.Processors, ", "))
	}
	placed, err := hosts.Place(ctx, cluster.NetworkOf(r.spec.Scenario), r.options.Place, r.stage)
	if err == nil {
		err = r.dir.WriteJSON(HostsFile, placed)
	}
	if err != nil {
		return err
	}
	for _, h := range placed.Hosts {
		r.hosts = append(r.hosts, record.Host{Name: h.Name, Nodes: h.Nodes})
	}
	r.spec.Links, r.spec.Layout = network.LinksUser, hosts.Layout
	return r.play(ctx, hosts)
}

// command is the command line of the run's beginning, if known.
func (r *recorder) command() []string {
	var was record.Environment
	text, err := os.ReadFile(r.dir.Path(record.EnvironmentFile))
	if err != nil || json.Unmarshal(text, &was) != nil {
		return r.options.Command
	}
	return was.Command
}

// differing returns the processor types of an environment's hosts, nil if all
// are the same.
func differing(leader string, e record.Environment) (all []string) {
	of := func(name string, e record.Environment) string {
		limit := ""
		if e.CPUQuota > 0 {
			limit = fmt.Sprintf(", of which %.4g may be used,", e.CPUQuota)
		}
		return fmt.Sprintf("%d × %s%s on %s", e.Processors, cmp.Or(e.Processor, e.Arch), limit, name)
	}
	all, differ := []string{of(leader, e)}, false
	for _, h := range e.Hosts {
		all = append(all, of(h.Name, h.Environment))
		differ = differ || h.Processor != e.Processor || h.Processors != e.Processors || h.CPUQuota != e.CPUQuota
	}
	if !differ {
		return nil
	}
	return all
}

// boundClocks records how exactly the hosts' clocks were compared with the
// leader's, which is the first host's.
func boundClocks(hosts []record.Host, underlay []fidelity.Underlay) {
	for k := range hosts {
		for _, u := range underlay {
			leader, name := hosts[0].Name, hosts[k].Name
			if u.From == leader && u.To == name || u.From == name && u.To == leader {
				hosts[k].ClockBound = max(hosts[k].ClockBound, int64(math.Ceil(u.ClockBound.Seconds()*1e6)))
			}
		}
	}
}

// connectHosts extends the network over all hosts of the run, and gives the
// monitor the other hosts' samples.
func (p *player) connectHosts() (err error) {
	if p.hosts, err = cluster.Connect(p.s, p.spec.Layout); err != nil {
		return err
	}
	p.monitor.Differ(p.spec.Processors)
	p.hosts.OnSample = func(host string, raw json.RawMessage) error {
		var s monitor.Sample
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("internal error: parsing the measurements of host %s: %w", host, err)
		}
		p.monitor.Remote(host, s)
		p.queues.Enter(s.Queues, s.QueuesLost, p.hosts.ClockOffset(host))
		return nil
	}
	return nil
}
