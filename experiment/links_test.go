package experiment_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/record"
	"testbed/report"
	"testbed/report/runs"
	"testbed/scenarios"
)

func TestCheckLinks(t *testing.T) {
	for list, want := range map[string]string{
		"auto": "", "netem": "", "user": "", "htb": "", "user,htb": "", "htb,netem,user": "",
		"pigeon":      "--links pigeon: choose auto, netem, user or htb",
		"":            "choose auto",
		"user,pigeon": `--links user,pigeon: "pigeon" is not a link backend`,
		"user,":       `"" is not a link backend`,
		"user,user":   "user is in the list twice",
		"auto,htb":    "auto stands for another backend",
		"bridge,user": `"bridge" is not a link backend`,
	} {
		err := experiment.CheckLinks(strings.Split(list, ",")...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", list, err, want)
		}
		if _, usage := errors.AsType[*scenarios.Error](err); err != nil && !usage {
			t.Errorf("%q: %T is no mistake of the user's", list, err)
		}
	}
}

// TestCompareLinks: every policy and seed is played on each backend in turn, and
// simulated once; the record says what the result says.
func TestCompareLinks(t *testing.T) {
	var f fake
	o := comparison(t, 3, &f)
	asked := 0
	o.Backends, o.Ready = []string{"user", "htb"}, func(links ...string) error {
		if asked++; len(f.runs) > 0 || !slices.Equal(links, []string{"user", "htb"}) {
			t.Errorf("asked for %q after %d runs", links, len(f.runs))
		}
		return nil
	}
	c, err := experiment.Compare(t.Context(), o)
	if err != nil || asked != 1 {
		t.Fatalf("%v, asked %d times", err, asked)
	}
	var played []string
	for _, r := range f.runs {
		played = append(played, fmt.Sprintf("%s %s %d %s", r.Links, r.Policy, r.Scenario.Seed, filepath.Base(r.Dir)))
		if want := fmt.Sprintf("%s on %s links, seed %d", r.Policy, r.Links, r.Scenario.Seed); r.Title != want {
			t.Errorf("the title is %q, want %q", r.Title, want)
		}
	}
	want := []string{
		"user baseline 42 real-user-baseline-1", "htb baseline 42 real-htb-baseline-1", "htb straggler 42 real-htb-straggler-1", "user straggler 42 real-user-straggler-1",
		"htb baseline 43 real-htb-baseline-2", "user baseline 43 real-user-baseline-2", "user straggler 43 real-user-straggler-2", "htb straggler 43 real-htb-straggler-2",
		"user baseline 44 real-user-baseline-3", "htb baseline 44 real-htb-baseline-3", "htb straggler 44 real-htb-straggler-3", "user straggler 44 real-user-straggler-3",
	}
	if !slices.Equal(played, want) {
		t.Errorf("played %q\nwant %q", played, want)
	}
	if !slices.Equal(c.Links, o.Backends) || len(c.Repeats) != 2 || len(c.SimRepeats) != 2 || len(c.OtherLinks) != 1 || len(c.OtherLinks["htb"]) != 3 {
		t.Errorf("on %q: %d repeats, %d simulated, others %+v", c.Links, len(c.Repeats), len(c.SimRepeats), c.OtherLinks)
	}
	if a := c.Agreement; !a.Agree || len(a.Rows) != 4 || a.Rows[3].Links != "htb" || a.Rows[3].Comparison.Ratio.N != 3 || a.Rows[3].Comparison.Ratio.Median != 1 {
		t.Errorf("%+v", a)
	}
	for n, set := range append([]report.Set{c.Real}, c.Repeats...) {
		for _, name := range o.Policies {
			if s, other := set[name], c.OtherLinks["htb"][n][name]; s.Links != "user" || other.Links != "htb" || s.Seed != other.Seed {
				t.Errorf("%s: on %s with seed %d, on %s with seed %d", name, s.Links, s.Seed, other.Links, other.Seed)
			}
		}
	}
	rec, err := runs.Read(o.Run.Dir)
	if err != nil || len(rec.Runs) != 24 || !slices.Equal(rec.Links, o.Backends) || rec.Unsimulated() != nil {
		t.Fatalf("the record: %v, %+v", err, rec)
	}
	if played := rec.Of(record.Real, "straggler"); len(played) != 3 || played[0].Links != "user" {
		t.Errorf("a report is about %d runs", len(played))
	}
	var page strings.Builder
	if err := report.WriteHTML(&page, rec); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Links side by side", "Everything else on this page is about user", "<td>htb</td>", "The links agree: median wall-clocks differ by at most 3 % from those on user links", "--links user,htb --repeat 3"} {
		if !strings.Contains(strings.ReplaceAll(page.String(), "\u00a0", " "), text) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// TestLinksDiffer: a difference has its error, its result and its words, and a run
// that may not be used counts for more.
func TestLinksDiffer(t *testing.T) {
	slower := func(_ int, r experiment.Run, s *record.Summary) error {
		if r.Links == "htb" && r.Policy == "straggler" {
			s.WallClock += s.WallClock / 10
			s.Sidelined = s.Sidelined[:1]
		}
		return nil
	}
	f := fake{spoil: slower}
	o := comparison(t, 3, &f)
	o.Backends = []string{"user", "htb"}
	c, err := experiment.Compare(t.Context(), o)
	if !errors.Is(err, experiment.ErrLinksDiffer) || c == nil || c.Agreement.Agree {
		t.Fatalf("%v, %+v", err, c)
	}
	var text strings.Builder
	if err := report.WriteComparison(&text, o.Run.Scenario, c, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		" user links (the results on htb links are at the end), seed 42", "the results differ from those on user links: straggler on htb: wall-clock +10.0 %, different decisions in 3 of 3 runs\n",
		"  straggler with seed 44 on user: w3 sidelined in rounds 2, 3; w3 evicted in round 4 (straggler)\n  straggler with seed 44 on htb: w3 sidelined in round 2; w3 evicted",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text does not say %q:\n%s", want, text.String())
		}
	}

	f = fake{spoil: func(n int, r experiment.Run, s *record.Summary) error {
		if r.Links == "htb" {
			spoiled(s, "timers late")
		}
		return slower(n, r, s)
	}}
	o = comparison(t, 1, &f)
	o.Backends = []string{"user", "htb"}
	c, err = experiment.Compare(t.Context(), o)
	wantInvalid(t, err, "baseline", 42, "the emulation did not match its plan (fidelity invalid): timers late")
	if c == nil || !strings.HasPrefix(err.Error(), "on htb links, the result under baseline") {
		t.Errorf("%v, %+v", err, c)
	}
}

// TestMissingBackend: nothing is played, and nothing left.
func TestMissingBackend(t *testing.T) {
	var f fake
	o := comparison(t, 1, &f)
	o.Backends, o.Ready = []string{"user", "netem"}, func(...string) error { return fmt.Errorf("no netem: %w", errors.ErrUnsupported) }
	if c, err := experiment.Compare(t.Context(), o); !errors.Is(err, errors.ErrUnsupported) || c != nil || len(f.runs) != 0 || len(names(t, o.Run.Dir)) != 0 {
		t.Errorf("%v after %d runs, %+v, %q", err, len(f.runs), c, names(t, o.Run.Dir))
	}
}
