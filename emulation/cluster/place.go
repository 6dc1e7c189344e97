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
	"testbed/scenarios"
	"testbed/shaping"
)

const (
	// tries is how often a network is measured that seems too weak, and waysTries how
	// often one that seems too slow: a busy machine makes a good one bad in passing.
	tries, waysTries = 3, 2
	// usable is the share that a plan may use of what was carried: traffic is not as
	// even as its mean.
	usable = 0.8
	// offered is what a burst has of what the plan needs, and leastOffered, in bit/s,
	// what it has at the least, so that it is of several packets.
	offered, leastOffered = 2, 2e6
)

// Record is where nodes are and what that was decided on.
type Record struct {
	Hosts []HostRecord `json:"hosts"`
	Ways  []Way        `json:"ways"`
}

// HostRecord is a host, and what is on it.
type HostRecord struct {
	Host
	Nodes []string `json:"nodes"`
}

// Way is the network from one host to another.
type Way struct {
	From string `json:"from"`
	To   string `json:"to"`
	// OneWay is half of the round trip's 99.9th percentile.
	OneWay time.Duration `json:"one_way_ns"`
	// Reductions is what those of a round need, Fetch what that of a state does,
	// and Carried what came of a burst, which offers twice as much; in bit/s.
	Reductions float64 `json:"reductions_bits_per_s"`
	Fetch      float64 `json:"fetch_bits_per_s"`
	Carried    float64 `json:"carried_bits_per_s"`
}

// Possible says before hosts have come what is wrong with their number, or with what
// is wanted.
func Possible(s *scenarios.Scenario, plan *shaping.Plan, hosts int, wanted string) (err error) {
	if wanted != "" {
		if _, err = ParsePlacement(wanted, s, plan, hosts); err != nil {
			err = fmt.Errorf("--place %s: %w", wanted, err)
		}
	} else if _, err = ContiguousPlacement(s, plan, hosts); err != nil {
		err = fmt.Errorf("--hosts: %w", err)
	}
	if err != nil {
		return errs.Usage(err)
	}
	return nil
}

// PlaceNodes says where nodes are: as wanted (placement.Parse), or as is best if that is
// empty. It sets hosts.Spread.Of. told hears what comes of it.
func PlaceNodes(ctx context.Context, hosts *Hosts, s *scenarios.Scenario, plan *shaping.Plan, wanted string, told func(string)) (*Record, error) {
	p := &placer{hosts: hosts, s: s, plan: plan, told: told}
	own := monitor.Environment(nil)
	for k, h := range hosts.Spread.Hosts {
		processors := own.Processors
		if k > 0 {
			processors = hosts.Environments[k-1].Processors
		}
		p.all = append(p.all, Host{Name: h.Name, Processors: processors})
	}
	if err := p.place(ctx, wanted); err != nil {
		return nil, err
	}
	if err := p.measure(ctx); err != nil {
		return nil, err
	}
	hosts.Spread.Of = p.of
	return p.record(), hosts.Measured(ctx)
}

type placer struct {
	hosts *Hosts
	s     *scenarios.Scenario
	plan  *shaping.Plan
	told  func(string)

	all                        []Host
	of                         []int
	ways                       Underlay
	reductions, fetch, carried [][]float64
	bursts                     int
}

// place measures how far apart the hosts are, and places the nodes.
func (p *placer) place(ctx context.Context, wanted string) (err error) {
	for try := range waysTries {
		ways, failed := p.hosts.OneWay(ctx, try > 0)
		if failed != nil {
			return failed
		}
		p.ways = nearer(p.ways, ways)
		if wanted != "" {
			p.of, err = ParsePlacement(wanted, p.s, p.plan, len(p.all))
			return err // the routers see whether paths are as fast as planned
		}
		if p.of, err = ChoosePlacement(p.s, p.plan, p.all, p.ways); err == nil {
			return nil
		}
	}
	// The routers, which have priority, have the last word.
	p.told(fmt.Sprintf("%v; the routers will see", err))
	p.of, err = ChoosePlacement(p.s, p.plan, p.all, nil)
	return err
}

// nearer is the shorter of two measurements of each way; the first may be nil.
func nearer(a, b Underlay) Underlay {
	for from, row := range a {
		for to, d := range row {
			b[from][to] = min(b[from][to], d)
		}
	}
	return b
}

// measure sends bursts: first what reductions send between all hosts at once, then,
// where that was less than the fetch of a state needs, what this does, from each
// host to one other at a time.
func (p *placer) measure(ctx context.Context) (err error) {
	var unlimited bool
	if p.reductions, unlimited, err = Traffic(p.s, p.plan, p.of); err != nil {
		return err
	}
	if p.fetch, err = Fetches(p.s, p.plan, p.of); err != nil {
		return err
	}
	if unlimited {
		p.told("links without a rate are between hosts: whether the hosts' network carries what goes over them is not measured before the run")
	}
	n := len(p.all)
	p.carried = zero(n)
	if err := p.carry(ctx, p.reductions, "reductions send"); err != nil {
		return err
	}
	for away := 1; away < n; away++ {
		turn := zero(n)
		for from := range n {
			to := (from + away) % n
			turn[from][to] = p.fetch[from][to]
		}
		if err := p.carry(ctx, turn, "the fetch of a state sends"); err != nil {
			return err
		}
	}
	return nil
}

// carry sends bursts until all needs have been carried, and says for which pair that
// is in vain.
func (p *placer) carry(ctx context.Context, needs [][]float64, who string) error {
	for range tries {
		if from, _ := p.lacks(needs); from < 0 {
			return nil
		}
		rates := zero(len(needs))
		for from, row := range needs {
			for to, need := range row {
				if need > 0 {
					rates[from][to] = max(offered*need, leastOffered)
				}
			}
		}
		p.bursts++
		came, err := p.hosts.Burst(ctx, p.bursts, rates)
		if err != nil {
			return err
		}
		for from, row := range came {
			for to, c := range row {
				p.carried[from][to] = max(p.carried[from][to], c)
			}
		}
	}
	from, to := p.lacks(needs)
	if from < 0 {
		return nil
	}
	const mega = 1e6
	return fmt.Errorf("by plan %s up to %.3g Mbit/s from host %s to host %s, and the network between them carried %.3g Mbit/s of a burst, of which %.0f %% may be used; plan lower rates, dilate the scenario (real.dilation), or place nodes so that less goes this way (--place)",
		who, needs[from][to]/mega, p.all[from].Name, p.all[to].Name, p.carried[from][to]/mega, 100*usable)
}

// lacks is the way that has carried the least of what it needs, if it is too little;
// otherwise from is negative.
func (p *placer) lacks(needs [][]float64) (from, to int) {
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

func (p *placer) record() *Record {
	r := &Record{}
	var words []string
	for k, nodes := range NodesByHost(p.plan, p.of) {
		r.Hosts = append(r.Hosts, HostRecord{p.all[k], nodes})
		words = append(words, fmt.Sprintf("%s has %s", p.all[k].Name, strings.Join(nodes, " ")))
		for to, h := range p.all {
			if to != k {
				r.Ways = append(r.Ways, Way{p.all[k].Name, h.Name, p.ways[k][to], p.reductions[k][to], p.fetch[k][to], p.carried[k][to]})
			}
		}
	}
	p.told(strings.Join(words, ", "))
	slowest := slices.MaxFunc(r.Ways, func(a, b Way) int { return int(a.OneWay - b.OneWay) })
	p.told(fmt.Sprintf("the hosts' network takes up to %v one way (%s to %s)", slowest.OneWay.Round(time.Microsecond), slowest.From, slowest.To))
	return r
}

func zero(n int) [][]float64 {
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n)
	}
	return m
}
