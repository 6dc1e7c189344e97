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
	r := learning.New([]string{"baseline", "straggler"}, seeds)
	if r == nil || r.Target != 2.2 {
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
		"learning, measured   validation loss   loss 2.20 after   tokens seen   thrown away",
		"straggler            2.200             10.0 s            300           3.2 %",
		"straggler reached a validation loss of 2.20 in 10.0 s, baseline in 27.0 s; at equal tokens its loss was 12.0 % lower, at equal rounds 10.0 % higher.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

// TestNothingLearnt: runs without losses have no result.
func TestNothingLearnt(t *testing.T) {
	plain := record.Summary{Rounds: []record.Round{{Round: 1, Participants: []policy.ID{0}}}}
	if r := learning.New([]string{"baseline"}, []map[string]record.Summary{{"baseline": plain}}); r != nil {
		t.Errorf("%+v", r)
	}
	if r := learning.New([]string{"baseline", "straggler"}, []map[string]record.Summary{{"baseline": run(1, 1, 1, 1), "straggler": plain}}); r != nil {
		t.Errorf("%+v", r)
	}
	if text := learning.Of(plain); text != "" {
		t.Errorf("%q", text)
	}
	if text := learning.Of(run(1, 1, 2, 1.5)); text != "validation loss 1.500 after 10 outer steps, from 3.750 after the first; 200 tokens seen, 10 thrown away" {
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
	if got, want := learning.OfGradients(sum), "pseudo-gradients: cosine to the mean 0.90 in round 1, 0.45 in round 10; quantisation takes 1.4 %, most of position (3.4 %)"; got != want {
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
	r := learning.New([]string{"baseline", "straggler"}, seeds)
	var out bytes.Buffer
	if err := r.Write(&out, "measured"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"unknown       unknown", "at equal tokens its loss was unknown, at equal rounds the same"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
	if o := learning.NewOutcome(r.Policies[1].Curves, r.Policies[0].Curves, 0.1); o.Time.N != 0 || o.Unreached != 2 || o.EqualTokens.N != 0 {
		t.Errorf("%+v", o)
	}
}
