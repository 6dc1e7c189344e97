package timeline

import (
	"slices"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// Link summarises a worker's traffic to another worker in all-reduces, or to
// all others.
type Link struct {
	From       string  `json:"from"`
	To         string  `json:"to"`
	Reductions int     `json:"reductions"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"` // of real time, in reductions
	// Goodput is Bytes divided by Seconds, in bit/s. Rate is that of the slower
	// access link at both ends, or the sender's if it sends to all the others; 0
	// is unlimited.
	Goodput float64 `json:"goodput_bps"`
	Rate    float64 `json:"rate_bps"`
}

// Share is the goodput as a share of the rate, 0 if that is unlimited.
func (l Link) Share() float64 {
	if l.Rate == 0 {
		return 0
	}
	return l.Goodput / l.Rate
}

// Links summarises the traffic of the ring, for records that have it.
func Links(s *scenarios.Scenario, events []record.Event) ([]Link, error) {
	plan, err := s.Plan()
	if err != nil {
		return nil, err
	}
	rate := func(from, to string) float64 {
		if to == everybody {
			return float64(plan.Nodes[plan.Index(from)].RateUp)
		}
		return float64(plan.Rate(plan.Index(from), plan.Index(to)))
	}
	type direction struct{ from, to string }
	sums := map[direction]*Link{}
	rings := map[policy.Epoch][]policy.ID{}
	for _, e := range events {
		if e.Type == record.ReduceStart {
			rings[e.Epoch] = e.Participants
		}
	}
	for _, e := range events {
		k := slices.IndexFunc(rings[e.Epoch], func(id policy.ID) bool { return id.Node() == e.Node })
		if e.Type != record.Reduced || k < 0 {
			continue
		}
		id := rings[e.Epoch][k]
		ring := s.Grouping().Ring(e.Round, rings[e.Epoch], id)
		if len(ring) < 2 {
			continue
		}
		d := direction{e.Node, receiver(s, ring, id)}
		if sums[d] == nil {
			sums[d] = &Link{From: d.from, To: d.to, Rate: rate(d.from, d.to)}
		}
		l := sums[d]
		l.Reductions++
		l.Bytes += e.BytesSent
		l.Seconds += s.RealDuration(e.Duration).Seconds()
	}
	list := []Link{}
	for _, name := range s.Nodes() {
		for _, to := range append(s.Nodes(), everybody) {
			if l := sums[direction{name, to}]; l != nil {
				if l.Seconds > 0 {
					l.Goodput = 8 * float64(l.Bytes) / l.Seconds
				}
				list = append(list, *l)
			}
		}
	}
	return list, nil
}
