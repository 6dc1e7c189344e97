package bench

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/allreduce"
	"testbed/allreduce/int8"
	"testbed/internal/rapidtest"
	"testbed/shaping"
)

func TestMedianAndSpread(t *testing.T) {
	for _, test := range []struct {
		values         []float64
		median, spread float64
	}{
		{nil, 0, 0}, {[]float64{3}, 3, 0}, {[]float64{4, 1}, 2.5, 1.2}, {[]float64{9, 1, 2}, 2, 4}, {[]float64{0, 0}, 0, 0},
	} {
		if m, s := medianOrZero(test.values), Spread(test.values); m != test.median || s != test.spread {
			t.Errorf("%v: median %v, spread %v, want %v, %v", test.values, m, s, test.median, test.spread)
		}
	}
}

func TestBoundAndBandwidths(t *testing.T) {
	// Four workers send 1.5 times the vector: 6 MB at 100 Mbit/s.
	if got := BoundSeconds(4, 4_000_000, 100e6); got != 0.48 {
		t.Errorf("bound %v", got)
	}
	if got := BoundSeconds(4, 4_000_000, 0); got != 0 {
		t.Errorf("bound of an unlimited link %v", got)
	}
	algorithm, bus := Bandwidths(4, 4_000_000, 0.5)
	if algorithm != 0.032 || bus != 0.048 {
		t.Errorf("bandwidths %v and %v GB/s", algorithm, bus)
	}
}

// TestAnyPartOfAVectorIsTheSame however it is cut for filling.
func TestAnyPartOfAVectorIsTheSame(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(DataNames).Draw(t, "data")
		n := rapid.IntRange(1, 3*stretch).Draw(t, "length")
		whole := make([]float32, n)
		d.Fill(whole, 7, 3, 0)
		lo := rapid.IntRange(0, n-1).Draw(t, "from")
		part := make([]float32, rapid.IntRange(1, n-lo).Draw(t, "part"))
		d.Fill(part, 7, 3, lo)
		if !slices.Equal(part, whole[lo:lo+len(part)]) {
			t.Fatalf("values from %d on differ", lo)
		}
	})
}

// TestDataIsWhatItIsCalled compares the share of values beyond three standard
// deviations of a normal with the distributions' own.
func TestDataIsWhatItIsCalled(t *testing.T) {
	values := make([]float32, 1<<20)
	for data, want := range map[Data]float64{Gaussian: 0.0026998, Student3: 0.0576684} { // P(|x| > 3)
		data.Fill(values, 1, 0, 0)
		beyond := 0
		for _, x := range values {
			if math.Abs(float64(x)) > 3 {
				beyond++
			}
		}
		got := float64(beyond) / float64(len(values))
		if math.Abs(got-want) > 5*math.Sqrt(want/float64(len(values))) {
			t.Errorf("%s: %.4f %% beyond 3, want %.4f %%", data, 100*got, 100*want)
		}
		other := make([]float32, 100)
		data.Fill(other, 1, 1, 0)
		if slices.Equal(other, values[:100]) {
			t.Errorf("%s: two ranks have the same vector", data)
		}
	}
}

// TestErrorOfTheShardsIsThatOfTheWhole compares the error summed up by rank,
// from data made anew, with that of the model of the ring.
func TestErrorOfTheShardsIsThatOfTheWhole(t *testing.T) {
	s := Settings{Workers: 3, Elements: 10_007, Block: allreduce.DefaultBlock, Bits: 8, Data: Gaussian, Seed: 5}
	inputs := make([][]float32, s.Workers)
	for k := range inputs {
		inputs[k] = make([]float32, s.Elements)
		s.Data.Fill(inputs[k], s.Seed, k, 0)
	}
	result := allreduce.RingMean(inputs, s.Format())
	whole := compare(result, allreduce.Mean(inputs))
	var sum Squares
	for k := range s.Workers {
		exact, lo := s.exactShard(k)
		sum.Add(compare(result[lo:], exact))
	}
	if math.Abs(sum.Relative()/whole.Relative()-1) > 1e-9 || whole.Relative() < 0.005 || whole.Relative() > 0.02 {
		t.Errorf("relative error %v by shards, %v of the whole", sum.Relative(), whole.Relative())
	}
	if (Squares{}).Relative() != 0 {
		t.Error("no error is not 0")
	}
}

func TestNewRing(t *testing.T) {
	s := Settings{Workers: 2, Elements: 1000, Block: 1024, Data: Gaussian, Repeat: 3}
	reduction := func(first, second time.Duration, hash string) Reduction {
		ms := time.Millisecond
		return Reduction{
			Reduced: []Reduced{
				{Began: ms, ReduceScatter: first/2 + ms, Total: first, FrameBytes: 10},
				{Began: ms, ReduceScatter: second/2 + ms, Total: second, FrameBytes: 20},
			},
			Checked: []Checked{
				{Hash: "a", Squares: Squares{1, 100}, CPU: 3 * ms, WireBytes: 11, Memory: 4000},
				{Hash: hash, Squares: Squares{3, 300}, CPU: 4 * ms, WireBytes: 22, Memory: 8000},
			},
			RouterCPU: 5 * ms,
		}
	}
	all := []Reduction{
		reduction(10*time.Millisecond, 20*time.Millisecond, "a"),
		reduction(40*time.Millisecond, 30*time.Millisecond, "a"),
		reduction(10*time.Millisecond, 10*time.Millisecond, "a"),
	}
	r := NewRing(s, Links{Rate: 1e6}, all)
	if !slices.Equal(r.Seconds, []float64{0.02, 0.04, 0.01}) || r.SecondsMedian != 0.02 || math.Abs(r.Spread-1.5) > 1e-12 {
		t.Errorf("seconds %v, median %v, spread %v", r.Seconds, r.SecondsMedian, r.Spread)
	}
	if *r.BoundSeconds != 0.008 || *r.RatioToBound != 2.5 {
		t.Errorf("bound %v, ratio %v", *r.BoundSeconds, *r.RatioToBound)
	}
	if r.FrameBytes != 30 || r.BytesOnWire != 33 || math.Abs(r.CPUSeconds-0.007) > 1e-12 || r.RouterCPUSeconds != 0.005 {
		t.Errorf("%+v", r)
	}
	if r.RelativeError != 0.1 || !r.BitIdentical || *r.MemoryBytes != 8000 || r.MemoryRatio != 2 {
		t.Errorf("error %v, identical %v, memory %v", r.RelativeError, r.BitIdentical, *r.MemoryBytes)
	}
	if p := r.Phases; p.StartSeconds != 0.001 || p.ReduceScatterSeconds != 0.01 || math.Abs(p.AllGatherSeconds-0.009) > 1e-12 {
		t.Errorf("phases %+v", p)
	}
	all[1] = reduction(1, 1, "b")
	all[2].Checked[0].Memory = -1
	r = NewRing(s, Links{}, all)
	if r.BitIdentical || r.BoundSeconds != nil || r.RatioToBound != nil || r.MemoryBytes != nil {
		t.Errorf("%+v", r)
	}
}

func TestSettingsCheckNamesTheField(t *testing.T) {
	good := Settings{Workers: 4, Elements: 100, Algorithm: "direct", Groups: 2, Order: "naive", Block: 1024, Bits: 4, Entropy: "auto", Data: Student3, Repeat: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*Settings){
		"workers: 1":           func(s *Settings) { s.Workers = 1 },
		"elements: 0":          func(s *Settings) { s.Elements = 0 },
		"repeat: 0":            func(s *Settings) { s.Repeat = 0 },
		"warmup: -1":           func(s *Settings) { s.Warmup = -1 },
		"connections: 65":      func(s *Settings) { s.Connections = 65 },
		"groups: 0":            func(s *Settings) { s.Groups = 0 },
		"groups: 5":            func(s *Settings) { s.Groups = 5 },
		"order: best":          func(s *Settings) { s.Order = "best" },
		"order: optimised":     func(s *Settings) { s.Order = OptimisedOrder }, // direct has none
		"bits is 5":            func(s *Settings) { s.Bits = 5 },
		"entropy is \"maybe\"": func(s *Settings) { s.Entropy = "maybe" },
		"algorithm: tree":      func(s *Settings) { s.Algorithm = "tree" },
		"block is 7":           func(s *Settings) { s.Block = 7 },
		"data: lognormal":      func(s *Settings) { s.Data = "lognormal" },
	} {
		s := good
		spoil(&s)
		if err := s.Check(); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("want an error about %s, got %v", field, err)
		}
	}
}

func TestLinksSpec(t *testing.T) {
	l := Links{Rate: 1e8, Queue: shaping.DefaultQueue, OneWayDelay: shaping.Duration(50 * time.Millisecond), Loss: 0.01}
	nodes := []string{"w0", "w1", "w2"}
	plan, err := shaping.NewPlan(l.Spec(nodes, []int{0, 1, 0}), nodes, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if n := plan.Nodes[1]; n.RateUp != 1e8 || n.RateDown != 1e8 || n.Queue != shaping.DefaultQueue {
		t.Errorf("%+v", n)
	}
	if p := plan.Paths[0][1]; p.OneWayDelay != l.OneWayDelay || p.Loss != 0.01 || plan.Plain() {
		t.Errorf("%+v", p)
	}
	l.GroupDelay = shaping.Duration(80 * time.Millisecond)
	if plan, err = shaping.NewPlan(l.Spec(nodes, []int{0, 1, 0}), nodes, 0, 1); err != nil {
		t.Fatal(err)
	}
	want := [][]float64{{0, 0.08, 0.05}, {0.08, 0, 0.08}, {0.05, 0.08, 0}}
	if got := plan.Delays(nodes); !reflect.DeepEqual(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
	if plan.Paths[0][1].Loss != 0.01 {
		t.Errorf("between groups: %+v", plan.Paths[0][1])
	}
}

// TestOrdered: two regions by turns, whose ring crosses between them at every
// hop, or twice.
func TestOrdered(t *testing.T) {
	delays := [][]float64{{0, 5, 1, 5}, {5, 0, 5, 1}, {1, 5, 0, 5}, {5, 1, 5, 0}}
	o, err := OrderRing(delays)
	if err != nil {
		t.Fatal(err)
	}
	// Six hops: all far, or four of them.
	if o.NaiveLatencySeconds != 30 || o.LatencySeconds != 18 {
		t.Errorf("%+v", o)
	}
	r := Ring{BoundSeconds: new(2.0), SecondsMedian: 20}
	r.Gained(*o, []float64{29, 30, 31})
	if r.Ordered.PredictedGain != 1.6 || r.Ordered.MeasuredGain != 1.5 || r.Ordered.NaiveSecondsMedian != 30 {
		t.Errorf("%+v", r.Ordered)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{"4": 4, "256KiB": 256 << 10, "3MiB": 3 << 20, "4GiB": 4 << 30} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if back, err := ParseSize(got.String()); err != nil || back != got {
			t.Errorf("%d is written as %s", got, got)
		}
	}
	for _, text := range []string{"", "0", "-4", "7", "1kb", "5GiB", "1.5MiB", "99999999999999999999", "9007199254740993KiB"} {
		if _, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as a size", text)
		}
	}
}

func TestKernels(t *testing.T) {
	o := KernelOptions{Block: 64, Sizes: []Size{4 << 10}, Cores: []int{1}, Rounds: 2, Against: []string{"prime"}}
	results, err := Kernels(o)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, k := range results {
		if k.GBs <= 0 || k.Ratio <= 0 || k.ReadRatio <= 0 || k.MemcpyGBs <= 0 || k.Bytes != 4<<10 || k.Cores != 1 || len(k.Rates) != 2 || k.Data != Gaussian {
			t.Errorf("%+v", k)
		}
		if reference := k.Format == ""; reference != (k.Route == "") || reference != (k.BytesPerValue == 0) {
			t.Errorf("%+v", k)
		}
		auto := k.Route == int8.Auto
		if (k.Taken != "") != auto || (k.Choice != nil) != auto {
			t.Errorf("route %q takes %q by %+v", k.Route, k.Taken, k.Choice)
		}
		if (k.Best != "") != auto || (k.OfBest > 0) != auto || k.Best == k.Taken && k.Best != "" && k.OfBest != 1 {
			t.Errorf("route %q takes %q, the fastest is %q, %v", k.Route, k.Taken, k.Best, k.OfBest)
		}
		if c := k.Choice; c != nil && (!slices.Contains(int8.Routes(), k.Taken) || c.Route != k.Taken || c.FromBytes != 0 || c.Operation != strings.TrimSuffix(k.Kernel, "_4bit") || (c.Bits == 4) != strings.HasSuffix(k.Kernel, "_4bit")) {
			t.Errorf("%s takes %q by %+v", k.Kernel, k.Taken, c)
		}
		if quantises := strings.HasPrefix(k.Kernel, "quantise"); quantises != (len(k.Accuracy) == len(DataNames)) {
			t.Errorf("%+v", k)
		}
		if !slices.Contains(found, k.Kernel) {
			found = append(found, k.Kernel)
		}
	}
	if want := []string{
		"memcpy", "read", "quantise", "dequantise", "dequantise_add", "ring_step",
		"quantise_4bit", "dequantise_4bit", "dequantise_add_4bit", "ring_step_4bit",
		"quantise_prime", "dequantise_prime", "dequantise_add_prime", "ring_step_prime",
	}; !reflect.DeepEqual(found, want) {
		t.Errorf("kernels %v", found)
	}
	if want := 2 + 8*len(int8.Routes()) + 4; len(results) != want {
		t.Errorf("%d results, want %d", len(results), want)
	}
	rows := Formats(results)
	if len(rows) != 3 || rows[0].Name != "int8" || rows[0].Route != int8.Routes()[len(int8.Routes())-1] || rows[0].BytesPerValue != 1+4.0/64 || rows[2].BytesPerValue != 2 {
		t.Errorf("%+v", rows)
	}
	for _, row := range rows {
		if row.Quantise <= 0 || row.DequantiseAdd <= 0 || row.RingStep <= 0 || len(row.Accuracy) != len(DataNames) {
			t.Errorf("%+v", row)
		}
	}
}

// TestKernelsWithin: when the time is over, three rounds are enough.
func TestKernelsWithin(t *testing.T) {
	o := KernelOptions{Block: 64, Sizes: []Size{4 << 10, 8 << 10}, Cores: []int{1}, Rounds: 5, Within: 1, Routes: []string{"go"}}
	results, err := Kernels(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range results {
		if len(k.Rates) != leastRounds {
			t.Errorf("%s, %d bytes: %d rounds, want %d", k.Kernel, k.Bytes, len(k.Rates), leastRounds)
		}
	}
}

// TestBesideAutoIsTheFastestOther: the route that auto took is judged by its own row, not by
// that of auto, so that noise between the two does not count.
func TestBesideAutoIsTheFastestOther(t *testing.T) {
	choice := &int8.Choice{Route: "avx2"}
	row := func(route string, rates ...float64) *subject {
		s := &subject{kernel: kernel{operation: quantise}, format: formats[0], route: route, cores: 1, rates: rates}
		if route == int8.Auto {
			s.choice = choice
		}
		return s
	}
	auto, two := row(int8.Auto, 1, 1, 1), row("avx512", 50, 50, 50)
	two.cores = 2
	for _, test := range []struct {
		others []*subject
		best   string
		ratio  float64
	}{
		{nil, "", 0},
		{[]*subject{row("go", 2, 2, 2), row("avx2", 30, 40, 20)}, "avx2", 1},
		{[]*subject{row("go", 2, 2, 2), row("avx2", 30, 40, 20), row("avx512", 40, 40, 40)}, "avx512", 0.75},
		{[]*subject{row("go", 2, 4, 8)}, "go", 0.25}, // the route taken was not measured
		{[]*subject{row("avx2", 30, 40, 20), two}, "avx2", 1},
	} {
		if best, ratio := auto.beside(append(test.others, auto)); best != test.best || ratio != test.ratio {
			t.Errorf("%q at %v, want %q at %v", best, ratio, test.best, test.ratio)
		}
	}
}

// TestAnswer: a row for each kernel and size, and one line on auto.
func TestAnswer(t *testing.T) {
	results := []Kernel{
		{Kernel: "memcpy", Bytes: 256 << 10, Cores: 1, GBs: 50, Ratio: 1},
		{Kernel: "quantise", Format: "int8", Route: "go", Bytes: 256 << 10, Cores: 1, GBs: 4},
		{Kernel: "quantise", Format: "int8", Route: "avx2", Bytes: 256 << 10, Cores: 1, GBs: 25},
		{Kernel: "quantise", Format: "int8", Route: int8.Auto, Taken: "avx512", Best: "avx2", OfBest: 0.8, Bytes: 256 << 10, Cores: 1, GBs: 20, Ratio: 0.4,
			BytesPerValue: 1.004, Accuracy: []Accuracy{{Data: Gaussian, RelativeError: 0.0079}, {Data: Student3, RelativeError: 0.0286}}},
		{Kernel: "quantise", Format: "int8", Route: "go", Bytes: 256 << 20, Cores: 1, GBs: 4},
		{Kernel: "quantise", Format: "int8", Route: int8.Auto, Taken: "avx2", Best: "avx2", OfBest: 1, Bytes: 256 << 20, Cores: 1, GBs: 10, Ratio: 0.9},
	}
	m := Machine{Processor: "a processor", Cores: 2, Kernel: "6.1", Go: "go1", Kernels: "avx512"}
	var b strings.Builder
	if err := WriteAnswer(&b, m, results); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a processor, 2 cores, Linux 6.1, go1, kernels avx512",
		"",
		"kernel size auto takes GB/s spread × memcpy × go × fastest fastest",
		"memcpy 256KiB 50.00 0 % 1.00",
		"quantise 256KiB avx512 20.00 0 % 0.40 5.0 0.80 avx2",
		"quantise 256MiB avx2 10.00 0 % 0.90 2.5 1.00 avx2",
		"",
		"auto takes the fastest route in 1 of 2 cases. It loses most in quantise at 256KiB: avx2 is 25 % faster than avx512.",
		"error of int8, 1.004 bytes a value: 0.79 % (gaussian), 2.86 % (student3)",
		"",
	}
	got := strings.Split(b.String(), "\n")
	for i := range got {
		got[i] = strings.Join(strings.Fields(got[i]), " ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := autoVerdict(results[4:]); got != "auto takes the fastest route in the only case." {
		t.Errorf("%q", got)
	}
	if got := autoVerdict(results[:3]); got != "" {
		t.Errorf("%q", got)
	}
}

// TestKernelsOnOnesOwnValues: they fill the vectors, and their errors come last.
func TestKernelsOnOnesOwnValues(t *testing.T) {
	o := KernelOptions{
		Block: 64, Sizes: []Size{4 << 10}, Cores: []int{1}, Rounds: 1, Routes: []string{"go"},
		Data: "mine.npy", Values: []float32{1, -1, 0.25},
	}
	results, err := Kernels(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range results {
		if k.Kernel == "quantise" {
			if a := k.Accuracy[len(k.Accuracy)-1]; a.Data != "mine.npy" || k.Data != "mine.npy" || a.RelativeError <= 0 || a.RelativeError > 0.01 {
				t.Errorf("%+v", k)
			}
		}
	}
	if v := o.newVectors(5, 0); !slices.Equal(v.src, []float32{1, -1, 0.25, 1, -1}) {
		t.Errorf("%v", v.src)
	}
}

// TestAccuracyIsWhatWasMeasured compares errors with those that other programs'
// own quantisers, and prototypes of ours, were measured to have, in percent. With
// heavy tails the largest value decides, and layers depend on the scales chosen:
// there the bounds are wide.
func TestAccuracyIsWhatWasMeasured(t *testing.T) {
	o := KernelOptions{Block: allreduce.DefaultBlock, Against: AgainstNames()}
	accuracy := o.accuracy()
	for _, want := range []struct {
		format        string
		data          Data
		percent, give float64
	}{
		{"int8", Gaussian, 0.79, 0.02}, {"int8", Student3, 2.86, 0.2}, {"int8", Layers, 0.79, 0.02},
		{"prime", Gaussian, 1.60, 0.08}, {"prime", Student3, 33.8, 0.25}, {"prime", Layers, 25.9, 0.15},
		{"pccl_minmax", Gaussian, 2.16, 0.2}, {"pccl_minmax", Student3, 46.5, 0.6}, {"pccl_minmax", Layers, 211, 0.6},
		{"pccl_zeropoint", Gaussian, 1.36, 0.01}, {"pccl_zeropoint", Student3, 28.4, 0.25}, {"pccl_zeropoint", Layers, 34.8, 0.1},
		// Four and eight binary places: half of the last one's unit, evenly spread.
		{"torchft_fp8", Gaussian, 2.64, 0.05}, {"bf16", Gaussian, 0.17, 0.05},
		{"float32", Student3, 0, 0},
	} {
		for _, a := range accuracy[want.format] {
			if got := 100 * a.RelativeError; a.Data == want.data && math.Abs(got-want.percent) > want.give*want.percent {
				t.Errorf("%s, %s: relative error %.3g %%, measured %.3g %%", want.format, want.data, got, want.percent)
			}
		}
	}
	// Truncating takes half a step from every value; rounding is fair.
	for name, all := range accuracy {
		for _, a := range all {
			if name == "pccl_minmax" {
				if want := -math.Sqrt(3) / 2 * a.RelativeError; a.Data != Sparse && math.Abs(a.Bias/want-1) > 0.15 {
					t.Errorf("%s, %s: bias %.4f, relative error %.4f", name, a.Data, a.Bias, a.RelativeError)
				}
			} else if a.Data == Gaussian && math.Abs(a.Bias) > 0.01*a.RelativeError+1e-9 {
				t.Errorf("%s, %s: bias %.6f, relative error %.6f", name, a.Data, a.Bias, a.RelativeError)
			}
		}
	}
	if again := o.accuracy(); !reflect.DeepEqual(again, accuracy) {
		t.Error("other errors the second time")
	}
}

func TestSparseAndLayers(t *testing.T) {
	values := make([]float32, accuracyValues)
	Sparse.Fill(values, 1, 0, 0)
	nonzero := 0
	for _, x := range values {
		if x != 0 {
			nonzero++
		}
	}
	if share := float64(nonzero) / float64(len(values)); share < 0.0095 || share > 0.0105 {
		t.Errorf("%.4f of sparse values are not zero", share)
	}
	Layers.Fill(values, 1, 0, 0)
	least, most := math.Inf(1), 0.0
	for lo := 0; lo < len(values); lo += layerValues {
		var squares float64
		for _, x := range values[lo:][:layerValues] {
			squares += float64(x) * float64(x)
		}
		deviation := math.Sqrt(squares / layerValues)
		least, most = min(least, deviation), max(most, deviation)
	}
	if math.Abs(most-1) > 0.03 || math.Abs(least-1e-3) > 3e-5 {
		t.Errorf("layers' standard deviations from %v to %v", least, most)
	}
}

func TestGoFormat(t *testing.T) {
	var b strings.Builder
	m := Machine{Processor: "a processor", Cores: 2}
	kernels := []Kernel{{Kernel: "memcpy", Bytes: 256 << 10, Cores: 2, Rates: []float64{50}}, {Kernel: "quantise_4bit", Route: "avx2", Bytes: 1 << 20, Cores: 1, Rates: []float64{40, 20}}}
	if err := WriteGoKernels(&b, m, kernels); err != nil {
		t.Fatal(err)
	}
	head := "goos: " + runtime.GOOS + "\ngoarch: " + runtime.GOARCH + "\npkg: testbed/bench\ncpu: a processor\n"
	want := head +
		"BenchmarkKernel/kernel=memcpy/size=256KiB/cores=2-2\t1\t10485.8 ns/op\t50000.00 MB/s\n" +
		"BenchmarkKernel/kernel=quantise_4bit/route=avx2/size=1MiB/cores=1-2\t1\t26214.4 ns/op\t40000.00 MB/s\n" +
		"BenchmarkKernel/kernel=quantise_4bit/route=avx2/size=1MiB/cores=1-2\t1\t52428.8 ns/op\t20000.00 MB/s\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	r := Ring{
		Settings: Settings{Workers: 4, Elements: 1_000_000, Algorithm: "ring", Order: "optimised", Bits: 8},
		Links:    Links{Rate: 1e8}, Machine: m, Seconds: []float64{0.5},
		Ordered: &Ordered{NaiveSeconds: []float64{1}}, Against: []Rival{{Name: "gloo", Seconds: []float64{2}}},
	}
	if err := r.WriteGo(&b); err != nil {
		t.Fatal(err)
	}
	line := "BenchmarkAllReduce/program=%s/algorithm=ring/order=%s/bits=8/workers=4/elements=1000000/rate=100mbit-2\t1\t%s MB/s\n"
	want = head + fmt.Sprintf(line, "testbed", "naive", "1000000000.0 ns/op\t4.00") +
		fmt.Sprintf(line, "testbed", "optimised", "500000000.0 ns/op\t8.00") + fmt.Sprintf(line, "gloo", "optimised", "2000000000.0 ns/op\t2.00")
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	r.Links, r.Ordered, r.Against = Links{Scenario: "uneven"}, nil, nil
	if err := r.WriteGo(&b); err != nil || !strings.Contains(b.String(), "/scenario=uneven-2\t") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestSlowestRate: of the ranks' nodes alone, and of a scenario the bound.
func TestSlowestRate(t *testing.T) {
	plan := &shaping.Plan{Nodes: []shaping.NodePlan{{Name: "coordinator", RateUp: 1}, {Name: "w0", RateUp: 3e6, RateDown: 2e6}, {Name: "w1"}}}
	if got := SlowestRate(plan, []string{"w0", "w1"}); got != 2e6 {
		t.Errorf("%v", got)
	}
	if got := SlowestRate(plan, []string{"w1"}); got != 0 {
		t.Errorf("%v", got)
	}
	all := []Reduction{{Reduced: make([]Reduced, 2), Checked: make([]Checked, 2)}}
	r := NewRing(Settings{Workers: 2, Elements: 1000}, Links{Scenario: "s", SlowestRate: 1e6}, all)
	if *r.BoundSeconds != 0.008 {
		t.Errorf("bound %v", *r.BoundSeconds)
	}
}

func TestRow(t *testing.T) {
	r := Ring{
		Settings: Settings{Workers: 4, Elements: 16_000_000}, Links: Links{Rate: 1e8, OneWayDelay: shaping.Duration(50 * time.Millisecond), Loss: 0.001},
		SecondsMedian: 2.0512, Spread: 0.034, RatioToBound: new(1.0683), CPUSeconds: 2.91, RelativeError: 0.01239,
		Against: []Rival{{Name: "iperf3", Problem: "not installed"}, {Name: "gloo", SecondsMedian: 8.04, Ratio: 0.255, CPUSeconds: 0.46}},
	}
	want := "| 100mbit, 50ms, loss 0.1% | 4 × 16 M | 2.05 s (3 %) | 1.07 | 8.04 s (0 %) | 0.26 | – | – | 2.9, 0, 0.46 | – | 1.24 % |"
	if got := r.Row(); got != want {
		t.Errorf("row\n%s, want\n%s", got, want)
	}
	r.RatioToBound, r.Links, r.Against, r.MemoryBytes, r.MemoryRatio = nil, Links{}, nil, new(int64(8)), 0.5
	want = "| unlimited | 4 × 16 M | 2.05 s (3 %) | – | – | – | – | – | 2.9, 0, – | 0.50 | 1.24 % |"
	if got := r.Row(); got != want {
		t.Errorf("row\n%s, want\n%s", got, want)
	}
}

// TestRivals: rivals' entries are named by what distinguishes them, and a row has
// the fastest.
func TestRivals(t *testing.T) {
	r := Ring{
		Settings: Settings{Workers: 4, Elements: 1_000_000}, Links: Links{Rate: 1e8}, SecondsMedian: 0.5,
		Against: []Rival{
			{Name: "gloo", TCP: "reno", SecondsMedian: 12, Ratio: 0.04, RelativeError: new(4e-8), BitIdentical: new(true), Version: "v1"},
			{Name: "gloo", TCP: "bbr", SecondsMedian: 1.2, Ratio: 0.42},
			{Name: "pccl", Connections: 1, Quantisation: "none", TCP: "bbr", SecondsMedian: 1.5, Seconds: []float64{1.5}},
			{Name: "pccl", Connections: 16, Quantisation: "min_max", TCP: "bbr", SecondsMedian: 0.9, RelativeError: new(0.057), BitIdentical: new(false)},
			{Name: "iperf3", Problem: "not installed"},
		},
	}
	var labels []string
	for _, a := range r.Against {
		labels = append(labels, a.Label())
	}
	want := []string{"gloo, reno", "gloo, bbr", "pccl, 1 connection, float32, bbr", "pccl, 16 connections, uint8 min_max, bbr", "iperf3"}
	if !slices.Equal(labels, want) {
		t.Errorf("%q", labels)
	}
	if row := r.Row(); !strings.Contains(row, "| 1.2 s (0 %), bbr | 0.42 | – | – |") {
		t.Error(row)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"rivals, over TCP                           time    spread   ring ÷ rival   processor   error     version\n",
		"pccl, 16 connections, uint8 min_max, bbr   0.9 s   0 %      0.000          0 s         5.700 %   \n",
		"\niperf3: not installed\n", "pccl, 16 connections, uint8 min_max, bbr: the ranks ended with different bytes\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no line %q in\n%s", line, b.String())
		}
	}
	b.Reset()
	if err := r.WriteGo(&b); err != nil || !strings.Contains(b.String(), "/program=pccl/tcp=bbr/connections=1/quantisation=none/algorithm=") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
