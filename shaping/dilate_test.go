package shaping_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"testbed/internal/errs"
	"testbed/shaping"
)

func TestDilated(t *testing.T) {
	rate, thin, delay, jitter := shaping.Rate(10_000_000), shaping.Rate(2000), shaping.Duration(20*time.Millisecond), shaping.Duration(2*time.Millisecond)
	loss := shaping.Probability(0.01)
	plan, err := shaping.NewPlan(shaping.Spec{
		Default: shaping.Properties{
			Access: shaping.Access{RateUp: &rate, Queue: &shaping.Queue{Time: shaping.Duration(50 * time.Millisecond)}},
			Path:   shaping.Path{OneWayDelay: &delay, Jitter: &jitter, Loss: &loss},
		},
		Pairs: []shaping.Pair{{From: "a", To: "b", Path: shaping.Path{Rate: &thin}}},
	}, []string{"a", "b", "c"}, 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	plan.TCP = "bbr"
	if same, err := plan.Dilated(1); same != plan || err != nil {
		t.Errorf("dilated once: another plan, %v", err)
	}
	slow, err := plan.Dilated(4)
	if err != nil {
		t.Fatal(err)
	}
	n, way := slow.Nodes[0], slow.Paths[0][2]
	if n.RateUp != rate/4 || n.RateDown != 0 || n.Queue.Time != shaping.Duration(200*time.Millisecond) || n.Addr != plan.Nodes[0].Addr {
		t.Errorf("the access link is %+v", n)
	}
	if way.OneWayDelay != 4*delay || way.Jitter != 4*jitter || way.Loss != loss || way.Rate != 0 {
		t.Errorf("the path is %+v", way)
	}
	if slow.Paths[0][1].Rate != 1000 { // what 2 kbit/s come to is less than a link may have
		t.Errorf("the thin path has %v", slow.Paths[0][1].Rate)
	}
	if slow.Seed != plan.Seed || slow.TCP != plan.TCP || slow.Paths[1][1] != (shaping.PathPlan{}) {
		t.Errorf("the rest is %+v", slow)
	}
	if plan.Nodes[0].RateUp != rate || plan.Paths[0][2].OneWayDelay != delay {
		t.Error("the plan itself was changed")
	}
	for x, want := range map[float64]string{4000: "one_way_delay: from a to b, with a dilation of 4000", 1001: "jitter: from a to b, with a dilation of 1001: 2.002s is above"} {
		_, err := plan.Dilated(x)
		if _, is := errors.AsType[*errs.FieldError](err); !is || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("dilated %v times: %v", x, err)
		}
	}
}
