package scenarios_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/scenarios"
	"testbed/scenarios/learning"
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
		"real.parameters=5": "real.parameters: is 5, but the model of the section train has", "real.compute=never": `"never"; choose planned or measured`,
	} {
		if _, err := set(s, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change, err)
		}
	}
}

func TestBadTrain(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"charlm", "gpt", `:22: train.task: "gpt" is no task; choose one of quadratic, charlm`},
		{"charlm", "quadratic", ":23: train.split: is for the task charlm; remove it, or choose that"},
		{"contiguous", "even", `:23: train.split: "even" is no way to share a text; choose iid or contiguous`},
		{"layers: 1", "layers: 0", ""}, // its default
		{"layers: 1", "layers: 99", ":24: train.model.layers: is 99; it is a number from 1 to 32"},
		{"heads: 2", "heads: 3", ":24: train.model.width: is 32 with 3 heads; heads share it evenly, so make it a multiple"},
		{"width: 32", "wide: 32", ":24: train.model.wide: unknown field; did you mean width?"},
		{"rate: 0.003", "rate: 7", ":25: train.inner.rate: is 7; it is a number from 0 to 1"},
		{"rate: 0.7", "rate: 0", ":26: train.outer.rate: is 0, with which nothing would be learnt; give one above it, 0.7 for example"},
		{"momentum: 0.5", "momentum: 1", ":26: train.outer.momentum: is 1; it must lie between 0 and 1"},
		{"task: charlm", "task: charlm\n  text: book.txt", ":23: train.text: a text is read only for a scenario that is a file itself"},
	} {
		text := strings.Replace(valid+trained, c.old, c.new, 1)
		if text == valid+trained {
			t.Fatalf("%q is not there", c.old)
		}
		if c.want == "" {
			parse(t, text)
			continue
		}
		check(t, text, "bad.yaml"+c.want)
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
	if s.Train.Task != learning.CharLM || len(s.Train.Corpus) != 3200 || len(s.Traces["book.txt"]) != 3200 || s.Plain().Train.Corpus != nil {
		t.Errorf("%d bytes, kept %d, plain %d", len(s.Train.Corpus), len(s.Traces["book.txt"]), len(s.Plain().Train.Corpus))
	}
	if _, err := scenarios.Load(filepath.Join(dir, "e.yaml")); err == nil || !strings.Contains(err.Error(), "the text is empty") {
		t.Errorf("an empty text: %v", err)
	}
}
