package calibrate

import (
	"math"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// written is a record made by hand, at a time scale of 1: four workers on links of
// 8 ms one way. Inner steps are 3 ms late, control messages take 2 ms more than
// their links, and a reduction sends half of the plain bytes. disturb says what
// else happens in a round.
func written(t *testing.T, disturb map[int][]record.Event) (r *Run, reduction policy.Time) {
	t.Helper()
	s := parse(t, "mine.json", []byte(strings.Replace(string(atRate("10mbit", 1, 1_000_000)), `"off"`, `"auto"`, 1)))
	r = &Run{Name: "by hand", Policy: scenarios.Baseline, Scenario: s}
	const oneWay, step, message = 8000, 103_000, 2000
	all := []policy.ID{0, 1, 2, 3}
	// Half a megabyte of codes: a ring of four sends 6/4 of it at 10 Mbit/s, of
	// which frames leave 1.2 MB/s or somewhat less, and six hops.
	reduction = 6*oneWay + 1_500_000/2*1_000_000/1_200_000
	add := func(e record.Event) { r.Events = append(r.Events, e) }
	now := policy.Time(0)
	for round := 1; round <= 6; round++ {
		for _, e := range disturb[round] {
			e.T = now
			add(e)
		}
		for _, id := range all {
			for k := range 2 {
				add(record.Event{T: now + oneWay + message + policy.Time(k+1)*step, Type: record.Step, Node: id.Node(), Round: round, Step: k + 1, Duration: step})
			}
			add(record.Event{T: now + 2*(oneWay+message) + 2*step, Type: record.Arrive, Node: id.Node(), Round: round})
		}
		now += 2*(oneWay+message) + 2*step
		add(record.Event{T: now, Type: record.ReduceStart, Round: round, Epoch: policy.Epoch(round), Participants: all})
		now += 2*(oneWay+message) + reduction
		add(record.Event{T: now, Type: record.ReduceDone, Round: round, Epoch: policy.Epoch(round), Participants: all, Duration: reduction, BytesSent: 4 * 1_500_000 / 2})
		add(record.Event{T: now, Type: record.OuterStep, Round: round, Epoch: policy.Epoch(round), Participants: all})
	}
	return r, reduction
}

// TestCodedRunIsFitted: the bytes are those of the record, not what the scenario
// would send plain.
func TestCodedRunIsFitted(t *testing.T) {
	r, reduction := written(t, nil)
	c, err := Fit([]*Run{r})
	if err != nil {
		t.Fatal(err)
	}
	if step, message := c.Costs.Step.Value, c.Costs.Message.Value; math.Abs(step-3) > 0.01 || math.Abs(message-2) > 0.01 {
		t.Errorf("steps are %v ms late, messages cost %v ms", step, message)
	}
	var o Observations
	if err := o.Observe(r); err != nil {
		t.Fatal(err)
	}
	for _, w := range o.Reductions[1:] { // the first one connects
		if want := float64(reduction) / 1e6; math.Abs(w.Links/want-1) > 0.1 || math.Abs(w.Measured/want-1) > 1e-5 {
			t.Errorf("the links take %v s, want about %v", w.Links, want)
		}
	}
	if c.Coded != 6 || len(c.LeftOut) != 0 {
		t.Errorf("%d coded, left out %+v", c.Coded, c.LeftOut)
	}
	untold := ""
	for _, u := range c.Untold {
		untold += u.Cost + " "
	}
	if untold != "dial reduce hop efficiency fetch join " && untold != "reduce hop efficiency fetch join " {
		t.Errorf("not told: %s", untold)
	}
}

// TestDisturbedRoundsAreLeftOut, and the reason is said.
func TestDisturbedRoundsAreLeftOut(t *testing.T) {
	r, _ := written(t, map[int][]record.Event{
		2: {{Type: record.LinkFault, Op: "Loss", From: "w0", To: "w1"}}, 3: {{Type: record.LinkRestored, Op: "Loss", From: "w0", To: "w1"}},
		4: {{Type: record.Partition, IDs: []policy.ID{1, 2}}, {Type: record.Heal, IDs: []policy.ID{1}}},
		5: {{Type: record.Evict, Node: "w2"}},
		6: {{Type: record.CoordinatorCrash}, {Type: record.CoordinatorBack}},
	})
	c, err := Fit([]*Run{r})
	if err != nil {
		t.Fatal(err)
	}
	want := []LeftOut{{2, leftLinks}, {1, leftNobody}, {2, leftCut}}
	if len(c.LeftOut) != 3 || c.LeftOut[0] != want[0] || c.LeftOut[1] != want[1] || c.LeftOut[2] != want[2] {
		t.Errorf("left out %+v, want %+v", c.LeftOut, want)
	}
	r.Valid = map[int]bool{2: true}
	if _, err := Fit([]*Run{r}); err == nil || !strings.Contains(err.Error(), "1 because "+leftLinks+"; 5 because "+leftInvalid) {
		t.Errorf("without a round that counts: %v", err)
	}
}

// TestOtherMachinesAreNamed, and only where both are known.
func TestOtherMachinesAreNamed(t *testing.T) {
	here := Machine{Processor: "A", Cores: 2, Kernel: "6.1", Go: "go1"}
	for _, c := range []struct {
		other Machine
		want  string
	}{
		{here, ""}, {Machine{}, ""}, {Machine{Go: "go2"}, ""},
		{Machine{Processor: "B", Cores: 2, Kernel: "6.1"}, "processor (A, not B)"},
		{Machine{Processor: "A", Cores: 4, Kernel: "6.2"}, "number of cores (2, not 4)|kernel (6.1, not 6.2)"},
	} {
		lines := here.Differs(c.other)
		for i, want := range strings.Split(c.want, "|") {
			if want == "" && len(lines) > 0 || want != "" && (i >= len(lines) || !strings.Contains(lines[i], want)) {
				t.Errorf("%+v: %q, want %q", c.other, lines, c.want)
			}
		}
	}
	a, _ := written(t, nil)
	b, _ := written(t, nil)
	a.Machine, b.Machine, b.Name, b.Summary.Links = here, Machine{Processor: "B"}, "other", "netem"
	a.Summary.Links = "user"
	c, err := Fit([]*Run{a, b})
	if err != nil || c.Machine != here || c.Links != "user" || len(c.Mixed) != 2 || len(c.Warnings()) < 2 {
		t.Errorf("%v: %+v on %s, mixed %q", err, c.Machine, c.Links, c.Mixed)
	}
}

// TestAnOldRunIsFitted: to a run of commit 8295e8e the fit of then had these costs.
func TestAnOldRunIsFitted(t *testing.T) {
	runs, err := ReadRuns("../../record/testdata/eventful")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Fit(runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, cost := range []struct {
		name      string
		now, then float64
	}{
		{"step", c.Costs.Step.Value, 0.7}, {"message", c.Costs.Message.Value, 0.525}, {"dial", c.Costs.Dial.Value, 10.8},
		{"fetch", c.Costs.Fetch.Value, 3.165495}, {"reduce_byte", c.Costs.ReduceByte.Value, 251.4382502308326},
	} {
		if math.Abs(cost.now-cost.then) > 1e-9*cost.then {
			t.Errorf("%s costs %v; the fit of then says %v", cost.name, cost.now, cost.then)
		}
	}
}
