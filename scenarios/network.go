package scenarios

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"testbed/allreduce/reduction"
	"testbed/allreduce/ringorder"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/shaping"
	"testbed/train/work"
)

// Network is the JSON form of WriteNetwork's output: the network that a run of
// a scenario would install.
type Network struct {
	*shaping.Plan
	// Ring is the order of the ring of all workers, nil if they are in order of
	// their ids.
	Ring    *ringorder.Ring     `json:"ring,omitempty"`
	Injects []faults.LinkInject `json:"injects,omitempty"`
	Work    *work.Spec          `json:"work,omitempty"`
	// Ignored are the fields that each world ignores: sim, sim_links and real.
	Ignored map[string][]record.Ignored `json:"ignored,omitempty"`
	// Load is nil if it was not measured.
	Load *MachineLoad `json:"load,omitempty"`
	// Hosts are the names of the nodes on each host, nil if there is one host.
	Hosts [][]string `json:"hosts,omitempty"`
	// HostTraffic is the most traffic that reductions send between hosts, in bit/s
	// from row to column.
	HostTraffic [][]float64 `json:"host_traffic_bits_per_s,omitempty"`
}

// NewNetwork is the network of a scenario with this plan. It fails if the ring
// cannot be ordered.
func NewNetwork(s *Scenario, plan *shaping.Plan) (*Network, error) {
	ring, err := s.Ways(plan).OfAll()
	if err != nil {
		return nil, err
	}
	n := &Network{Plan: plan, Ring: ring, Injects: s.Real.Injects, Work: s.Work, Ignored: map[string][]record.Ignored{}}
	for _, world := range []string{record.Sim, record.SimLinks, record.Real} {
		n.Ignored[world] = s.Ignored(world, false)
	}
	return n, nil
}

// maxMatrix is the number of nodes up to which the matrix of paths is shown.
const maxMatrix = 12

// WriteNetwork writes, in words, the network of a scenario, its workers'
// durations and the changes of its links. Paths are shown as a matrix if it
// fits on a screen.
func WriteNetwork(out io.Writer, s *Scenario, plan *shaping.Plan) error {
	fmt.Fprintf(out, "%s: %d nodes; 1 ms of scenario time takes %v", s.Name, len(plan.Nodes), s.RealDuration(1000))
	if x := s.Slowdown(); x > 1 {
		fmt.Fprintf(out, ", or %v by the machine's clock (dilation %g)", s.Scale().ClockDuration(1000), x)
	}
	fmt.Fprint(out, "\n\n")
	if s.Work != nil {
		fmt.Fprintf(out, "inner steps, in scenario time\n  %s\n\n", strings.Join(s.Work.Describe(), "\n  "))
	}
	if fragments := s.Exchange().Fragments; len(fragments) > 1 {
		var of []string
		for _, f := range fragments {
			of = append(of, fmt.Sprint(f.Len))
		}
		fmt.Fprintf(out, "the rounds exchange %d fragments in rotation, one per round (parameters of each fragment: %s)\n\n", len(of), strings.Join(of, ", "))
	}
	writeRegions(out, s)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "node\taddress\trate up\trate down\tqueue")
	for _, n := range plan.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", n.Name, n.Addr.Addr(), n.RateUp, n.RateDown, installedQueue(n))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(plan.Nodes) > maxMatrix {
		fmt.Fprintf(out, "\n%d paths, which --json lists\n", len(plan.Nodes)*(len(plan.Nodes)-1))
		return writeRest(out, s, plan)
	}
	fmt.Fprintln(out, "\none-way delay ± jitter, loss; from the row's node to the column's")
	fmt.Fprint(w, "\t")
	for _, n := range plan.Nodes {
		fmt.Fprintf(w, "%s\t", n.Name)
	}
	fmt.Fprintln(w)
	for i, n := range plan.Nodes {
		fmt.Fprintf(w, "%s\t", n.Name)
		for j := range plan.Nodes {
			fmt.Fprintf(w, "%s\t", describePath(plan.Paths[i][j], i == j))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return writeRest(out, s, plan)
}

// installedQueue is a node's queue. If the installed queue is longer than the
// requested one, because a batch of a sender has to fit, it has both.
func installedQueue(n shaping.NodePlan) string {
	text := n.Queue.String()
	if n.Queue.Bytes != 0 {
		return text
	}
	for _, way := range []struct {
		rate shaping.Rate
		name string
	}{{n.RateUp, "up"}, {n.RateDown, "down"}} {
		installed := way.rate.Sending(n.QueueBytes(way.rate))
		if way.rate > 0 && installed > time.Duration(n.Queue.Time)+time.Millisecond {
			text += fmt.Sprintf(", %s %v (%v)", way.name, installed.Round(time.Millisecond), shaping.Queue{Bytes: n.QueueBytes(way.rate)})
		}
	}
	return text
}

// writeRegions shows which workers reduce together, if that is not always all
// of them.
func writeRegions(out io.Writer, s *Scenario) {
	rule := s.Grouping()
	if rule == nil {
		return
	}
	if n := s.Train.Ranks(); n > 1 {
		fmt.Fprintf(out, "replica groups of %d ranks: each rank holds %d of the %d parameters, and reduces them with the ranks of the same number in the other groups\n", n, s.Train.Shard(s.Real.Parameters), s.Real.Parameters)
	} else if s.Train.Regions != nil {
		fmt.Fprintf(out, "the workers of all regions reduce together in outer steps whose number is a multiple of %d. In other outer steps, each region reduces on its own\n", s.Train.Regions.Every)
	} else {
		return
	}
	var ids []policy.ID
	for _, w := range s.Workers {
		ids = append(ids, w.ID)
	}
	for _, r := range rule.Deal(ids) {
		fmt.Fprintf(out, "  %s:", r.Region)
		for _, id := range r.Workers {
			fmt.Fprintf(out, " %s", id.Node())
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
}

// writeRest shows the order of the ring, and the changes of links.
func writeRest(out io.Writer, s *Scenario, plan *shaping.Plan) error {
	ring, err := s.Ways(plan).OfAll()
	if err != nil {
		return err
	}
	if ring != nil {
		writeRing(out, s.Real.AllReduce.Order, ring)
	}
	return printLinkInjects(out, s)
}

func writeRing(out io.Writer, by string, r *ringorder.Ring) {
	fmt.Fprintf(out, "\nring of all workers (order: %s): ", by)
	for _, id := range r.Order {
		fmt.Fprintf(out, "%s → ", id.Node())
	}
	fmt.Fprintln(out, r.Order[0].Node())
	if by == reduction.OrderMeasured || by == reduction.OrderMeasuredRates {
		fmt.Fprintln(out, "  this order follows from the plan; a run measures the links first, and may choose another order")
	}
	if r.NaiveRate > 0 {
		fmt.Fprintf(out, "  slowest hop %s (%s if the ring followed the order of the ids)\n", r.Rate, r.NaiveRate)
	}
	way := func(seconds float64) time.Duration { return time.Duration(math.Round(seconds*1e6)) * time.Microsecond }
	fmt.Fprintf(out, "  longest delay of a chunk around the ring %v (%v if the ring followed the order of the ids)\n", way(r.Latency), way(r.NaiveLatency))
}

// printLinkInjects shows the changes of links, in real time.
func printLinkInjects(out io.Writer, s *Scenario) error {
	if len(s.Real.Injects) == 0 {
		return nil
	}
	fmt.Fprintln(out, "\nchanges of links, in real time; testbed simulate plays them only with --network links")
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, in := range s.Real.Injects {
		until := "for good"
		if in.Until != nil {
			until = "until " + s.RealDuration(*in.Until).String()
		}
		what := ""
		switch in.Op {
		case faults.LinkTrace:
			what = fmt.Sprintf("%s: repeats every %v, %.2f Mbit/s on average, from %.2f to %.2f Mbit/s", in.File, in.Pace.Period,
				float64(in.Pace.Mean())/1e6, float64(slices.Min(in.Pace.Rates))/1e6, float64(in.Pace.Peak())/1e6)
		case faults.Flap:
			what = fmt.Sprintf("down for %v of every %v", s.RealDuration(*in.Down), s.RealDuration(*in.Period))
		case faults.Link:
			what = properties(in)
		}
		fmt.Fprintf(w, "%s\tfrom %v\t%s\t%s\n", in, s.RealDuration(in.At), until, what)
	}
	return w.Flush()
}

// properties writes the properties that a Link gives as in a scenario.
func properties(in faults.LinkInject) string {
	text, err := json.Marshal(struct {
		shaping.Access
		shaping.Path
	}{in.Access, in.Path})
	if err != nil {
		return err.Error() // never: they were read from text
	}
	return strings.NewReplacer(`"`, "", ":", ": ", ",", ", ").Replace(strings.Trim(string(text), "{}"))
}

func describePath(p shaping.PathPlan, self bool) string {
	if self {
		return "·"
	}
	parts := []string{time.Duration(p.OneWayDelay).String()}
	if p.Jitter > 0 {
		parts[0] += " ± " + time.Duration(p.Jitter).String()
		if p.JitterDistribution != 0 {
			parts[0] += " " + p.JitterDistribution.String()
		}
	}
	if p.Rate > 0 {
		parts = append(parts, "rate "+p.Rate.String())
	}
	if loss := p.MeanLoss(); p.LossBurst != (shaping.LossBurst{}) {
		parts = append(parts, loss.String()+" in bursts")
	} else if loss > 0 {
		parts = append(parts, loss.String())
	}
	for _, share := range []struct {
		of   shaping.Probability
		what string
	}{{p.Duplicate, "duplicated"}, {p.Reorder, "overtaking"}, {p.Corrupt, "corrupt"}} {
		if share.of > 0 {
			parts = append(parts, share.of.String()+" "+share.what)
		}
	}
	return strings.Join(parts, ", ")
}
