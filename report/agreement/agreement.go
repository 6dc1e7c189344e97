// Package agreement compares the results of a scenario that was played on
// several link backends with the same policies and seeds, and judges whether
// they agree.
package agreement

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/words"
	"testbed/shaping/fidelity"
)

// Tolerance is the largest difference of the wall-clock from the first
// backend's, as a share: as much as a correct link may seem to deviate
// (docs/fidelity.md).
const Tolerance = 0.03

// Table compares link backends.
type Table struct {
	// The backends. The first is the reference for the others.
	Links     []string `json:"links"`
	Tolerance float64  `json:"tolerance"` // How far a median ratio may be from 1.
	Agree     bool     `json:"agree"`     // Whether the backends agree.
	// That they agree or how they differ, in words.
	Verdict string `json:"verdict"`
	// One for each policy and backend, in their order.
	Rows []Row `json:"rows"`
}

// Row has the results of runs under a policy on a backend.
type Row struct {
	Policy string `json:"policy"` // The policy.
	Links  string `json:"links"`  // The backend.
	Runs   int    `json:"runs"`   // The number of runs.
	// The wall-clock of complete runs, in microseconds of scenario time.
	Wall stats.Estimate `json:"wall_clock_us"`
	// The number of runs by verdict.
	Fidelity map[fidelity.Level]int `json:"fidelity"`
	// The comparison with the first backend, absent for itself.
	Comparison *Comparison `json:"beside,omitempty"`
}

// Comparison compares the runs of a row with those on the first backend. Only
// pairs of complete runs with the same seed count.
type Comparison struct {
	// The wall-clock divided by the first backend's.
	Ratio stats.Estimate `json:"ratio"`
	// The seeds with different decisions: the workers sidelined or evicted, the rounds
	// or the reasons differ.
	OtherDecisions []uint64 `json:"other_decisions"`
	// The number of rounds before the first round with different participants. Only
	// these must end with equal bytes.
	Rounds int `json:"rounds"`
	// How many of `rounds` have bit-identical means.
	SameBytes int `json:"same_bytes"`
	// How the backends differ, absent if they agree.
	Differs string `json:"differs,omitempty"`
}

// New compares the runs on the given backends, at least two. Other runs are
// ignored.
func New(policies, links []string, runs []record.Summary) *Table {
	t := &Table{Links: links, Tolerance: Tolerance}
	var differ, unclear []string
	for _, name := range policies {
		first := of(runs, name, links[0])
		for k, backend := range links {
			all := of(runs, name, backend)
			row := newRow(name, backend, all)
			if k > 0 {
				row.Comparison = compare(first, all)
				switch b := row.Comparison; {
				case b.Differs != "":
					differ = append(differ, fmt.Sprintf("%s on %s: %s", name, backend, b.Differs))
				case !b.within():
					unclear = append(unclear, fmt.Sprintf("%s on %s %s", name, backend, b.RatioText()))
				}
			}
			t.Rows = append(t.Rows, row)
		}
	}
	t.Agree = len(differ) == 0
	switch {
	case !t.Agree:
		t.Verdict = fmt.Sprintf("the results differ from those on %s links: %s", links[0], strings.Join(differ, "; "))
	case len(unclear) > 0:
		t.Verdict = fmt.Sprintf("no difference from %s links is shown: %s, and each interval of the wall-clock difference contains 0: %s", links[0], t.same(), strings.Join(unclear, "; "))
	default:
		t.Verdict = fmt.Sprintf("the links agree: median wall-clocks differ by at most %.3g %% from those on %s links, and %s", 100*Tolerance, links[0], t.same())
	}
	return t
}

// same says what is the same on backends that agree. Records may lack bytes.
func (t *Table) same() string {
	if slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Comparison != nil && r.Comparison.Rounds == 0 }) {
		return "the decisions are the same"
	}
	return "the decisions and bytes are the same"
}

func of(runs []record.Summary, name, backend string) (some []record.Summary) {
	for _, run := range runs {
		if run.World == record.Real && run.Policy == name && run.Links == backend {
			some = append(some, run)
		}
	}
	return some
}

func newRow(name, backend string, runs []record.Summary) Row {
	row := Row{Policy: name, Links: backend, Runs: len(runs), Fidelity: map[fidelity.Level]int{}}
	var walls []float64
	for _, run := range runs {
		row.Fidelity[run.Fidelity.Verdict]++
		if run.Complete {
			walls = append(walls, float64(run.WallClock))
		}
	}
	row.Wall = stats.Estimated(walls)
	return row
}

// compare pairs runs by their seed.
func compare(first, others []record.Summary) *Comparison {
	b := &Comparison{OtherDecisions: []uint64{}}
	var ratios []float64
	taken := map[uint64]int{}
	for _, run := range others {
		n := taken[run.Seed]
		taken[run.Seed]++
		reference := seeded(first, run.Seed, n)
		if reference == nil || !run.Complete || !reference.Complete || reference.WallClock <= 0 {
			continue
		}
		ratios = append(ratios, float64(run.WallClock)/float64(reference.WallClock))
		if !sameDecisions(reference, &run) {
			b.OtherDecisions = append(b.OtherDecisions, run.Seed)
		}
		rounds, same := sameBytes(reference.Rounds, run.Rounds)
		b.Rounds, b.SameBytes = b.Rounds+rounds, b.SameBytes+same
	}
	b.Ratio = stats.Estimated(ratios)
	b.Differs = b.differs()
	return b
}

// seeded is the n-th of the runs with a seed, counted from 0, or nil.
func seeded(runs []record.Summary, seed uint64, n int) *record.Summary {
	for k := range runs {
		if runs[k].Seed == seed {
			if n == 0 {
				return &runs[k]
			}
			n--
		}
	}
	return nil
}

func sameDecisions(a, b *record.Summary) bool {
	same := func(x, y record.Membership) bool { return x.Round == y.Round && x.ID == y.ID && x.Reason == y.Reason }
	return slices.EqualFunc(a.Sidelined, b.Sidelined, same) && slices.EqualFunc(a.Evicted, b.Evicted, same)
}

// sameBytes counts the rounds up to the first with other participants, and the
// rounds among them with the same bytes.
func sameBytes(a, b []record.Round) (rounds, same int) {
	for k := range min(len(a), len(b)) {
		if a[k].Round != b[k].Round || !slices.Equal(a[k].Participants, b[k].Participants) {
			break
		}
		if a[k].Outcome() == "" || b[k].Outcome() == "" {
			continue
		}
		rounds++
		if a[k].Outcome() == b[k].Outcome() {
			same++
		}
	}
	return rounds, same
}

// within reports whether the median is within the tolerance.
func (b *Comparison) within() bool { return math.Abs(b.Ratio.Median-1) <= Tolerance }

// differs says how the backends differ; it is empty if they agree.
func (b *Comparison) differs() string {
	if b.Ratio.N == 0 {
		return "no seed has complete runs on both kinds of links"
	}
	var parts []string
	switch i := b.Ratio.Interval; {
	case b.within():
	case i == nil && !b.Ratio.Same:
		parts = append(parts, fmt.Sprintf("wall-clock %s, which may be noise (with --repeat %d there is an interval)", b.RatioText(), stats.LeastRepeats))
	case !b.Ratio.NoDifference():
		parts = append(parts, "wall-clock "+b.RatioText())
	}
	if n := len(b.OtherDecisions); n > 0 {
		parts = append(parts, fmt.Sprintf("different decisions in %d of %d runs", n, b.Ratio.N))
	}
	if n := b.Rounds - b.SameBytes; n > 0 {
		parts = append(parts, fmt.Sprintf("different bytes in %d of %d rounds", n, b.Rounds))
	}
	return strings.Join(parts, ", ")
}

// WallText is the wall-clock for a table: the median, and its interval if there
// is one.
func (r *Row) WallText() string {
	if r.Wall.N == 0 {
		return "–"
	}
	micros := func(x float64) policy.Time { return policy.Time(math.Round(x)) }
	text := words.Micros(micros(r.Wall.Median))
	if i := r.Wall.Interval; i != nil {
		text += fmt.Sprintf(" (%s–%s)", words.Thousands(micros(i.Low)), words.Thousands(micros(i.High)))
	}
	if n := r.Runs - r.Wall.N; n > 0 {
		text += fmt.Sprintf(", %d of %d incomplete", n, r.Runs)
	}
	return text
}

// RatioText is the additional time of the runs, with its interval.
func (b *Comparison) RatioText() string {
	if b == nil || b.Ratio.N == 0 {
		return "–"
	}
	text := fmt.Sprintf("%+.1f %%", 100*(b.Ratio.Median-1))
	if i := b.Ratio.Interval; i != nil {
		text += fmt.Sprintf(" (%+.1f %% to %+.1f %%)", 100*(i.Low-1), 100*(i.High-1))
	}
	return text
}

// DecisionsText says whether the same workers were left out.
func (b *Comparison) DecisionsText() string {
	switch {
	case b == nil || b.Ratio.N == 0:
		return "–"
	case len(b.OtherDecisions) == 0:
		return "the same"
	}
	return fmt.Sprintf("different in %d of %d runs", len(b.OtherDecisions), b.Ratio.N)
}

// BytesText says in how many rounds the bytes are the same.
func (b *Comparison) BytesText() string {
	if b == nil || b.Rounds == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d rounds", b.SameBytes, b.Rounds)
}

// FidelityText counts the verdicts, and is the verdict itself if it is always the
// same.
func (r *Row) FidelityText() string {
	var parts []string
	for _, level := range []fidelity.Level{fidelity.Valid, fidelity.Suspect, fidelity.Invalid} {
		switch n := r.Fidelity[level]; {
		case n == 0:
		case n == r.Runs:
			return string(level)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, level))
		}
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, ", ")
}
