//go:build linux

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/emulation/monitor"
	"testbed/internal/errs"
	"testbed/internal/quota"
)

const (
	// burstTries is the number of measurements of a network that seems too narrow,
	// and delayTries of one that seems too slow: on a busy machine a good network
	// may seem bad temporarily.
	burstTries, delayTries = 3, 2
	// usable is the share of the measured rate that a plan may use: traffic is
	// less even than its mean.
	usable = 0.8
	// offered is a burst's rate as a multiple of the plan's need. leastOffered, in
	// bit/s, is its least rate, so that it has several packets.
	offered, leastOffered = 2, 2e6
)

// Record has the placement of nodes, and the measurements behind it: the file
// hosts.json of a run.
type Record struct {
	Hosts    []HostRecord   `json:"hosts"`
	Underlay []UnderlayPath `json:"ways"`
}

// HostRecord is a host, and the nodes on it.
type HostRecord struct {
	Host
	Nodes []string `json:"nodes"`
}

// UnderlayPath is the network from one host to another.
type UnderlayPath struct {
	From string `json:"from"`
	To   string `json:"to"`
	// OneWay is half of the round trip's 99.9th percentile.
	OneWay time.Duration `json:"one_way_ns"`
	// Reductions is the rate that the reductions of a round need, Fetch the rate
	// of a state fetch, and Carried the rate of a burst, which offers twice as
	// much; in bit/s.
	Reductions float64 `json:"reductions_bits_per_s"`
	Fetch      float64 `json:"fetch_bits_per_s"`
	Carried    float64 `json:"carried_bits_per_s"`
}

// CheckPlacement reports, before hosts have come, what is wrong with their
// number, or with the requested placement; empty: none is requested.
func CheckPlacement(n *Network, hosts int, wanted string) (err error) {
	if wanted != "" {
		if _, err = ParsePlacement(wanted, n, hosts); err != nil {
			return errs.Usagef("--place %s: %w", wanted, err)
		}
	} else if _, err = ContiguousPlacement(n, hosts); err != nil {
		return errs.Usagef("--hosts: %w", err)
	}
	return nil
}

// Place measures the network between hosts and places the nodes: as requested
// (see ParsePlacement), or by ChoosePlacement if wanted is empty. It reports
// the result to progress, and ends the measurements.
func (c *Cluster) Place(ctx context.Context, n *Network, wanted string, progress func(string)) (*Record, error) {
	p := &placing{cluster: c, network: n, progress: progress}
	own := monitor.Environment(nil)
	for k, h := range c.Layout.Hosts {
		e := own
		if k > 0 {
			e = c.Environments[k-1].Environment
		}
		p.hosts = append(p.hosts, Host{Name: h.Name, Processors: quota.Quota{CPUs: e.CPUQuota}.Processors(e.Processors)})
	}
	if err := p.place(ctx, wanted); err != nil {
		return nil, err
	}
	if err := p.measure(ctx); err != nil {
		return nil, err
	}
	c.Layout.Of = p.of
	return p.record(), c.endMeasuring(ctx)
}

// placing is a placement under way.
type placing struct {
	cluster  *Cluster
	network  *Network
	progress func(string)

	hosts                      []Host
	of                         []int // the host of each node
	underlay                   Underlay
	reductions, fetch, carried [][]float64 // in bit/s, from row to column
	bursts                     int
}

// place measures the delays between hosts, and places the nodes.
func (p *placing) place(ctx context.Context, wanted string) (err error) {
	for try := range delayTries {
		delays, failed := p.cluster.oneWayDelays(ctx, try > 0)
		if failed != nil {
			return failed
		}
		p.underlay = shorter(p.underlay, delays)
		if wanted != "" {
			p.of, err = ParsePlacement(wanted, p.network, len(p.hosts))
			return err // the routers check whether paths are as fast as planned
		}
		if p.of, err = ChoosePlacement(p.network, p.hosts, p.underlay); err == nil {
			return nil
		}
	}
	// The routers, which have priority, have the last word.
	p.progress(fmt.Sprintf("%v. The run still starts: its routers will measure the delays again", err))
	p.of, err = ChoosePlacement(p.network, p.hosts, nil)
	return err
}

// shorter has the shorter of two measurements of each delay; the first may be
// nil.
func shorter(a, b Underlay) Underlay {
	for from, row := range a {
		for to, d := range row {
			b[from][to] = min(b[from][to], d)
		}
	}
	return b
}

// measure sends bursts: first the traffic of reductions between all hosts at
// once. If the carried rate was too low for a state fetch, it then sends the
// traffic of a fetch, from each host to one other at a time.
func (p *placing) measure(ctx context.Context) (err error) {
	var unlimited bool
	if p.reductions, unlimited, err = Traffic(p.network, p.of); err != nil {
		return err
	}
	if p.fetch, err = Fetches(p.network, p.of); err != nil {
		return err
	}
	if unlimited {
		p.progress("some planned paths between hosts have no rate limit. The run does not check in advance whether the hosts' network is fast enough for these paths")
	}
	n := len(p.hosts)
	p.carried = matrix(n)
	if err := p.carry(ctx, p.reductions, "reductions send"); err != nil {
		return err
	}
	for distance := 1; distance < n; distance++ {
		turn := matrix(n)
		for from := range n {
			to := (from + distance) % n
			turn[from][to] = p.fetch[from][to]
		}
		if err := p.carry(ctx, turn, "the fetch of a state sends"); err != nil {
			return err
		}
	}
	return nil
}

// carry sends bursts until all needs have been carried. Its error names a pair
// of hosts between which they never were.
func (p *placing) carry(ctx context.Context, needs [][]float64, sender string) error {
	for range burstTries {
		if from, _ := p.lacks(needs); from < 0 {
			return nil
		}
		rates := matrix(len(needs))
		for from, row := range needs {
			for to, need := range row {
				if need > 0 {
					rates[from][to] = max(offered*need, leastOffered)
				}
			}
		}
		p.bursts++
		carried, err := p.cluster.burst(ctx, p.bursts, rates)
		if err != nil {
			return err
		}
		for from, row := range carried {
			for to, c := range row {
				p.carried[from][to] = max(p.carried[from][to], c)
			}
		}
	}
	from, to := p.lacks(needs)
	if from < 0 {
		return nil
	}
	return fmt.Errorf("by plan, %s up to %s Mbit/s from host %s to host %s, but the network between these hosts transferred only %s Mbit/s, and a run may use only %.0f %% of that; plan lower rates, dilate the scenario (real.dilation), or move nodes (--place)",
		sender, mega(needs[from][to]), p.hosts[from].Name, p.hosts[to].Name, mega(p.carried[from][to]), 100*usable)
}

// lacks is the pair of hosts with the smallest carried part of a need, if that
// part is too small; otherwise from is negative.
func (p *placing) lacks(needs [][]float64) (from, to int) {
	from, least := -1, 1.0
	for a, row := range needs {
		for b, need := range row {
			if need > 0 && usable*p.carried[a][b]/need < least {
				from, to, least = a, b, usable*p.carried[a][b]/need
			}
		}
	}
	return from, to
}

func (p *placing) record() *Record {
	r := &Record{}
	var words []string
	for k, nodes := range NodesByHost(p.network.Plan, p.of) {
		r.Hosts = append(r.Hosts, HostRecord{p.hosts[k], nodes})
		words = append(words, fmt.Sprintf("host %s runs %s", p.hosts[k].Name, strings.Join(nodes, " ")))
		for to, h := range p.hosts {
			if to != k {
				r.Underlay = append(r.Underlay, UnderlayPath{p.hosts[k].Name, h.Name, p.underlay[k][to], p.reductions[k][to], p.fetch[k][to], p.carried[k][to]})
			}
		}
	}
	p.progress(strings.Join(words, ", "))
	slowest := slices.MaxFunc(r.Underlay, func(a, b UnderlayPath) int { return int(a.OneWay - b.OneWay) })
	p.progress(fmt.Sprintf("the one-way delay between hosts is up to %v (from %s to %s)", slowest.OneWay.Round(time.Microsecond), slowest.From, slowest.To))
	return r
}
