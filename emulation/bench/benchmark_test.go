//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/bench"
	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/internal/testscenario"
	"testbed/scenarios"
	"testbed/scenarios/resolved"
	"testbed/shaping"
)

func options() Options {
	return Options{
		Settings: bench.Settings{Workers: 3, Elements: 1000, Repeat: 1, Bits: 8, Block: 128, Connections: 1, Groups: 1, Algorithm: "ring", Order: allreduce.NaiveOrder, Data: bench.Gaussian, Entropy: "auto"},
		Links:    bench.Links{Queue: shaping.DefaultQueue}, Backend: network.LinksAuto, Timeout: time.Second,
	}
}

// TestInWords: short reductions are in milliseconds, without an exponent.
func TestInWords(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0 ms", 0.00008512: "0.08512 ms", 0.0125: "0.0125 s", 12.3456: "12.35 s"} {
		if got := inWords(seconds); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
}

// TestBackend: a benchmark without delays or losses takes a bridge by itself,
// and no other does.
func TestBackend(t *testing.T) {
	plain, delayed := options(), options()
	delayed.Links.OneWayDelay = shaping.Duration(time.Millisecond)
	for _, test := range []struct {
		o       Options
		backend string
		want    string // empty: a *errs.FieldError
	}{
		{plain, network.LinksAuto, network.LinksBridge},
		{plain, network.LinksBridge, network.LinksBridge},
		{plain, network.LinksUser, network.LinksUser},
		{delayed, network.LinksAuto, network.LinksAuto},
		{delayed, network.LinksNetem, network.LinksNetem},
		{delayed, network.LinksBridge, ""},
	} {
		test.o.Backend = test.backend
		spec, err := test.o.spec()
		if _, usage := errors.AsType[*errs.FieldError](err); usage != (test.want == "") || err == nil && spec.Backend != test.want {
			t.Errorf("%s: %+v, %v; want %q", test.backend, spec, err, test.want)
		}
	}
}

// load takes a scenario of the library apart.
func load(t *testing.T, name string) *resolved.Scenario {
	t.Helper()
	s, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return testscenario.Resolve(t, s, "")
}

// TestScenario takes the place of the links, and says who the ranks are.
func TestScenario(t *testing.T) {
	o := options()
	o.Scenario = load(t, "three_regions")
	o.Order = bench.OptimisedOrder
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	got, err := o.spec()
	if err != nil {
		t.Fatal(err)
	}
	n := len(o.Scenario.Workers)
	if l := got.Links; l.Scenario != "three_regions" || l.SlowestRate != 100e6 || l.Rate != 0 || got.Settings.Workers != n || len(got.Settings.GroupOf) != n || got.Settings.Groups != 3 {
		t.Errorf("%+v", got)
	}
	if len(got.Plan.Nodes) != n+1 || len(got.Nodes) != n || got.Nodes[0] != o.Scenario.Workers[0].ID.Node() || len(got.Ordered.Ring) != n {
		t.Errorf("%+v", got)
	}
	o.Scenario = load(t, "homogeneous") // it has no groups
	o.GroupOf, o.Algorithm, o.Order = nil, "hierarchical", allreduce.NaiveOrder
	if e, ok := errors.AsType[*errs.FieldError](o.check()); !ok || e.Field != "algorithm" {
		t.Errorf("%v", e)
	}
}

func TestUsage(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"timeout":     func(o *Options) { o.Timeout = 0 },
		"group_delay": func(o *Options) { o.Links.GroupDelay = shaping.Duration(time.Millisecond) },
		"elements":    func(o *Options) { o.Elements, o.Workers = 1<<30, 256 },
		"against":     func(o *Options) { o.Against = []string{"iperf3", "nccl"} },
		"tcp":         func(o *Options) { o.TCP = []string{"reno"} },
		"elements ":   func(o *Options) { o.Against, o.Elements = []string{"pccl"}, 47 },
	} {
		o := options()
		if err := o.check(); err != nil {
			t.Fatalf("it may be asked for: %v", err)
		}
		change(&o)
		_, err := Run(context.Background(), o)
		if wrong, ok := errors.AsType[*errs.FieldError](err); !ok || wrong.Field != strings.TrimSpace(want) {
			t.Errorf("%v; want what is wrong with the field %s", err, want)
		}
	}
}

// TestAnswers: every rank's answer finds its place, and is counted once.
func TestAnswers(t *testing.T) {
	b := &benchmark{spec: ringSpec{Nodes: []string{"w0", "w1"}}, waiting: 2, current: bench.Reduction{Reduced: make([]bench.Reduced, 2), Checked: make([]bench.Checked, 2)}}
	answer := func(rank int, r bench.Report) {
		t.Helper()
		data, err := json.Marshal(r)
		if err == nil {
			err = b.answered(rank, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	answer(1, bench.Report{Reduced: &bench.Reduced{}})
	if b.waiting != 1 {
		t.Errorf("waiting for %d", b.waiting)
	}
	answer(0, bench.Report{Checked: &bench.Checked{}})
	if b.waiting != 0 {
		t.Errorf("waiting for %d", b.waiting)
	}
	if err := b.answered(0, []byte("{")); err == nil || !strings.Contains(err.Error(), "w0") {
		t.Errorf("%v", err)
	}
}
