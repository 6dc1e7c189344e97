package shaping_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"testbed/internal/errs"
	"testbed/shaping"
)

// planOf resolves YAML for the nodes coordinator and w0 to w(n−1).
func planOf(t testing.TB, n int, text string) (*shaping.Plan, error) {
	t.Helper()
	var spec shaping.Spec
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&spec); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	names := []string{"coordinator"}
	for i := range n {
		names = append(names, fmt.Sprintf("w%d", i))
	}
	return shaping.NewPlan(spec, names, 5*time.Millisecond, 1)
}

// continents is a network of 64 workers on three continents.
const continents = `
default: {access_preset: cable, one_way_delay: 4ms}
groups:
  america: {nodes: [coordinator, w0-w20], rate_up: 20mbit}
  europe: {nodes: [w21-w41], access_preset: fibre}
  asia: {nodes: [w42-w63]}
paths:
  - {between: [america, europe], path_preset: washington-frankfurt, jitter: 2ms}
  - {between: [america, asia], path_preset: dallas-tokyo, loss_burst: {enter: 0.1%, leave: 25%, loss_inside: 80%}}
  - {from: europe, to: asia, path_preset: frankfurt-tokyo}
  - {from: asia, to: europe, one_way_delay: 120ms, jitter: 5ms, jitter_distribution: pareto, loss: 1%}
pairs: [{from: w42, to: w21, one_way_delay: 100ms, rate: 3mbit, reorder: 1%, duplicate: 2%, corrupt: 3%}]
nodes: {w1: {rate_up: 24mbit, queue: 256kb}}
`

func TestThreeContinents(t *testing.T) {
	plan, err := planOf(t, 64, continents)
	if err != nil {
		t.Fatal(err)
	}
	path := func(from, to string) shaping.PathPlan { return plan.Paths[plan.Index(from)][plan.Index(to)] }
	cable, fibre := 14*time.Millisecond, 2*time.Millisecond
	for _, c := range []struct {
		from, to string
		want     shaping.PathPlan
	}{
		{"w0", "w20", shaping.PathPlan{OneWayDelay: shaping.Duration(4*time.Millisecond + 2*cable)}},
		{"coordinator", "w41", shaping.PathPlan{OneWayDelay: shaping.Duration(45500*time.Microsecond + cable + fibre), Jitter: *ms(2)}},
		{"w41", "w0", shaping.PathPlan{OneWayDelay: shaping.Duration(45500*time.Microsecond + cable + fibre), Jitter: *ms(2)}},
		{"w63", "w0", shaping.PathPlan{OneWayDelay: shaping.Duration(71500*time.Microsecond + 2*cable), LossBurst: shaping.LossBurst{Enter: 0.001, Leave: 0.25, LossInside: 0.8}}},
		{"w21", "w42", shaping.PathPlan{OneWayDelay: shaping.Duration(116500*time.Microsecond + cable + fibre)}},
		// The pair keeps what it does not give from its groups' path.
		{"w42", "w21", shaping.PathPlan{
			OneWayDelay: shaping.Duration(100*time.Millisecond + cable + fibre), Rate: 3e6, Jitter: *ms(5), JitterDistribution: shaping.Pareto,
			Loss: 0.01, Reorder: 0.01, Duplicate: 0.02, Corrupt: 0.03,
		}},
	} {
		if diff := cmp.Diff(c.want, path(c.from, c.to)); diff != "" {
			t.Errorf("%s to %s:\n%s", c.from, c.to, diff)
		}
	}
	for name, want := range map[string]shaping.NodePlan{
		"w0":  {RateUp: 20e6, RateDown: 5e6, Queue: shaping.DefaultQueue, AccessOneWayDelay: shaping.Duration(cable)},
		"w1":  {RateUp: 24e6, RateDown: 5e6, Queue: shaping.Queue{Bytes: 256 << 10}, AccessOneWayDelay: shaping.Duration(cable)},
		"w30": {RateUp: 5e6, RateDown: 20e6, Queue: shaping.DefaultQueue, AccessOneWayDelay: shaping.Duration(fibre)},
	} {
		got := plan.Nodes[plan.Index(name)]
		want.Name, want.Addr, want.MAC = got.Name, got.Addr, got.MAC
		if got != want {
			t.Errorf("%s is\n%+v, want\n%+v", name, got, want)
		}
	}
}

func TestTheCloserLevelWins(t *testing.T) {
	plan, err := planOf(t, 3, `
default: {loss: 1%, jitter: 1ms, rate_up: 10mbit}
groups: {all: {nodes: ["w*"], rate_up: 20mbit}}
paths: [{between: [all, all], loss_burst: {enter: 1%, leave: 10%, loss_inside: 100%}}]
pairs: [{from: w0, to: w1, loss: 0%}]
nodes: {w2: {rate_up: unlimited}}
`)
	if err != nil {
		t.Fatal(err)
	}
	burst := shaping.LossBurst{Enter: 0.01, Leave: 0.1, LossInside: 1}
	for _, c := range []struct {
		from, to int
		want     shaping.PathPlan
	}{
		{0, 1, shaping.PathPlan{OneWayDelay: *ms(5), Jitter: *ms(1), Loss: 0.01}},
		{2, 1, shaping.PathPlan{OneWayDelay: *ms(5), Jitter: *ms(1), LossBurst: burst}},
		{1, 2, shaping.PathPlan{OneWayDelay: *ms(5), Jitter: *ms(1)}},
	} {
		if got := plan.Paths[c.from][c.to]; got != c.want {
			t.Errorf("path %d→%d is %+v, want %+v", c.from, c.to, got, c.want)
		}
	}
	for i, want := range []shaping.Rate{10e6, 20e6, 20e6, 0} {
		if got := plan.Nodes[i].RateUp; got != want {
			t.Errorf("node %d sends %v, want %v", i, got, want)
		}
	}
}

func TestTheLanguageNamesTheFieldAndTheMend(t *testing.T) {
	groups := "groups: {a: {nodes: [w0]}, b: {nodes: [w1-w2]}}\n"
	for _, c := range []struct{ text, want string }{
		{`groups: {a: {nodes: []}}`, "real.links.groups.a.nodes is empty: name nodes, ranges such as w0-w20 or patterns such as w*"},
		{`groups: {a: {nodes: [w0-w9]}}`, `real.links.groups.a.nodes[0]: the range needs the node "w9", which does not exist; the nodes are coordinator, w0, w1, w2`},
		{`groups: {a: {nodes: [w2-w0]}}`, `real.links.groups.a.nodes[0]: the range "w2-w0" ends before it begins`},
		{`groups: {a: {nodes: [w0, x*]}}`, `real.links.groups.a.nodes[1]: there is no node "x*"; the nodes are coordinator, w0, w1, w2`},
		{`groups: {a: {nodes: ["w["]}}`, `real.links.groups.a.nodes[0]: the pattern "w[" is malformed; "*" stands for any characters`},
		{`groups: {a: {nodes: [w0-w1]}, b: {nodes: [w1]}}`, `real.links.groups.b.nodes[0]: node w1 is also in the group a; a node can be in one group only`},
		{groups + `paths: [{between: [a, c]}]`, `real.links.paths[0].between[1]: there is no group "c"; the groups are a, b`},
		{groups + `paths: [{from: a}]`, `real.links.paths[0].to is missing: choose one of the groups a, b`},
		{`paths: [{between: [a, a]}]`, `real.links.paths[0].between[0]: there are no groups; define them in real.links.groups`},
		{groups + `paths: [{between: [a]}]`, `real.links.paths[0].between must name two groups, not 1: for the paths within a group, name the group twice`},
		{groups + `paths: [{between: [a, b], to: b}]`, `real.links.paths[0] cannot combine "between" with "from" or "to": give "between" for both directions, or "from" and "to" for one`},
		{groups + `paths: [{between: [a, b]}, {from: b, to: a}]`, `real.links.paths[1]: the path from b to a is already given by paths[0]; merge the two`},
		{groups + `paths: [{between: [a, b], jitter: 9ms}]`, `real.links.paths[0].jitter: 9ms exceeds the one-way delay of 5ms, and a packet cannot arrive before it was sent; lower the jitter or raise one_way_delay`},
		{`default: {jitter: 2ms, jitter_distribution: normal}`, `real.links.default.jitter: with jitter 2ms and the distribution normal, packets would arrive up to 7.337ms before the one-way delay of 5ms is over, that is, before they are sent; lower the jitter or raise one_way_delay`},
		{`default: {one_way_delay: 50s, access_one_way_delay: 6s}`, `real.links.default.one_way_delay: 1m2s is above the limit of 1m0s, including the access links`},
		{`default: {one_way_delay: 10s, jitter: 3s}`, `real.links.default.jitter: 3s is above the limit of 2s`},
		{`default: {loss: 1%, loss_burst: {enter: 1%, leave: 1%, loss_inside: 1%}}`, `real.links.default.loss_burst cannot be combined with loss: give one of the two (loss_outside is the loss outside bursts)`},
		{`default: {loss_burst: {enter: 1%, leave: 10%, loss_inside: 1%, loss_outside: 2%}}`, `real.links.default.loss_burst.loss_outside: 2% exceeds the loss of 1% inside a burst; exchange the two`},
		{`default: {loss_burst: {enter: 1%, leave: 0%, loss_inside: 1%}}`, `real.links.default.loss_burst.leave is zero, but enter, leave and loss_inside of a burst must be above 0%: give a larger share, or loss instead of loss_burst`},
	} {
		_, err := planOf(t, 3, c.text)
		if err == nil || strings.Split(err.Error(), "\n")[0] != c.want {
			t.Errorf("%s\ngives %v\nwant  %s", c.text, err, c.want)
		}
	}
}

func TestScalarsSayWhatIsPossible(t *testing.T) {
	for _, c := range []struct {
		to   interface{ UnmarshalText([]byte) error }
		text string
		want string
	}{
		{new(shaping.AccessPreset), "isdn", `there is no access preset "isdn"; choose one of cable, dsl, fibre, lte, starlink`},
		{new(shaping.PathPreset), "dallas-dallas", `there is no path preset "dallas-dallas"; choose datacentre, zones, or two different regions of dallas, toronto, washington, frankfurt, london, madrid, osaka, sydney, tokyo, saopaulo joined by a hyphen, for example dallas-tokyo`},
		{new(shaping.JitterDistribution), "Normal", `"Normal" is not a distribution; the distributions are uniform, normal, pareto`},
		{new(shaping.Queue), "16kb", `queue "16kb" is below 68kb, the size of one batch of a sender: a smaller queue would drop every batch`},
		{new(shaping.Queue), "20", `queue "20" is neither a time nor a size: write for example 20ms or 256kb`},
		{new(shaping.Queue), "2gb", `queue "2gb" is above the limit of 1gb`},
	} {
		if err := c.to.UnmarshalText([]byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%q gives %v, want %s", c.text, err, c.want)
		}
	}
}

// TestJitterTables compares the moments with those of the distributions;
// those of netem's pareto are what iproute2's pareto.dist has.
func TestJitterTables(t *testing.T) {
	for d, want := range map[shaping.JitterDistribution]struct{ low, high, mean, deviation float64 }{
		shaping.Uniform: {-1, 1, 0, 1 / math.Sqrt(3)},
		shaping.Normal:  {-3.67, 3.67, 0, 1},
		shaping.Pareto:  {-2. / 3, 4, -0.033, 0.821},
	} {
		table := d.Table()
		var sum, squares float64
		for i, v := range table {
			x := float64(v) / shaping.JitterScale
			sum, squares = sum+x, squares+x*x
			if i > 0 && v < table[i-1] {
				t.Fatalf("%v: the table falls at %d", d, i)
			}
		}
		n := float64(len(table))
		mean := sum / n
		got := []float64{float64(table[0]) / shaping.JitterScale, float64(table[len(table)-1]) / shaping.JitterScale, mean, math.Sqrt(squares/n - mean*mean)}
		for k, w := range []float64{want.low, want.high, want.mean, want.deviation} {
			if math.Abs(got[k]-w) > 0.005 {
				t.Errorf("%v: low, high, mean and deviation are %.4f, want %+v", d, got, want)
				break
			}
		}
	}
	plan, err := planOf(t, 1, `default: {one_way_delay: 10ms, jitter: 3ms, jitter_distribution: pareto}`)
	if err != nil {
		t.Fatal(err)
	}
	if p := plan.Paths[0][1]; p.Fastest() > *ms(9) || p.Fastest() < *ms(8)-shaping.Duration(time.Microsecond) || p.Slowest() < shaping.Duration(21990*time.Microsecond) || p.Slowest() > *ms(22) {
		t.Errorf("a pareto jitter of 3ms on 10ms: %v to %v, want 8ms to 22ms", p.Fastest(), p.Slowest())
	}
}

func TestMeanLoss(t *testing.T) {
	for _, c := range []struct {
		path shaping.PathPlan
		want float64
	}{
		{shaping.PathPlan{Loss: 0.25}, 0.25},
		{shaping.PathPlan{Loss: 0.25, Cut: true}, 1},
		{shaping.PathPlan{LossBurst: shaping.LossBurst{Enter: 0.01, Leave: 0.09, LossInside: 0.5, LossOutside: 0.1}}, 0.1*0.5 + 0.9*0.1},
		{shaping.PathPlan{}, 0},
	} {
		if got := float64(c.path.MeanLoss()); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v loses %v, want %v", c.path, got, c.want)
		}
	}
}

func TestIdle(t *testing.T) {
	nodes := []string{"coordinator", "w0", "w1"}
	queue := &shaping.Queue{Time: *ms(50)}
	rate, jitter := new(shaping.Rate(1e6)), ms(1)
	normal := new(shaping.Normal)
	distributed := shaping.Path{JitterDistribution: normal}
	group := map[string]shaping.Group{"g": {Nodes: []string{"w*"}}}
	for _, test := range []struct {
		name string
		spec shaping.Spec
		want string // the field, or nothing
	}{
		{"nothing", shaping.Spec{}, ""},
		{"queue by default", shaping.Spec{Default: shaping.Properties{Access: shaping.Access{Queue: queue}}}, "default.queue"},
		{"that one node uses", shaping.Spec{
			Default: shaping.Properties{Access: shaping.Access{Queue: queue}},
			Nodes:   map[string]shaping.Access{"w1": {RateDown: rate}},
		}, ""},
		{"queue of a node", shaping.Spec{Nodes: map[string]shaping.Access{"w0": {Queue: queue}, "w1": {RateUp: rate}}}, "nodes.w0.queue"},
		{"queue of a group", shaping.Spec{Groups: map[string]shaping.Group{"g": {Nodes: []string{"w*"}, Access: shaping.Access{Queue: queue}}}}, "groups.g.queue"},
		{"distribution by default", shaping.Spec{Default: shaping.Properties{Path: distributed}}, "default.jitter_distribution"},
		{"that one pair uses", shaping.Spec{
			Default: shaping.Properties{Path: shaping.Path{OneWayDelay: ms(5), JitterDistribution: normal}},
			Pairs:   []shaping.Pair{{From: "w0", To: "w1", Path: shaping.Path{Jitter: jitter}}},
		}, ""},
		{"distribution of a pair", shaping.Spec{Pairs: []shaping.Pair{{From: "w0", To: "w1", Path: distributed}}}, "pairs[0].jitter_distribution"},
		{"distribution between groups", shaping.Spec{Groups: group, Paths: []shaping.GroupPath{{Between: []string{"g", "g"}, Path: distributed}}}, "paths[0].jitter_distribution"},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := shaping.NewPlan(test.spec, nodes, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			err = test.spec.Idle(plan)
			var bad *errs.FieldError
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (!errors.As(err, &bad) || bad.Field != "real.links."+test.want):
				t.Errorf("got %v, want an error about %s", err, test.want)
			}
		})
	}
}
