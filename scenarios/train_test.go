package scenarios_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/train/task"
)

// trained has the line numbers that TestBadTrain wants.
const trained = `train:
  task: charlm
  split: contiguous
  model: {layers: 1, width: 32, heads: 2, context: 16, batch: 4}
  inner: {rate: 0.003, decay: 0.1, warmup: 10}
  outer: {rate: 0.7, momentum: 0.5}
`

// TestTrain: the section says how many parameters there are.
func TestTrain(t *testing.T) {
	s := parse(t, valid+trained)
	want := s.Train.Parameters()
	if want == 0 || s.Real.Parameters != want || s.Train.TokensPerStep() != 64 {
		t.Errorf("%d parameters in the model, %d in the run, %d tokens a step", want, s.Real.Parameters, s.Train.TokensPerStep())
	}
	if o := s.Train.OuterOptimiser(); o.Rate != 0.7 || o.Momentum != 0.5 {
		t.Errorf("outer optimiser %+v", o)
	}
	wider, err := set(s, "train.model.width=64")
	if err != nil || wider.Real.Parameters <= want || s.Real.Parameters != want {
		t.Errorf("%v; %d parameters after %d", err, wider.Real.Parameters, s.Real.Parameters)
	}
	plain := parse(t, valid)
	if plain.Train.Real() || plain.Real.Parameters != scenarios.DefaultParameters {
		t.Errorf("without the section: %+v", plain.Real)
	}
	switched, err := set(plain, "train.task=charlm")
	if err != nil || switched.Real.Parameters == scenarios.DefaultParameters || plain.Train != nil {
		t.Errorf("%v; %+v", err, switched)
	}
	for change, want := range map[string]string{
		"real.parameters=5": "real.parameters is 5, but the model of the section train has", "real.compute=never": `"never": choose planned or measured`,
	} {
		if _, err := set(s, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change, err)
		}
	}
}

func TestBadTrain(t *testing.T) {
	steps := parse(t, valid).InnerSteps
	in := strings.NewReplacer("INNER", fmt.Sprint(steps+1), "STEPS", fmt.Sprint(steps))
	for _, c := range []struct{ old, new, want string }{
		{"charlm", "gpt", `:22: train.task: "gpt" is not a task; choose one of quadratic, charlm, program`},
		{"charlm", "quadratic", ":23: train.split applies only to the task charlm: remove the field, or choose that task"},
		{"contiguous", "even", `:23: train.split: "even" is not a way to split a text; choose iid or contiguous`},
		{"layers: 1", "layers: 0", ""}, // its default
		{"layers: 1", "layers: 99", ":24: train.model.layers is 99: it must lie between 1 and 32"},
		{"heads: 2", "heads: 3", ":24: train.model.width is 32, but heads is 3: make width a multiple of heads"},
		{"width: 32", "wide: 32", ":24: train.model.wide: unknown field; did you mean width?"},
		{"rate: 0.003", "rate: 7", ":25: train.inner.rate is 7: it must lie between 0 and 1"},
		{"rate: 0.7", "rate: 0", ":26: train.outer.rate is 0, so training would change nothing: give a rate above 0, for example 0.7"},
		{"momentum: 0.5", "momentum: 1", ":26: train.outer.momentum is 1: it must lie in [0, 1)"},
		{"momentum: 0.5", "fragments: 3", ""},
		{"momentum: 0.5", "fragments: 4", ":26: train.outer.fragments is 4: it must lie between 1 and 3, the number of the model's blocks of layers"},
		{"momentum: 0.5", "mix: 1.5", ":26: train.outer.mix is 1.5: it must lie in [0, 1]"},
		{"momentum: 0.5", "overlap: INNER", ":26: train.outer.overlap is INNER: it must lie between 0 and inner_steps, which is STEPS"},
		{"momentum: 0.5", "correction: lazy", `:26: train.outer.correction is "lazy": it must be "eager", or absent`},
		{"momentum: 0.5", "correction: eager", ":26: train.outer.correction applies only to outer steps that are delayed by one round: set train.outer.overlap to inner_steps, which is STEPS, and remove train.outer.fragments and train.outer.mix, or remove train.outer.correction"},
		{"task: charlm", "task: charlm\n  text: book.txt", ":23: train.text: a text can be read only if the scenario itself is read from a file"},
	} {
		text := strings.Replace(valid+trained, c.old, in.Replace(c.new), 1)
		if text == valid+trained {
			t.Fatalf("%q is not there", c.old)
		}
		if c.want == "" {
			parse(t, text)
			continue
		}
		check(t, text, "bad.yaml"+in.Replace(c.want))
	}
}

// TestStalenessAndFragments: a late contribution is of another fragment.
func TestStalenessAndFragments(t *testing.T) {
	_, err := set(parse(t, valid+trained), "train.outer.fragments=2", "policy.staleness_weight=0.5")
	if err == nil || !strings.Contains(err.Error(), "train.outer has fragments, mix or overlap") {
		t.Error(err)
	}
}

// TestTextIsReadWithTheScenario: beside it, and kept with it.
func TestTextIsReadWithTheScenario(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "s.yaml")
	for name, text := range map[string]string{
		"s.yaml": valid + "train: {task: charlm, text: book.txt}\n", "book.txt": strings.Repeat("a book. ", 400), "empty.txt": "",
		"e.yaml": valid + "train: {task: charlm, text: empty.txt}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.Task != task.CharLM || len(s.Train.Corpus) != 3200 || len(s.Traces["book.txt"]) != 3200 || s.Plain().Train.Corpus != nil {
		t.Errorf("%d bytes, kept %d, plain %d", len(s.Train.Corpus), len(s.Traces["book.txt"]), len(s.Plain().Train.Corpus))
	}
	if _, err := scenarios.Load(filepath.Join(dir, "e.yaml")); err == nil || !strings.Contains(err.Error(), "the text is empty") {
		t.Errorf("an empty text: %v", err)
	}
}

// TestRegions are given by name, or are the groups of the links.
func TestRegions(t *testing.T) {
	const grouped = "    groups: {eu: {nodes: [coordinator, w0]}, us: {nodes: [w1]}}\n"
	for _, c := range []struct{ links, section, want string }{
		{"", "every: 5, workers: {eu: [1], us: [0]}", ""},
		{grouped, "every: 5", ""},
		{grouped, "every: 1", ""},
		{"", "every: 5", ":21: train.regions.workers is missing, and real.links has no groups that could be the regions: give train.regions.workers or real.links.groups"},
		{"    groups: {eu: {nodes: [w1]}}\n", "every: 5", ":23: train.regions are the groups of real.links, but worker 0 is in no group: put the worker into a group, or give train.regions.workers"},
		{"", "workers: {eu: [0, 1]}", ":21: train.regions.every is missing: add it"},
		{"", "every: 0, workers: {eu: [0, 1]}", ":21: train.regions.every is 0: give the number of rounds from one global round to the next, at least 1"},
		{"", "every: 2, workers: {eu: [0, 1]}", ":21: train.regions.every is 2, but target_outer_steps is 5: make target_outer_steps a multiple of 2, so that the run ends with one model"},
		{"", "every: 5, workers: {eu: [0, 1], us: [7]}", ":21: train.regions.workers.us[0]: there is no worker 7 in this scenario; name one of its workers"},
		{"", "every: 5, workers: {eu: [0, 1], us: [1]}", ":21: train.regions.workers.us[0]: worker 1 is in the region eu already; put the worker into one region only"},
		{"", "every: 5, workers: {eu: [0, 1], us: []}", ":21: train.regions.workers.us has no workers: add a worker, or remove the region"},
		{"", "every: 5, workers: {eu: [0]}", ":21: train.regions.workers has no region for worker 1: add the worker to a region"},
	} {
		text := valid + c.links + "train:\n  regions: {" + c.section + "}\n"
		if c.links == "" {
			text = valid + "train: {regions: {" + c.section + "}}\n"
		}
		if c.links != "" && c.want == "" {
			s := parse(t, text)
			if r := s.Grouping(); r.Len() != 2 || r.Of(0) != 0 || r.Of(1) != 1 {
				t.Errorf("%q: %+v", text, r)
			}
			continue
		}
		if c.want == "" {
			parse(t, text)
			continue
		}
		check(t, text, "bad.yaml"+c.want)
	}
	s := parse(t, valid+"train: {regions: {every: 5, workers: {eu: [0, 1]}}}\n")
	for change, want := range map[string]string{
		"train.outer.fragments=2": "train.regions needs rounds that exchange all parameters", "train.outer.overlap=1": "train.regions needs rounds that exchange all parameters",
		"policy.staleness_weight=1": "train.regions cannot be combined with policy.staleness_weight", "real.upload.every=5": "train.regions cannot be combined with real.upload",
		"train.regions.every=1": "", "train.regions.every=3": "train.regions.every is 3, but target_outer_steps is 5",
	} {
		if _, err := set(s, change); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// TestReplicaGroups are of as many workers each, all of which have a part of what
// the stand-in trains.
func TestReplicaGroups(t *testing.T) {
	s := parse(t, valid+"train: {group_world_size: 2}\n")
	if r := s.Grouping(); r.Len() != 2 || r.Of(1) != 1 || !slices.Equal(r.Group(1), []policy.ID{0, 1}) || s.Exchange().Fragments[0].Len != s.Real.Parameters/2 {
		t.Errorf("%+v, %+v", r, s.Exchange())
	}
	if cfg, err := s.Machine("torchft"); err != nil || cfg.Grouping.Regional() || len(cfg.Grouping.Group(0)) != 2 {
		t.Errorf("%v, %+v", err, cfg)
	}
	if _, err := s.Machine("baseline"); err == nil || !strings.Contains(err.Error(), "train.group_world_size is 2, but there are no replica groups under baseline: remove it, or choose torchft") {
		t.Errorf("under baseline: %v", err)
	}
	for change, want := range map[string]string{
		"train.group_world_size=1": "", "train.group_world_size=3": "is 3, but the number of workers is 2", "train.group_world_size=-1": "is -1: give the number of ranks",
		"train.regions.every=1": "is 2, but replica groups cannot be combined with train.regions", "train.task=charlm": "is 2, but only the parameters of the task quadratic can be divided among ranks",
		"real.parameters=1001": "is 2, but real.parameters is 1001", "real.upload.every=5": "is 2, so no worker has the whole outer state",
	} {
		if _, err := set(s, change); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "train.group_world_size "+want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
}

// TestTooManyLayers: a size beyond all bounds is refused before anything is counted by it.
func TestTooManyLayers(t *testing.T) {
	_, err := scenarios.Parse("deep.yaml", []byte(`{seed: 0, workers: [{id: 0, inner_step_mean: 1}], inner_steps: 1, target_outer_steps: 1, horizon: 1,
heartbeat_period: 1, heartbeat_miss_threshold: 1, base_latency: 0, bandwidth_bpus: 1, state_bytes: 1, train: {task: charlm, model: {layers: 1000000000000000000}}}`))
	if err == nil || !strings.Contains(err.Error(), "train.model.layers") {
		t.Errorf("%v", err)
	}
}

// TestInitSyncOfOverlappingRanks: scenarios whose training could not be computed are
// refused, and those with two of the three things are not.
func TestInitSyncOfOverlappingRanks(t *testing.T) {
	s, err := scenarios.Load("torchft_groups")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve("torchft:init_sync=true"); err != nil {
		t.Error(err)
	}
	s.Train.Outer.Overlap = 1
	if _, err := s.Resolve("torchft:sync=true"); err != nil {
		t.Error(err)
	}
	if _, err := s.Resolve("torchft:init_sync=true"); err == nil || !strings.Contains(err.Error(), "train.outer.overlap is 1, but with init_sync the training") {
		t.Errorf("error %v", err)
	}
}
