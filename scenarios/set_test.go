package scenarios_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/scenarios"
)

func parse(t testing.TB, text string) *scenarios.Scenario {
	t.Helper()
	s, err := scenarios.Parse("valid.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// set makes settings such as "inner_steps=3".
func set(s *scenarios.Scenario, texts ...string) (*scenarios.Scenario, error) {
	var settings []scenarios.Setting
	for _, text := range texts {
		field, value, _ := strings.Cut(text, "=")
		one, err := scenarios.NewSetting(field, value)
		if err != nil {
			return nil, err
		}
		settings = append(settings, one)
	}
	return s.With(settings...)
}

// TestASettingIsAChangeOfTheFile compares a setting with the same change made
// in the text.
func TestASettingIsAChangeOfTheFile(t *testing.T) {
	for _, c := range []struct{ set, old, new string }{
		{"inner_steps=7", "inner_steps: 2", "inner_steps: 7"},
		{"seed=18446744073709551615", "seed: 42", "seed: 18446744073709551615"},
		{"workers[1].join_at=700", "join_at: 500", "join_at: 700"},
		{"workers[*].inner_step_mean=900", "inner_step_mean: 1000", "inner_step_mean: 900"},
		{"injects[0].factor=2.5", "factor: 10", "factor: 2.5"},
		{"injects[0].at=3", "id: 1, at: 0", "id: 1, at: 3"},
		{"policy.straggler.quorum=0.5", "quorum: 0.75", "quorum: 0.5"},
		{"policy.straggler.k=4", "quorum: 0.75", "quorum: 0.75, k: 4"},
		{"real.time_scale=10", "time_scale: 300", "time_scale: 10"},
		{"real.links.default.rate_up=50mbit", "rate_up: 100mbit", "rate_up: 50mbit"},
		{"real.links.default.loss=1%", "rate_up: 100mbit", "rate_up: 100mbit, loss: 1%"},
		{"real.links.nodes.w1.rate_down=5mbit", "links:\n", "links:\n    nodes: {w1: {rate_down: 5mbit}}\n"},
		{"real.min_slack=20ms", "time_scale: 300", "time_scale: 300\n  min_slack: 20ms"},
	} {
		base := parse(t, valid)
		before := fmt.Sprintf("%+v", base)
		got, err := set(base, c.set)
		if err != nil {
			t.Errorf("%s: %v", c.set, err)
			continue
		}
		want := parse(t, strings.ReplaceAll(valid, c.old, c.new))
		if diff := cmp.Diff(want, got, memories); diff != "" {
			t.Errorf("%s (-file +set):\n%s", c.set, diff)
		}
		if diff := cmp.Diff(parse(t, valid), base, memories); diff != "" || before != fmt.Sprintf("%+v", base) {
			t.Errorf("%s changed the scenario that it was made on:\n%s", c.set, diff)
		}
	}
}

func TestTheNumberOfWorkers(t *testing.T) {
	s, err := set(parse(t, valid), "workers.count=5", "workers[4].inner_step_mean=1")
	if err != nil {
		t.Fatal(err)
	}
	want := []scenarios.Worker{
		{ID: 0, InnerStepMean: 1000}, {ID: 1, JoinAt: 500, InnerStepMean: 1000},
		{ID: 2, InnerStepMean: 1000}, {ID: 3, JoinAt: 500, InnerStepMean: 1000}, {ID: 4, InnerStepMean: 1},
	}
	if diff := cmp.Diff(want, s.Workers, memories); diff != "" {
		t.Error(diff)
	}
	if again := parse(t, strings.ReplaceAll(valid, worker1, worker1+"\n  - {id: 2, inner_step_mean: 1}")); again.Real.MinSlack >= s.Real.MinSlack {
		t.Errorf("min_slack of five workers is %v, of three %v: it grows with their number", s.Real.MinSlack, again.Real.MinSlack)
	}
}

func TestBadSettings(t *testing.T) {
	for setting, want := range map[string]string{
		"inner_stepz=3":                    "inner_stepz is not a field; did you mean inner_steps?",
		"straggler.k=3":                    "straggler.k is not a field; did you mean policy.straggler.k?",
		"k=3":                              "k is not a field; did you mean policy.straggler.k?",
		"policy.straggler=3":               "policy.straggler is not a single value; did you mean policy.straggler.quorum?",
		"workers[0]=3":                     "workers[0] is not a single value; did you mean workers[*].id?",
		"workers.inner_step_mean=3":        "workers.inner_step_mean names an entry of a list without its index; did you mean workers[*].inner_step_mean?",
		"workers[1].inner_step_maen=3":     "workers[1].inner_step_maen is not a field; did you mean workers[*].inner_step_mean?",
		"inner_steps.x=3":                  "inner_steps.x names a part of a single value; did you mean inner_steps?",
		"inner_steps[0]=3":                 "inner_steps[0] names a part of a single value; did you mean inner_steps?",
		"real[0]=3":                        "real[0] has an index where there is no list; did you mean real.time_scale?",
		"workers[01].id=3":                 "workers[01].id has a wrong index at character 8: write a name and an index from 0, such as workers[3], or workers[*] for all",
		"workers[1]id=3":                   "workers[1]id needs a dot at character 11, as in workers[3].id",
		"workers[1.id=3":                   "workers[1.id has a wrong index at character 8: write a name and an index from 0, such as workers[3], or workers[*] for all",
		".k=3":                             ".k has no name at character 1",
		"=3":                               "is empty: name a field such as policy.straggler.k",
		"policy..k=3":                      "policy..k has no name at character 8",
		"inner_steps=1.5":                  `inner_steps: "1.5" is not a whole number; write only digits`,
		"inner_steps=":                     `inner_steps: "" is not a single value`,
		"inner_steps=[1]":                  `inner_steps: "[1]" is not a single value`,
		"inner_steps=two":                  `inner_steps: "two" is not a whole number`,
		"real.links.default.rate_up=fast":  `real.links.default.rate_up: rate "fast" is not a number with a unit: write it as tc does, for example 100mbit`,
		"inner_steps=0":                    "valid with inner_steps=0: inner_steps is 0: it must lie between 1 and 1000000",
		"policy.straggler.k=-1":            "valid with policy.straggler.k=-1: policy.straggler.k is -1: it must lie in [0, 1000]",
		"workers[2].id=3":                  "valid with workers[2].id=3: workers[2].id is not in the list (number of entries: 2)",
		"workers[*].id=3":                  "valid with workers[*].id=3: workers[1].id: worker 3 is already workers[0]; give each worker an id of its own",
		"real.injects[0].at=3":             "valid with real.injects[0].at=3: real.injects[0].at is not in the list (number of entries: 0)",
		"workers.count=0":                  "valid with workers.count=0: workers.count is 0: it must lie between 1 and 100000",
		"workers.count=1":                  "valid with workers.count=1: injects[0].id: there is no worker 1; the workers are 0",
		"real.links.nodes.w7.rate_up=1bit": "w7",
	} {
		_, err := set(parse(t, valid), setting)
		var e *scenarios.Error
		switch {
		case !errors.As(err, &e):
			t.Errorf("%s: error %v", setting, err)
		case want == "w7" && strings.Contains(err.Error(), "w7"):
		case err.Error() != want:
			t.Errorf("%s\n got %s\nwant %s", setting, err, want)
		}
	}
}

// TestFieldsAreWhatNewSettingTakes: what is suggested for a mistake is itself
// no mistake.
func TestFieldsAreWhatNewSettingTakes(t *testing.T) {
	for _, f := range scenarios.Fields() {
		var e *scenarios.Error
		_, err := scenarios.NewSetting(f, "§")
		// A field of text takes anything; the others complain of the value.
		if errors.As(err, &e) && strings.Contains(e.Problem, "did you mean") {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// TestSettingsByProperty sets random fields to random values and compares with
// what the file that comes of it says.
func TestSettingsByProperty(t *testing.T) {
	base := parse(t, valid)
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "workers")
		steps := rapid.IntRange(-1, 9).Draw(t, "inner_steps")
		k := rapid.Float64Range(-1, 1001).Draw(t, "k")
		mean := rapid.Int64Range(-1, 5000).Draw(t, "mean")
		at := rapid.IntRange(0, 4).Draw(t, "index")
		got, err := set(base, fmt.Sprintf("workers.count=%d", n), fmt.Sprintf("inner_steps=%d", steps),
			"policy.straggler.k="+strconv.FormatFloat(k, 'f', -1, 64), fmt.Sprintf("workers[%d].inner_step_mean=%d", at, mean))
		good := n >= 2 && steps >= 1 && k >= 0 && k <= 1000 && mean >= 1 && at < n
		if (err == nil) != good {
			t.Fatalf("error %v, want one: %v", err, !good)
		}
		if !good {
			return
		}
		if len(got.Workers) != n || got.InnerSteps != steps || straggler(got).K != k || got.Workers[at].InnerStepMean != policy.Time(mean) {
			t.Fatalf("%+v", got)
		}
		text, err := got.Text()
		if err != nil {
			t.Fatal(err)
		}
		back, err := scenarios.Parse("valid.json", text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, back, memories); diff != "" {
			t.Fatalf("its text reads differently:\n%s", diff)
		}
	})
}

func FuzzSetting(f *testing.F) {
	f.Add("policy.straggler.k", "3")
	f.Add("workers[*].inner_step_mean", "1_000")
	f.Add("real.links.groups.a.nodes[0]", "w1")
	f.Add("workers[18446744073709551616].id", "!!int 3")
	f.Add("real.links.pairs[0].from", "\"w0\"")
	base, err := scenarios.Parse("valid.yaml", []byte(valid))
	if err != nil {
		f.Fatal(err)
	}
	before, err := base.Text()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, field, value string) {
		one, err := scenarios.NewSetting(field, value)
		var changed *scenarios.Scenario
		if err == nil && (field != "workers.count" || len(value) < 4) {
			changed, err = base.With(one)
		}
		var e *scenarios.Error
		if err != nil && (!errors.As(err, &e) || e.Problem == "") {
			t.Fatalf("error %#v", err)
		}
		if changed != nil {
			text, err := changed.Text()
			if err == nil {
				_, err = scenarios.Parse("valid.json", text)
			}
			if err != nil {
				t.Fatalf("%s=%s makes a file that is refused: %v", field, value, err)
			}
		}
		if after, err := base.Text(); err != nil || !bytes.Equal(before, after) {
			t.Fatalf("%s=%s has changed the scenario itself: %v", field, value, err)
		}
	})
}

// TestSettingsKeepTraces: the files that a scenario names are read once.
func TestSettingsKeepTraces(t *testing.T) {
	s, err := scenarios.Load("mobile_uplink")
	if err != nil {
		t.Fatal(err)
	}
	c, err := set(s, "real.time_scale=100")
	if err != nil {
		t.Fatal(err)
	}
	if c.Real.Injects[0].Pace == nil || len(c.Traces) != 1 {
		t.Errorf("the trace is lost: %+v", c.Real.Injects)
	}
	if _, err := set(s, "real.injects[0].file=other.trace"); err == nil || !strings.Contains(err.Error(), "real.injects[0].file: a trace can be read only") {
		t.Errorf("another trace: %v", err)
	}
	if text, err := c.Text(); err != nil || strings.Contains(string(text), "pace") {
		t.Errorf("%v\n%s", err, text)
	}
}
