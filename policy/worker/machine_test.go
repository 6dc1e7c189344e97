package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/policy/worker"
)

// show writes actions as one would say them.
func show(actions []worker.Action) string {
	var out []string
	for _, a := range actions {
		s := strings.TrimPrefix(fmt.Sprintf("%T%+v", a, a), "*worker.")
		s = strings.NewReplacer("&", "", " Problem:", " ", "Event:", "").Replace(s)
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// TestTranscripts plays lives of a worker, of two inner steps a round. The
// expectations are read line by line: what happens, and what is done about it.
func TestTranscripts(t *testing.T) {
	slow := worker.Slow{Factor: 3, AtJoin: true}
	ring := []policy.ID{0, 1}
	type line struct {
		event worker.Event
		want  string
	}
	const (
		step1    = "BeginStep{Round:1 Step:1 Factor:1 Last:false Late:0}"
		step2    = "BeginStep{Round:1 Step:2 Factor:1 Last:true Late:0}"
		arrival1 = "Say{{ID:1 Round:1} }"
		leave    = "Say{{ID:1} }"
	)
	begin := []line{{worker.Start{Round: 1}, step1}, {worker.StepDone{}, step2}, {worker.StepDone{}, arrival1}}
	reduce := append(slices.Clone(begin), line{worker.Reduce{Round: 1, Epoch: 7, Ring: ring}, "BeginReduce{Round:1 Epoch:7 Ring:[0 1] Zero:false}"})
	reduced := append(slices.Clone(reduce), line{worker.Reduced{}, "Say{{ID:1 Round:1 Epoch:7} }"})
	for name, c := range map[string][]line{
		"a round, and the next after its outer step": append(slices.Clone(reduced),
			line{worker.Start{Round: 2, OuterSteps: 1, Checkpoint: true}, "Apply{OuterSteps:1} Merge{OuterSteps:1 Step:0} Save{Stateless:false} BeginStep{Round:2 Step:1 Factor:1 Last:false Late:0}"}),
		"the last round": append(slices.Clone(reduced),
			line{worker.Finish{OuterSteps: 1}, "Apply{OuterSteps:1} End{Evicted:false}"}),
		"sidelined: the steps are dropped, and what came too late is kept for the next contribution": append(slices.Clone(begin),
			line{worker.Fetch{OuterSteps: 1, Donors: []policy.ID{0}}, "BeginFetch{OuterSteps:1 Donors:[0] Current:true Agreed:false}"},
			line{worker.Fetched{OuterSteps: 1}, "Say{{ID:1 OuterSteps:1 Agreed:false} }"},
			line{worker.Start{Round: 2, OuterSteps: 1}, "BeginStep{Round:2 Step:1 Factor:1 Last:false Late:0}"},
			line{worker.StepDone{}, "BeginStep{Round:2 Step:2 Factor:1 Last:true Late:1}"}),
		"a fetch ends the steps under way": {
			begin[0],
			{worker.Fetch{OuterSteps: 1, Donors: []policy.ID{0}}, "Stop{} BeginFetch{OuterSteps:1 Donors:[0] Current:true Agreed:false}"},
			{worker.StepDone{}, ""},
			{worker.FetchFailed{}, "Say{{ID:1} }"},
			{worker.Fetch{OuterSteps: 1}, "Say{{ID:1} no donor given}"},
		},
		"fetches what all regions agreed on": {
			begin[0],
			{worker.Fetch{OuterSteps: 1, Donors: []policy.ID{0}, Agreed: true}, "Stop{} BeginFetch{OuterSteps:1 Donors:[0] Current:true Agreed:true}"},
			{worker.Fetched{OuterSteps: 1}, "Say{{ID:1 OuterSteps:1 Agreed:true} }"},
			{worker.Fetch{OuterSteps: 1, Donors: []policy.ID{2}}, "BeginFetch{OuterSteps:1 Donors:[2] Current:true Agreed:false}"},
			{worker.Fetched{OuterSteps: 1}, "Say{{ID:1 OuterSteps:1 Agreed:false} }"},
		},
		"aborted and begun again with the same contribution": append(slices.Clone(reduce),
			line{worker.Abort{Epoch: 6}, ""},
			line{worker.Abort{Epoch: 7}, "StopReduce{}"},
			line{worker.Reduced{}, ""},
			line{worker.Reduce{Round: 1, Epoch: 8, Ring: []policy.ID{1}}, "BeginReduce{Round:1 Epoch:8 Ring:[1] Zero:false}"},
			line{worker.ReduceFailed{Peer: &ring[1]}, fmt.Sprintf("Say{{ID:1 Round:1 Epoch:8 Peer:%p Alone:false} }", &ring[1])}),
		"its reduction fails at once": append(slices.Clone(reduce),
			line{worker.FailReduce{}, "StopReduce{} Say{{ID:1 Round:1 Epoch:7 Peer:<nil> Alone:false} the scenario has it fail}"},
			line{worker.Abort{Epoch: 7}, ""},
			line{worker.Reduce{Round: 1, Epoch: 8, Ring: ring}, "BeginReduce{Round:1 Epoch:8 Ring:[0 1] Zero:false}"}),
		"its next reduction fails": append(append(slices.Clone(begin), line{worker.FailReduce{}, ""}),
			line{worker.Reduce{Round: 1, Epoch: 7, Ring: ring}, "Say{{ID:1 Round:1 Epoch:7 Peer:<nil> Alone:false} the scenario has it fail}"},
			line{worker.Reduce{Round: 1, Epoch: 8, Ring: ring}, "BeginReduce{Round:1 Epoch:8 Ring:[0 1] Zero:false}"}),
		"its reduction fails alone: the outcome is dropped": append(slices.Clone(reduce),
			line{worker.FailReduce{Alone: true}, ""},
			line{worker.Reduced{}, "Say{{ID:1 Round:1 Epoch:7 Peer:<nil> Alone:true} the scenario has it fail}"},
			line{worker.Fetch{OuterSteps: 1, Donors: []policy.ID{0}, Whole: true}, "BeginFetch{OuterSteps:1 Donors:[0] Current:false Agreed:false}"}),
		"the outcome of an aborted reduction is not applied": append(slices.Clone(reduced),
			line{worker.Abort{Epoch: 7}, ""},
			line{worker.Start{Round: 2, OuterSteps: 1}, "GiveUp{Problem:asked to begin round 2 from outer step 1 while at 0}"}),
		"nothing to contribute": {
			begin[0],
			{worker.Reduce{Round: 1, Epoch: 1, Ring: ring}, "Stop{} Say{{ID:1 Round:1 Epoch:1 Peer:<nil> Alone:false} this worker has no contribution to the round}"},
		},
		"a joiner contributes zeros": {
			{worker.Fetch{OuterSteps: 3, Donors: []policy.ID{0, 2}}, "BeginFetch{OuterSteps:3 Donors:[0 2] Current:false Agreed:false}"},
			{worker.Fetched{OuterSteps: 3}, "Say{{ID:1 OuterSteps:3 Agreed:false} }"},
			{worker.Reduce{Round: 4, Epoch: 9, Ring: ring, Zero: true}, "BeginReduce{Round:4 Epoch:9 Ring:[0 1] Zero:true}"},
		},
		"a speed from the join on counts from the second step": {
			{slow, ""},
			{worker.Start{Round: 1}, step1 + " SpeedChanged{Factor:3 Slow:true}"},
			{worker.StepDone{}, "BeginStep{Round:1 Step:2 Factor:3 Last:true Late:0}"},
			{worker.Restore{}, "SpeedChanged{Factor:1 Slow:false}"},
		},
		"leaves at once": {
			begin[0],
			{worker.Leave{}, "Stop{} " + leave},
			{worker.StepDone{}, ""},
			{worker.Evict{}, "End{Evicted:true}"},
		},
		"leaves when the outcome of its reduction is applied": append(slices.Clone(reduce),
			line{worker.Leave{}, ""},
			line{worker.Reduced{}, "Say{{ID:1 Round:1 Epoch:7} }"},
			line{worker.Start{Round: 2, OuterSteps: 1}, "Apply{OuterSteps:1} Merge{OuterSteps:1 Step:0} " + leave}),
		"leaves when its reduction has failed": append(slices.Clone(reduce),
			line{worker.Leave{}, ""},
			line{worker.ReduceFailed{}, "Say{{ID:1 Round:1 Epoch:7 Peer:<nil> Alone:false} } " + leave}),
		"preempted in its inner steps: it stays for the outcome": append([]line{begin[0], {worker.Preempt{}, ""}}, append(slices.Clone(reduced[1:]),
			line{worker.Start{Round: 2, OuterSteps: 1}, "Apply{OuterSteps:1} Merge{OuterSteps:1 Step:0} " + leave},
			line{worker.Evict{Rejoin: true}, "End{Evicted:true}"})...),
		"preempted, and the round goes on without it": {
			begin[0],
			{worker.Preempt{}, ""},
			{worker.Fetch{OuterSteps: 1, Donors: ring}, "Stop{} " + leave},
		},
		"preempted while it works on no round": {
			{worker.Fetch{OuterSteps: 1, Donors: ring}, "BeginFetch{OuterSteps:1 Donors:[0 1] Current:false Agreed:false}"},
			{worker.Preempt{}, "Stop{} " + leave},
		},
		"joins anew with the state and the speed that it has": append(slices.Clone(reduced),
			line{worker.Start{Round: 2, OuterSteps: 1}, "Apply{OuterSteps:1} Merge{OuterSteps:1 Step:0} BeginStep{Round:2 Step:1 Factor:1 Last:false Late:0}"},
			line{worker.Slow{Factor: 3}, "SpeedChanged{Factor:3 Slow:true}"},
			line{worker.Evict{Rejoin: true}, "Stop{} Rejoin{}"},
			line{worker.Fetch{OuterSteps: 4, Donors: ring}, "BeginFetch{OuterSteps:4 Donors:[0 1] Current:true Agreed:false}"},
			line{worker.Fetched{OuterSteps: 4}, "Say{{ID:1 OuterSteps:4 Agreed:false} }"},
			line{worker.Start{Round: 5, OuterSteps: 4}, "BeginStep{Round:5 Step:1 Factor:3 Last:false Late:0}"}),
		"leaves before it is admitted again": {
			begin[0],
			{worker.Evict{Rejoin: true}, "Stop{} Rejoin{}"},
			{worker.Leave{}, leave},
			{worker.Evict{}, "End{Evicted:true}"},
		},
	} {
		m := worker.New(1, 2, 0)
		for i, l := range c {
			if got := show(m.Step(l.event)); got != l.want {
				t.Errorf("%s: line %d, %+v:\n%s\nwant\n%s", name, i+1, l.event, got, l.want)
				break
			}
		}
	}
}

// driven is a machine and what its driver knows of it.
type driven struct {
	*rapid.T
	machine  *worker.Machine
	overlap  int
	running  string // the task under way
	reducing bool
	round    int          // of the inner steps
	done     int          // of them
	arrived  int          // the last round that it has arrived in since it took up steps anew
	merged   int          // the last outer step whose outcome is in the local parameters
	applied  int          // the last one taken with an outcome
	epoch    policy.Epoch // of the last reduction asked for
	outcome  policy.Epoch // epoch of an outcome that waits to be applied
	left     bool
	alone    bool // the next outcome is dropped, and so fails the reduction
}

const innerSteps = 2

// draw makes up an event: of the coordinator, of the scenario, or the end of the
// task under way.
func (d *driven) draw() worker.Event {
	small := func(what string) int { return rapid.IntRange(0, 3).Draw(d.T, what) }
	ids := rapid.SampledFrom([][]policy.ID{{0}, {0, 1}, {1, 0, 2}, {1}, nil})
	ok := rapid.Bool().Draw(d.T, "ok")
	switch kind := rapid.IntRange(0, 11).Draw(d.T, "kind"); {
	case kind == 0:
		return worker.Start{Round: small("round") + 1, OuterSteps: small("outer steps"), Residual: ok}
	case kind == 1:
		d.epoch++
		return worker.Reduce{Round: small("round") + 1, Epoch: d.epoch, Ring: ids.Draw(d.T, "ring"), Zero: ok}
	case kind == 2:
		return worker.Abort{Epoch: max(0, d.epoch-policy.Epoch(small("ago")))}
	case kind == 3:
		return worker.Fetch{OuterSteps: small("outer steps"), Donors: ids.Draw(d.T, "donors")}
	case kind == 4:
		return worker.Leave{}
	case kind == 5:
		return worker.Slow{Factor: 2, AtJoin: ok}
	case kind == 6 && rapid.IntRange(0, 3).Draw(d.T, "again") == 0:
		return worker.Evict{Rejoin: true}
	case kind == 8 && rapid.IntRange(0, 3).Draw(d.T, "fails") == 0:
		return worker.FailReduce{Alone: ok}
	case kind == 7 && rapid.IntRange(0, 3).Draw(d.T, "notice") == 0:
		return worker.Preempt{}
	case d.reducing && kind%2 == 0 && ok:
		return worker.Reduced{}
	case d.reducing && kind%2 == 0:
		return worker.ReduceFailed{}
	case d.running == "step":
		return worker.StepDone{}
	case d.running == "fetch" && ok:
		return worker.Fetched{OuterSteps: small("outer steps")}
	case d.running == "fetch":
		return worker.FetchFailed{}
	}
	return worker.Restore{}
}

// happens notes what an event says of the task under way.
func (d *driven) happens(e worker.Event) {
	switch e := e.(type) {
	case worker.StepDone:
		d.running = ""
		d.done++
	case worker.FailReduce:
		d.alone = e.Alone
	case worker.Reduced:
		if d.reducing = false; !d.alone {
			d.outcome = d.epoch
		}
		d.alone = false
	case worker.ReduceFailed:
		d.reducing = false
	case worker.Fetched, worker.FetchFailed:
		d.running = ""
	case worker.Abort:
		if e.Epoch == d.outcome {
			d.outcome = 0
		}
	case worker.Fetch, worker.Evict:
		d.outcome = 0
	}
}

func (d *driven) begin(what string) {
	if d.running != "" {
		d.Fatalf("a %s begins while a %s is under way", what, d.running)
	}
	d.running = what
}

// carryOut holds an action to what a driver relies on.
func (d *driven) carryOut(a worker.Action) {
	switch a := a.(type) {
	case *worker.Stop:
		if d.running == "" {
			d.Fatal("nothing is there to stop")
		}
		d.running = ""
	case *worker.StopReduce:
		if !d.reducing {
			d.Fatal("no reduction is there to stop")
		}
		d.reducing = false
	case *worker.BeginStep:
		d.begin("step")
		if a.Step == 1 {
			if d.done = 0; d.arrived == 0 || d.arrived != a.Round-1 || d.overlap == 0 || d.left {
				d.outcome, d.merged = 0, a.Round-1 // it begins at the outer parameters, or has merged
			}
			d.round, d.arrived = a.Round, 0
		}
		if a.Step > d.overlap && d.merged != a.Round-1 {
			d.Fatalf("step %d of round %d, the overlap being %d, and outer step %d merged last", a.Step, a.Round, d.overlap, d.merged)
		}
		if a.Step != d.done+1 || a.Last != (a.Step == innerSteps) {
			d.Fatalf("step %d begins after %d; last: %v", a.Step, d.done, a.Last)
		}
	case *worker.Merge:
		if a.OuterSteps != d.applied || d.running != "" || d.overlap > 0 && d.round == a.OuterSteps+1 && (d.done != d.overlap || a.Step != d.done) {
			d.Fatalf("%+v after %d steps of round %d, of outer step %d; under way: %q", *a, d.done, d.round, d.applied, d.running)
		}
		d.merged = a.OuterSteps
	case *worker.BeginReduce:
		if d.reducing || d.overlap == 0 && d.running != "" {
			d.Fatalf("it reduces in a %q, or twice", d.running)
		}
		d.reducing = true
		if d.outcome = 0; !slices.Contains(a.Ring, 0) {
			d.Fatal("it reduces in a ring without itself")
		}
	case *worker.BeginFetch:
		d.begin("fetch")
	case *worker.Apply:
		if d.reducing || d.overlap == 0 && d.running != "" || d.outcome == 0 {
			d.Fatalf("the outcome of epoch %d is applied; under way: %q", d.outcome, d.running)
		}
		d.outcome, d.applied = 0, a.OuterSteps
	case *worker.Say:
		_, arrives := a.Event.(policy.Arrival)
		_, leaves := a.Event.(policy.Leave)
		switch {
		case arrives && d.done != innerSteps:
			d.Fatalf("it arrives after %d of %d steps", d.done, innerSteps)
		case arrives:
			d.arrived = d.round
		case leaves && (d.running != "" || d.reducing):
			d.Fatalf("it leaves in a %s", d.running)
		case leaves:
			d.left = true // and goes nowhere ahead, should it be told to go on
		}
	}
}

// TestAnyEvents gives machines events in any order, sensible or not.
func TestAnyEvents(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		overlap := rapid.IntRange(0, innerSteps).Draw(t, "overlap")
		d := &driven{T: t, overlap: overlap, machine: worker.New(0, innerSteps, overlap)}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			e := d.draw()
			d.happens(e)
			for _, a := range d.machine.Step(e) {
				if _, ends := a.(*worker.End); ends {
					return
				}
				d.carryOut(a)
			}
			if _, leaves := e.(worker.Leave); leaves && d.running != "" && !d.reducing && d.outcome == 0 {
				t.Fatalf("it is to leave and goes on with its %s", d.running)
			}
		}
		end := d.machine.Step(worker.Evict{})
		if _, ok := end[len(end)-1].(*worker.End); !ok {
			t.Fatal("evicted, and no end")
		}
	})
}
