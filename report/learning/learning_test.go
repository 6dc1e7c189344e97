package learning_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/report/learning"
)

// run is one of ten rounds that take so long each, and whose loss falls from 4 to
// last.
func run(seed uint64, round policy.Time, workers int, last float64) record.Summary {
	s := record.Summary{Seed: seed, TokensSeen: new(100 * workers), TokensLost: new(10)}
	for n := 1; n <= 10; n++ {
		loss := 4 + (last-4)*float64(n)/10
		r := record.Round{Round: n, End: round * policy.Time(n), Loss: &record.RoundLoss{Validation: &loss}}
		for id := range workers {
			r.Participants = append(r.Participants, policy.ID(id))
		}
		s.Rounds = append(s.Rounds, r)
	}
	return s
}

// TestResult: one policy is three times as fast and learns a little less from
// three workers than the other from four.
func TestResult(t *testing.T) {
	var seeds []map[string]record.Summary
	for seed := range uint64(3) {
		seeds = append(seeds, map[string]record.Summary{"baseline": run(seed, 3e6, 4, 2), "straggler": run(seed, 1e6, 3, 2.2)})
	}
	r := learning.New([]string{"baseline", "straggler"}, seeds, 2.2)
	if r == nil || r.Target != 2.2 || !r.Asked {
		t.Fatalf("%+v", r)
	}
	p := r.Policies[1]
	// The reference has 2.2 in its ninth round, after 27 s, the other one in its
	// tenth. At 300 tokens the reference has had 7.5 rounds, and 2.5.
	if p.Time.Median != 10e6 || p.Sooner.Median != 2.7 || math.Abs(p.EqualRounds.Median-0.1) > 1e-9 || math.Abs(p.EqualTokens.Median-(2.2/2.5-1)) > 1e-9 {
		t.Errorf("%+v", p)
	}
	if r.Policies[0].Sooner.N != 0 || p.Seen != 300 || p.Lost != 10 || len(p.Curves) != 3 {
		t.Errorf("%+v", r.Policies)
	}
	var out bytes.Buffer
	if err := r.Write(&out, "measured"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"learning, measured   final loss   time to 2.20   as fast as baseline   loss at equal tokens   at equal rounds   tokens seen   thrown away",
		"straggler            2.200        10.0 s         2.70×                 -12.0 %                +10.0 %           300           3.2 %",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
	if got, want := r.Headline(), "To reach a loss of 2.20, straggler took 10.0 s and baseline 27.0 s. So straggler was 2.70× as fast."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := r.Answer()[0], r.Headline()+" At equal tokens, the loss of straggler was 12.0 % lower than under baseline. At equal rounds, it was 10.0 % higher than under baseline."; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	// Nothing asked for, it is the loss that the reference ends with.
	r = learning.New([]string{"baseline", "straggler"}, seeds, 0)
	if r.Target != 2 || r.Asked || r.Policies[0].Time.Median != 30e6 || r.Policies[1].Unreached != 3 || r.Policies[1].Own.Median != 2.7 {
		t.Errorf("%+v", r)
	}
	if got, want := r.Headline(), "straggler never reached the highest final loss of baseline, 2.00. Baseline reached it in 30.0 s. The final loss of straggler was 2.200. Straggler reached that loss 2.70× as fast as baseline."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if p := r.ByPolicy["straggler"]; p.Unreached != 3 || len(p.Curves) != 3 {
		t.Errorf("by policy: %+v", r.ByPolicy)
	}
}

// TestHeadline claims a winner only if its interval shows one, and counts the seeds
// that never reached the target.
func TestHeadline(t *testing.T) {
	const baseline, straggler, backup = "baseline", "straggler", "backup"
	// Rounds of each seed, in thousandths of the reference's rounds of a second.
	equal, fast, slow := []int{1020, 980, 1010, 990, 1000}, []int{510, 490, 505, 495, 500}, []int{2000, 2000, 2000, 2000, 2000}
	compared := func(target float64, others map[string][]int, names ...string) string {
		var seeds []map[string]record.Summary
		for seed := range uint64(5) {
			set := map[string]record.Summary{baseline: run(seed, 1e6, 4, 2)}
			for name, rounds := range others {
				set[name] = run(seed, policy.Time(rounds[seed])*1000, 4, 2)
			}
			seeds = append(seeds, set)
		}
		return learning.New(append([]string{baseline}, names...), seeds, target).Headline()
	}
	for _, c := range []struct{ got, want string }{
		{compared(2.2, map[string][]int{straggler: equal}, straggler),
			"No difference was shown in the time to a loss of 2.20: straggler took 9.00 s, baseline 9.00 s (1.00× as fast, 93.8 % interval 0.98 to 1.02)."},
		{compared(2.2, map[string][]int{straggler: equal, backup: slow}, backup, straggler),
			"The best of the other 2 policies is straggler. No difference was shown in the time to a loss of 2.20: straggler took 9.00 s, baseline 9.00 s (1.00× as fast, 93.8 % interval 0.98 to 1.02)."},
		{compared(2.2, map[string][]int{straggler: equal, backup: fast}, straggler, backup),
			"Of 3 policies, backup was the fastest. To reach a loss of 2.20, backup took 4.50 s and baseline 9.00 s. So backup was 2.00× as fast (93.8 % interval 1.96 to 2.04)."},
		{compared(1, map[string][]int{straggler: equal, backup: fast}, straggler, backup),
			"None of 3 policies reached a loss of 1.00. The lowest final loss was 2.000, under baseline."},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
	seeds := []map[string]record.Summary{
		{baseline: run(1, 1e6, 4, 2), straggler: run(1, 5e5, 4, 2)},
		{baseline: run(2, 1e6, 4, 2), straggler: run(2, 5e5, 4, 3)},
	}
	got := learning.New([]string{baseline, straggler}, seeds, 2.2).Headline()
	if want := "To reach a loss of 2.20, straggler took 4.50 s and baseline 9.00 s. So straggler was 2.00× as fast. With 1 seed, straggler never reached it."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestInterpolated: the time to a loss lies on the line between evaluations, from that at
// the start on.
func TestInterpolated(t *testing.T) {
	sum := run(1, 1e6, 3, 2) // 3.8 after a second, 3.6 after two
	for target, want := range map[float64]policy.Time{3.9: 1e6, 3.8: 1e6, 3.7: 1.5e6, 3.65: 1.75e6, 3.6: 2e6, 2: 10e6} {
		if got, ok := learning.NewCurve(sum).Reached(target); !ok || got != want {
			t.Errorf("%v is reached after %v, want %v", target, got, want)
		}
	}
	sum.InitialLoss = new(4.0)
	c := learning.NewCurve(sum)
	if first := c.Points[0]; first.Round != 0 || first.WallClock != 0 || first.Tokens != 0 || first.Loss != 4 || len(c.Points) != 11 {
		t.Errorf("the curve begins at %+v", first)
	}
	for target, want := range map[float64]policy.Time{4: 0, 3.9: 0.5e6, 3.8: 1e6, 3.7: 1.5e6} {
		if got, ok := c.Reached(target); !ok || got != want {
			t.Errorf("%v is reached after %v, want %v", target, got, want)
		}
	}
	if _, ok := c.Reached(1.9); ok {
		t.Error("a loss below all is reached")
	}
	if text := learning.Of(sum); !strings.HasPrefix(text, "validation loss 2.000 after 10 outer steps, from 4.000 at the start") {
		t.Errorf("%q", text)
	}
	only := record.Summary{InitialLoss: new(4.0)}
	if c := learning.NewCurve(only); len(c.Points) != 0 {
		t.Errorf("a run without an outer step has the curve %+v", c)
	}
}

// TestTargetHasThreeDigits, whatever the size of a task's losses, and the reference has
// reached it.
func TestTargetHasThreeDigits(t *testing.T) {
	for last, want := range map[float64]string{2.2: "2.20", 2.1301: "2.14", 0.003171: "0.00318", 123.4: "124", 1: "1.00", -1.234: "-1.23", 9.999: "10.0"} {
		c := learning.Curve{Points: []learning.Point{{Round: 1, WallClock: 1, Loss: last}}}
		target := learning.Target([]learning.Curve{c, {}})
		if got := learning.LossText(target); got != want || target < last {
			t.Errorf("the target of %v is %v, written %s, want %s", last, target, got, want)
		}
	}
}

// TestNothingLearnt: runs without losses have no result.
func TestNothingLearnt(t *testing.T) {
	plain := record.Summary{Rounds: []record.Round{{Round: 1, Participants: []policy.ID{0}}}}
	if r := learning.New([]string{"baseline"}, []map[string]record.Summary{{"baseline": plain}}, 0); r != nil {
		t.Errorf("%+v", r)
	}
	if r := learning.New([]string{"baseline", "straggler"}, []map[string]record.Summary{{"baseline": run(1, 1, 1, 1), "straggler": plain}}, 0); r != nil {
		t.Errorf("%+v", r)
	}
	if text := learning.Of(plain); text != "" {
		t.Errorf("%q", text)
	}
	if text := learning.Of(run(1, 1, 2, 1.5)); text != "validation loss 1.500 after 10 outer steps, from 3.750 after the first one (200 tokens seen, 10 thrown away)" {
		t.Errorf("%q", text)
	}
}

// TestGradients: lines by worker, and a sentence.
func TestGradients(t *testing.T) {
	sum := run(1, 1, 2, 1.5)
	if learning.NewGradients("baseline", sum) != nil || learning.OfGradients(sum) != "" {
		t.Error("something is known of nothing")
	}
	for n := range sum.Rounds {
		r := &sum.Rounds[n]
		r.PseudoGradients = []record.PseudoGradient{{ID: 1, Norm: 2, Cosine: 0.9 - 0.05*float64(n), QuantisationError: 0.014}}
		if n > 0 {
			r.PseudoGradients = append(r.PseudoGradients, record.PseudoGradient{ID: 0, Norm: 3, Cosine: 0.9 - 0.05*float64(n), QuantisationError: 0.014})
		}
	}
	sum.LayerErrors = []record.LayerError{{Name: "head", Error: 0.01}, {Name: "position", Error: 0.034}}
	if got, want := learning.OfGradients(sum), `pseudo-gradients: median cosine to the mean 0.90 in round 1 and 0.45 in round 10, median quantisation error 1.4 %, largest in the layer "position" (3.4 %)`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	one := sum
	one.Rounds, one.LayerErrors = sum.Rounds[:1], nil
	if got, want := learning.OfGradients(one), "pseudo-gradients: median cosine to the mean 0.90 in round 1, median quantisation error 1.4 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	g := learning.NewGradients("baseline", sum)
	if len(g.Workers) != 2 || g.Workers[0].ID != 0 || len(g.Workers[0].Points) != 9 || g.Workers[1].Points[0] != (learning.GradientPoint{Round: 1, Norm: 2, Cosine: 0.9}) || len(g.Layers) != 2 {
		t.Errorf("%+v", g)
	}
}

// TestUnknownIsUnknown: a trainer that counts no tokens has no loss at equal tokens, and
// a loss that no run reaches has no time.
func TestUnknownIsUnknown(t *testing.T) {
	var seeds []map[string]record.Summary
	for seed := range uint64(2) {
		one, other := run(seed, 3e6, 4, 2), run(seed, 1e6, 3, 2)
		for _, s := range []*record.Summary{&one, &other} {
			s.TokensSeen, s.TokensLost = new(0), new(0)
		}
		seeds = append(seeds, map[string]record.Summary{"baseline": one, "straggler": other})
	}
	r := learning.New([]string{"baseline", "straggler"}, seeds, 0)
	var out bytes.Buffer
	if err := r.Write(&out, "measured"); err != nil {
		t.Fatal(err)
	}
	if want := "unknown       unknown"; !strings.Contains(out.String(), want) {
		t.Errorf("lacks %q:\n%s", want, out.String())
	}
	if got, want := r.Answer()[0], "At equal tokens, the loss of straggler was unknown. At equal rounds, it was the same as under baseline."; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q at its end", got, want)
	}
	if o := learning.NewOutcome(r.Policies[1].Curves, r.Policies[0].Curves, 0.1); o.Time.N != 0 || o.Unreached != 2 || o.EqualTokens.N != 0 {
		t.Errorf("%+v", o)
	}
}
