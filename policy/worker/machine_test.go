package worker_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/internal/transcript"
	"testbed/policy"
	"testbed/policy/worker"
)

// events are of every kind that transcripts have.
var events = []any{
	worker.Start{}, worker.Reduce{}, worker.Abort{}, worker.Fetch{}, worker.Evict{}, worker.Finish{}, worker.Leave{}, worker.Preempt{}, worker.Slow{},
	worker.Restore{}, worker.FailReduce{}, worker.StepDone{}, worker.Reduced{}, worker.ReduceFailed{}, worker.Fetched{}, worker.FetchFailed{},
}

// TestTranscripts plays lives of worker 1, of two inner steps a round: what happens, and
// what the worker does about it.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "testdata/*.txt", func(*testing.T) func(string) ([]string, error) {
		m := worker.New(1, 2, 0)
		return func(line string) (seen []string, err error) {
			read, err := transcript.Read(line, events...)
			for _, e := range read {
				for _, a := range m.Step(e.(worker.Event)) {
					seen = append(seen, transcript.Show(a))
				}
			}
			return seen, err
		}
	})
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
