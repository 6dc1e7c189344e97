package agreement_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/record"
	"testbed/report/agreement"
	"testbed/shaping/fidelity"
)

// run is a complete real run of three rounds with all of four workers.
func run(name, links string, seed uint64, wall policy.Time) record.Summary {
	s := record.Summary{Policy: name, World: record.Real, Links: links, Seed: seed, Complete: true, WallClock: wall}
	s.Fidelity.Verdict = fidelity.Valid
	for n := 1; n <= 3; n++ {
		s.Rounds = append(s.Rounds, record.Round{Round: n, Participants: []policy.ID{0, 1, 2, 3}, Hash: strings.Repeat("a", n)})
	}
	return s
}

// three are runs with three seeds on each of two backends, of which those on htb
// take share times as long.
func three(share float64) (all []record.Summary) {
	for n := range 3 {
		wall := float64(10_000 + 100*n)
		all = append(all, run("baseline", "user", uint64(n), policy.Time(wall)), run("baseline", "htb", uint64(n), policy.Time(wall*share)))
	}
	return all
}

func table(runs []record.Summary) *agreement.Table {
	return agreement.New([]string{"baseline"}, []string{"user", "htb"}, runs)
}

func TestVerdicts(t *testing.T) {
	for what, c := range map[string]struct {
		runs    func() []record.Summary
		verdict string // if it begins with "the links agree" or "no difference", they agree
	}{
		"equal":       {func() []record.Summary { return three(1) }, "the links agree: median wall-clocks differ by at most 3 % from those on user links, and the decisions and bytes are the same"},
		"2 % off":     {func() []record.Summary { return three(1.02) }, "the links agree: median wall-clocks differ by at most 3 %"},
		"5 % slower":  {func() []record.Summary { return three(1.05) }, "the results differ from those on user links: baseline on htb: wall-clock +5.0 %"},
		"10 % faster": {func() []record.Summary { return three(0.9) }, "wall-clock -10.0 %"},
		"no difference shown": {func() []record.Summary {
			runs := three(1.1)
			runs[1].WallClock = 9_000
			return runs
		}, "no difference from user links is shown: the decisions and bytes are the same, and each interval of the wall-clock difference contains 0: baseline on htb +10.0 % (-10.0 % to +10.0 %)"},
		"one seed": {func() []record.Summary { return three(1.05)[:2] }, "wall-clock +5.0 %, which may be noise (with --repeat 3 there is an interval)"},
		"another one was sidelined": {func() []record.Summary {
			runs := three(1)
			runs[2].Sidelined = []record.Membership{{Round: 2, ID: 3}}
			runs[3].Sidelined = []record.Membership{{Round: 3, ID: 3}}
			return runs
		}, "different decisions in 1 of 3 runs"},
		"evicted for another reason": {func() []record.Summary {
			runs := three(1)
			runs[2].Evicted = []record.Membership{{Round: 2, ID: 3, Reason: policy.RuleHeartbeat}}
			runs[3].Evicted = []record.Membership{{Round: 2, ID: 3, Reason: policy.RuleConnection}}
			return runs
		}, "different decisions in 1 of 3 runs"},
		"other bytes": {func() []record.Summary {
			runs := three(1)
			runs[1].Rounds[1].Hash = "b"
			return runs
		}, "different bytes in 1 of 9 rounds"},
		// What comes after a round with other participants may have other bytes.
		"other participants": {func() []record.Summary {
			runs := three(1)
			runs[1].Rounds[1].Participants = []policy.ID{0, 1, 2}
			runs[1].Rounds[2].Hash = "b"
			return runs
		}, "the links agree"},
		"nothing to compare": {func() []record.Summary {
			runs := three(1)[:2]
			runs[1].Complete = false
			return runs
		}, "no seed has complete runs on both kinds of links"},
	} {
		a := table(c.runs())
		if !strings.Contains(a.Verdict, c.verdict) || a.Agree != (strings.HasPrefix(c.verdict, "the links agree") || strings.HasPrefix(c.verdict, "no difference")) {
			t.Errorf("%s: %v, %q; want %q", what, a.Agree, a.Verdict, c.verdict)
		}
	}
}

func TestText(t *testing.T) {
	runs := append(three(1.001), run("baseline", "user", 9, 10_000), run("baseline", "htb", 9, 1))
	runs[7].Complete = false
	runs[1].Fidelity.Verdict = fidelity.Suspect
	runs[3].Rounds[1].Participants = []policy.ID{0}
	simulated := run("baseline", "user", 0, 1)
	simulated.World = record.Sim
	var b strings.Builder
	if err := table(append(runs, simulated, run("straggler", "htb", 0, 1), run("baseline", "netem", 0, 1))).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = `
links side by side   wall-clock                                     difference from user links decisions   same bytes      fidelity
baseline, user       10,050 µs (10,000–10,200)                      –                          –           –               valid
baseline, htb        10,110 µs (10,009–10,210), 1 of 4 incomplete   +0.1 % (+0.1 % to +0.1 %)   the same    7 of 7 rounds   3 valid, 1 suspect

the links agree: median wall-clocks differ by at most 3 % from those on user links, and the decisions and bytes are the same
`
	if strings.Join(strings.Fields(b.String()), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s", b.String())
	}
}

// TestAgreementHolds: runs agree with themselves, in whatever order they come, and
// what one backend says of another is the reverse of what the other says.
func TestAgreementHolds(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		var runs, swapped []record.Summary
		for n := range rapid.IntRange(1, 6).Draw(t, "seeds") {
			for _, links := range []string{"user", "htb"} {
				r := run("baseline", links, uint64(n), policy.Time(rapid.IntRange(1_000, 2_000).Draw(t, "wall")))
				r.Complete = rapid.IntRange(0, 9).Draw(t, "complete") > 0
				r.Rounds[rapid.IntRange(0, 2).Draw(t, "round")].Hash = rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "hash")
				runs = append(runs, r)
			}
		}
		runs = rapid.Permutation(runs).Draw(t, "order")
		var alone []record.Summary
		for _, r := range runs {
			other := r
			other.Links = map[string]string{"user": "htb", "htb": "user"}[r.Links]
			swapped = append(swapped, other)
			if r.Links == "user" {
				alone = append(alone, r, other)
			}
		}
		if a := table(alone); !a.Agree && a.Rows[1].Comparison.Ratio.N > 0 {
			t.Fatalf("a backend does not agree with itself: %s", a.Verdict)
		}
		there, back := table(runs).Rows[1].Comparison, table(swapped).Rows[1].Comparison
		if there.Ratio.N != back.Ratio.N || there.Rounds != back.Rounds || there.SameBytes != back.SameBytes || len(there.OtherDecisions) != len(back.OtherDecisions) {
			t.Fatalf("there %+v, back %+v", there, back)
		}
		if there.SameBytes > there.Rounds || there.Rounds > 3*there.Ratio.N {
			t.Fatalf("%+v", there)
		}
	})
}
