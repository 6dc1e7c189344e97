package charlm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"testbed/train"
	"testbed/train/matrix"
)

// small is a model that trains in no time, with sizes that fill no vector.
func small() Config {
	return Config{Layers: 2, Width: 12, Heads: 3, Context: 9, Batch: 2, Rate: 0.01, Decay: 0.1, Warmup: 3}
}

func newTask(t testing.TB, c Config, seed uint64, workers int) train.Task {
	t.Helper()
	task, err := New(c, seed, Text(), workers, IID)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func newTrainer(t testing.TB, task train.Task, worker int) train.Trainer {
	t.Helper()
	tr, err := task.Trainer(worker)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// round takes the steps of a round, and returns the local parameters and the
// steps' losses.
func round(t testing.TB, tr train.Trainer, number, steps int, outer []float32) (local []float32, losses []float64) {
	t.Helper()
	if err := tr.Begin(t.Context(), number, outer); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= steps; n++ {
		loss, err := tr.Step(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	local = make([]float32, len(outer))
	if err := tr.Finish(local); err != nil {
		t.Fatal(err)
	}
	tr.Keep()
	return local, losses
}

func state(t testing.TB, tr train.Trainer) []byte {
	t.Helper()
	s, err := tr.State()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func everyRoute(t *testing.T, test func(t *testing.T)) {
	routes := matrix.Routes()
	t.Cleanup(func() { matrix.Use(routes[len(routes)-1]) })
	for _, name := range routes {
		if err := matrix.Use(name); err != nil {
			t.Fatal(err)
		}
		t.Run(name, test)
	}
}

// TestSameBitsEverywhere pins parameters, losses and the optimiser's state after
// two rounds: on every route, with however many processors, and on other
// machines.
func TestSameBitsEverywhere(t *testing.T) {
	c := Defaults()
	c.Batch, c.Context = 2, 24
	everyRoute(t, func(t *testing.T) {
		for _, procs := range []int{1, 3} {
			before := runtime.GOMAXPROCS(procs)
			task, err := New(c, 17, Text()[:5000], 2, Contiguous)
			if err != nil {
				t.Fatal(err)
			}
			h := sha256.New()
			tr, outer := newTrainer(t, task, 1), task.Start()
			var losses []float64
			for number := range 2 {
				outer, losses = round(t, tr, number, 2, outer)
				binary.Write(h, binary.LittleEndian, losses)
				binary.Write(h, binary.LittleEndian, outer)
			}
			h.Write(state(t, tr))
			binary.Write(h, binary.LittleEndian, validation(task, outer))
			runtime.GOMAXPROCS(before)
			const want = "5adc60f5ebaaef462f42d790d8e3263ae6a8085f68d8769fd495396cf0e635a9"
			if got := hex.EncodeToString(h.Sum(nil)); got != want {
				t.Errorf("with %d processors: hash %s, want %s; losses %v", procs, got, want, losses)
			}
		}
	})
}

// TestRoundsThatDoNotCount leave no trace, and one that is played again after it
// was kept comes to the same.
func TestRoundsThatDoNotCount(t *testing.T) {
	task := newTask(t, small(), 3, 1)
	start := task.Start()
	plain := newTrainer(t, task, 0)
	var want [][]float32
	for number := 1; number <= 3; number++ {
		local, _ := round(t, plain, number, 3, start)
		want = append(want, local)
	}
	other := newTrainer(t, task, 0)
	for number := 1; number <= 3; number++ {
		for range 2 {
			if err := other.Begin(t.Context(), number+7, start); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Step(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if number == 2 { // ended, and still not kept
				if err := other.Finish(make([]float32, len(start))); err != nil {
					t.Fatal(err)
				}
			}
			if got, _ := round(t, other, number, 3, start); !slices.Equal(got, want[number-1]) {
				t.Fatalf("round %d comes to something else", number)
			}
		}
	}
	if !slices.Equal(state(t, other), state(t, plain)) {
		t.Error("the optimiser's state is another one")
	}
}

// TestWorkersShareATask: their steps at the same time are those of one after the
// other.
func TestWorkersShareATask(t *testing.T) {
	const workers = 4
	task := newTask(t, small(), 3, workers)
	want := make([][]float32, workers)
	for w := range want {
		want[w], _ = round(t, newTrainer(t, task, w), 0, 3, task.Start())
		if w > 0 && slices.Equal(want[w], want[0]) {
			t.Errorf("workers 0 and %d made the same steps", w)
		}
	}
	start := task.Start()
	first := validation(task, start)
	got := make([][]float32, workers)
	var wg sync.WaitGroup
	for w := range workers {
		tr := newTrainer(t, task, w)
		wg.Go(func() {
			got[w], _ = round(t, tr, 0, 3, task.Start())
			if v := validation(task, start); v != first {
				t.Errorf("validation loss %v, alone %v", v, first)
			}
		})
	}
	wg.Wait()
	for w := range workers {
		if !slices.Equal(got[w], want[w]) {
			t.Errorf("worker %d: other parameters than alone", w)
		}
	}
}

// TestWhatWasNotFinishedLeavesNoTrace: rounds that were given up, and rounds that
// were begun anew, lead to the same bits.
func TestWhatWasNotFinishedLeavesNoTrace(t *testing.T) {
	task := newTask(t, small(), 4, 1)
	plain, troubled := newTrainer(t, task, 0), newTrainer(t, task, 0)
	outer := task.Start()
	for number := range 4 {
		want, _ := round(t, plain, number, 3, outer)
		if err := troubled.Begin(t.Context(), number+7, want); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= number; n++ {
			if _, err := troubled.Step(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := round(t, troubled, number, 3, outer); !slices.Equal(got, want) {
			t.Fatalf("round %d: steps that were thrown away left a trace", number)
		}
		if !bytes.Equal(state(t, plain), state(t, troubled)) {
			t.Fatalf("round %d: steps that were thrown away left a trace in the state", number)
		}
		outer = want
	}
}

// TestStateGoesOnElsewhere: a trainer that takes over a state goes on as the one
// that it was taken from, even within a round that was begun.
func TestStateGoesOnElsewhere(t *testing.T) {
	task := newTask(t, small(), 5, 1)
	a, b := newTrainer(t, task, 0), newTrainer(t, task, 0)
	outer, _ := round(t, a, 0, 5, task.Start())
	if err := b.Begin(t.Context(), 0, outer); err != nil {
		t.Fatal(err)
	}
	saved := state(t, a)
	if err := b.Restore(saved); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Step(t.Context(), 1); err == nil {
		t.Error("a round goes on after the state was restored")
	}
	if !bytes.Equal(state(t, b), saved) {
		t.Error("the state changed on its way")
	}
	want, _ := round(t, a, 1, 3, outer)
	if got, _ := round(t, b, 1, 3, outer); !slices.Equal(got, want) {
		t.Error("after Restore the steps are others")
	}
	if got, _ := round(t, newTrainer(t, task, 0), 1, 3, outer); slices.Equal(got, want) {
		t.Error("the state makes no difference")
	}
}

func FuzzRestore(f *testing.F) {
	task := newTask(f, Config{Layers: 1, Width: 1, Heads: 1, Context: 1, Batch: 1, Rate: 0.01}, 6, 1)
	donor := newTrainer(f, task, 0)
	f.Add(state(f, donor))
	round(f, donor, 0, 2, task.Start())
	good := state(f, donor)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(stateVersion))
	nan := slices.Clone(good)
	binary.LittleEndian.PutUint32(nan[stateHeader:], math.Float32bits(float32(math.NaN())))
	f.Add(nan)
	f.Fuzz(func(t *testing.T, b []byte) {
		tr := newTrainer(t, task, 0)
		if err := tr.Restore(good); err != nil {
			t.Fatal(err)
		}
		if err := tr.Restore(b); err != nil {
			if !bytes.Equal(state(t, tr), good) {
				t.Errorf("Restore failed (%v) and changed the state", err)
			}
		} else if !bytes.Equal(state(t, tr), b) {
			t.Error("Restore took a state and goes on from another")
		}
		if err := tr.Begin(t.Context(), 1, task.Start()); err != nil {
			t.Fatal(err)
		}
		tr.Step(t.Context(), 1) // may find that the training diverges
	})
}

func TestRestoreNamesWhatIsWrong(t *testing.T) {
	task := newTask(t, small(), 7, 1)
	other := small()
	other.Layers = 1
	tr := newTrainer(t, task, 0)
	good := state(t, tr)
	infinite := slices.Clone(good)
	binary.LittleEndian.PutUint32(infinite[len(infinite)-4:], math.Float32bits(float32(math.Inf(1))))
	for want, b := range map[string][]byte{
		`does not begin with "charlm1\n"`:                                      []byte("something else, of some length"),
		"the state has the moments of 8016 parameters, but the model has 9768": state(t, newTrainer(t, newTask(t, other, 7, 1), 0)),
		"so it is damaged": good[:len(good)-5],
		"are 0 and +Inf":   infinite,
	} {
		if err := tr.Restore(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Config){
		"layers is 0: it must lie between 1 and 32": func(c *Config) { c.Layers = 0 },
		"width is 513":                func(c *Config) { c.Width = 513 },
		"heads is -1":                 func(c *Config) { c.Heads = -1 },
		"width is 64, but heads is 5": func(c *Config) { c.Heads = 5 },
		"context is 0":                func(c *Config) { c.Context = 0 },
		"batch is 0":                  func(c *Config) { c.Batch = 0 },
		"rate is NaN: it must lie between 0 and 1": func(c *Config) { c.Rate = math.NaN() },
		"decay is -1": func(c *Config) { c.Decay = -1 },
		"batch is 1024: with layers 2, width 64, heads 4 and context 256, each worker needs 5059 MiB, but may use at most 1024 MiB; lower one of these numbers": func(c *Config) { c.Batch, c.Context = 1024, 256 },
		"warmup is -1": func(c *Config) { c.Warmup = -1 },
	} {
		c := Defaults()
		spoil(&c)
		_, err := New(c, 1, Text(), 1, IID)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if _, err := c.Sample(nil, nil, 1, 1, 1); err == nil {
			t.Errorf("Sample takes a model whose %v", err)
		}
	}
}

func TestNewErrors(t *testing.T) {
	c := Defaults()
	for want, err := range map[string]error{
		"the text is empty": second(New(c, 1, nil, 1, IID)),
		"the text has 129 bytes, but needs 1 training part and 1 validation part of at least 65 bytes each, which is the context and one byte; use a longer text, or lower train.model.context": second(New(c, 1, make([]byte, 129), 1, IID)),
		"the text has 324 bytes, but needs 4 training parts": second(New(c, 1, make([]byte, 324), 4, Contiguous)),
		"0 workers":            second(New(c, 1, Text(), 0, IID)),
		`split is "random"`:    second(New(c, 1, Text(), 1, "random")),
		"workers 0 to 2":       second(newTask(t, c, 1, 3).Trainer(3)),
		"trainer of worker -1": second(newTask(t, c, 1, 3).Trainer(-1)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	for _, fits := range []error{
		second(New(c, 1, make([]byte, 130), 1, IID)), second(New(c, 1, make([]byte, 325), 4, Contiguous)),
	} {
		if fits != nil {
			t.Error(fits)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestLayersCoverTheParameters(t *testing.T) {
	for _, c := range []Config{Defaults(), small()} {
		task := newTask(t, c, 1, 1)
		at, names := 0, map[string]bool{}
		for _, l := range task.Layers() {
			size := 1
			for _, s := range l.Shape {
				size *= s
			}
			if l.At != at || l.Len != size || names[l.Name] {
				t.Errorf("layer %+v: want it to begin at %d, with %d values and a name of its own", l, at, size)
			}
			at, names[l.Name] = at+l.Len, true
		}
		if at != c.Parameters() || at != len(task.Start()) {
			t.Errorf("layers have %d parameters, the configuration %d, the start %d", at, c.Parameters(), len(task.Start()))
		}
	}
	if got := Defaults().Parameters(); got != 135_488 {
		t.Errorf("the default has %d parameters; its comment says 135,488", got)
	}
}

func TestText(t *testing.T) {
	text := Text()
	symbols := map[byte]bool{}
	for _, b := range text {
		symbols[b] = true
	}
	sum := sha256.Sum256(text)
	const want = "8061549557aebd2fd6e353d18d9197cb707029112bd52d4d8b174583a925848a"
	if got := hex.EncodeToString(sum[:]); len(text) != 466_854 || len(symbols) != 75 || got != want {
		t.Errorf("%d bytes of %d symbols that hash to %s, want 466,854 of 75 and %s", len(text), len(symbols), got, want)
	}
}

// TestShards: parts of a contiguous split have nothing in common, and none has a
// part of what is held out.
func TestShards(t *testing.T) {
	text := Text()
	made, err := New(small(), 1, text, 3, Contiguous)
	if err != nil {
		t.Fatal(err)
	}
	shards := made.(*task)
	if joined := slices.Concat(append(shards.shards, shards.held)...); !bytes.Equal(joined, text) {
		t.Errorf("parts and what is held out have %d bytes together, not the text's %d in order", len(joined), len(text))
	}
	shared := newTask(t, small(), 1, 3).(*task)
	for w, s := range shared.shards {
		if len(s)+len(shared.held) != len(text) {
			t.Errorf("iid: worker %d draws from %d bytes of %d", w, len(s), len(text)-len(shared.held))
		}
	}
	// Every window of a small part comes up, the last one too.
	tokens, targets := make([]byte, 9000), make([]byte, 9000)
	part := []byte("abcdefghijklm")
	shards.windows(tokens, targets, shards.stream(1, 2, 3), part)
	begins := map[byte]int{}
	for at := 0; at < len(tokens); at += 9 {
		begins[tokens[at]]++
		if want := part[tokens[at]-'a':]; !bytes.Equal(tokens[at:at+9], want[:9]) || !bytes.Equal(targets[at:at+9], want[1:10]) {
			t.Fatalf("window %q with targets %q", tokens[at:at+9], targets[at:at+9])
		}
	}
	if len(begins) != 4 || begins['a'] < 200 || begins['d'] < 200 {
		t.Errorf("windows begin at %v, want each of four some 250 times", begins)
	}
}

func TestSample(t *testing.T) {
	c := small()
	task := newTask(t, c, 8, 1)
	tr, outer := newTrainer(t, task, 0), task.Start()
	for number := range 5 {
		outer, _ = round(t, tr, number, 20, outer)
	}
	sample := func(temperature float64, seed uint64) string {
		b, err := c.Sample(outer, []byte("Anne "), 80, temperature, seed)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if a := sample(1, 1); len(a) != 80 || a != sample(1, 1) || a == sample(1, 2) {
		t.Error("want 80 bytes, the same for the same seed and others for another")
	}
	if sample(0, 1) != sample(0, 2) || sample(0, 1) != sample(1e-9, 3) {
		t.Error("without temperature the seed makes a difference")
	}
	if a := sample(1, 1); strings.Count(a, " ") < 6 {
		t.Errorf("after 100 steps %q has few spaces", a)
	}
	if b, err := c.Sample(outer, nil, 3, 1, 1); err != nil || len(b) != 3 {
		t.Errorf("without a prompt: %q, %v", b, err)
	}
	broken := slices.Clone(outer)
	broken[len(broken)-1] = float32(math.NaN())
	for want, err := range map[string]error{
		"9 parameters were given, but the model has":                         second(c.Sample(outer[:9], nil, 1, 1, 1)),
		"the temperature is -1: it must be finite, and must not be negative": second(c.Sample(outer, nil, 1, -1, 1)),
		"the temperature is +Inf: it must be finite":                         second(c.Sample(outer, nil, 1, math.Inf(1), 1)),
		"the length is -1: it must not be negative":                          second(c.Sample(outer, nil, -1, 1, 1)),
		"predictions are not finite":                                         second(c.Sample(broken, nil, 1, 1, 1)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestDivergenceIsAnError, which names the mend.
func TestDivergenceIsAnError(t *testing.T) {
	task := newTask(t, small(), 9, 1)
	outer := task.Start()
	outer[len(outer)-1] = float32(math.Inf(1))
	tr := newTrainer(t, task, 0)
	if err := tr.Begin(t.Context(), 2, outer); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Step(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "the loss is NaN: the training has diverged; lower train.inner.rate, now 0.01, or train.outer.rate") {
		t.Errorf("error %v, want one that says that the training has diverged", err)
	}
}

// validation is the validation loss, which these tasks have.
func validation(task train.Task, parameters []float32) float64 {
	l, err := task.Validate(parameters)
	if err != nil {
		panic(err)
	}
	return l
}
