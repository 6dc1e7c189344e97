//go:build linux

package bench

import (
	"math"
	"slices"
	"strings"
	"testing"

	"testbed/allreduce/bench"
	"testbed/allreduce/rivals"
)

// TestNewRival: PCCL is measured in several ways, or in those that the user chooses.
func TestNewRival(t *testing.T) {
	for text, want := range map[string]pccl{
		"pccl":                                  {connections: []int{1, 4, 8, 16}, ways: []string{"none", "zero_point_scale"}},
		"pccl:connections=3":                    {connections: []int{3}, ways: []string{"none", "zero_point_scale"}},
		"pccl:quantisation=min_max":             {connections: []int{1, 4, 8, 16}, ways: []string{"min_max"}},
		"pccl:quantisation=none:connections=16": {connections: []int{16}, ways: []string{"none"}},
	} {
		r, err := newRival(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := r.(*pccl); !slices.Equal(got.connections, want.connections) || !slices.Equal(got.ways, want.ways) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	for _, codec := range pcclCodecs {
		if _, ok := rivals.Find(codec); ok != (codec != "") {
			t.Errorf("there is no codec %q", codec)
		}
	}
	for _, name := range RivalNames {
		if _, err := newRival(name); err != nil {
			t.Error(err)
		}
	}
}

// TestVectors: right results pass, and whatever is wrong with a result is found.
func TestVectors(t *testing.T) {
	const workers, elements, slices = 4, 64_000, 16
	s := bench.Settings{Workers: workers, Elements: elements, Data: bench.Gaussian, Seed: 3}
	v, err := newVectors(&s)
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	codec, _ := rivals.Find("pccl_zeropoint")
	exact, coded := v.allowed(nil, 1), v.allowed(codec, slices)
	if exact > 1e-6 || coded < 0.02 || coded > 0.04 {
		t.Errorf("errors of up to %v and %v are allowed", exact, coded)
	}
	// sum writes the ranks' sums to all results; each rank's vector counts as
	// often as weights say.
	sum := func(weights ...float32) {
		for _, out := range v.outputs {
			for i := range out.values() {
				var x float32
				for rank, in := range v.values() {
					x += weights[rank] * in[i]
				}
				out.values()[i] = x
			}
		}
	}
	judged := func(allowed float64) error {
		c := &contest{allowed: allowed}
		return c.judge(v.check(workers))
	}
	if err := judged(exact); err == nil {
		t.Error("a result that nobody wrote passes")
	}
	sum(1, 1, 1, 1)
	if o := v.check(workers); !o.identical || o.relative > 1e-7 {
		t.Errorf("%+v", o)
	}
	if err := judged(exact); err != nil {
		t.Error(err)
	}
	last := v.outputs[3].values()
	last[5] = math.Nextafter32(last[5], 9)
	if o := v.check(workers); o.identical || o.relative > 1e-7 {
		t.Errorf("a rank with another value: %+v", o)
	}
	last[5] = float32(math.NaN())
	if err := judged(coded); err == nil {
		t.Error("a NaN passes")
	}
	sum(1, 1, 1, 1)
	// One slice of one rank lacks a worker.
	for i := range elements / slices {
		last[i] -= v.values()[2][i]
	}
	for _, allowed := range []float64{exact, coded} {
		if err := judged(allowed); err == nil || !strings.Contains(err.Error(), "the result is wrong") {
			t.Errorf("a slice without a worker: %v", err)
		}
	}
	for _, weights := range [][]float32{{1, 1, 1, 0}, {2, 1, 1, 0}, {2, 1, 1, 1}} {
		sum(weights...)
		if err := judged(coded); err == nil {
			t.Errorf("weights %v pass", weights)
		}
	}
}

// TestJudgeKeepsTheWorst: of several reductions the worst counts.
func TestJudgeKeepsTheWorst(t *testing.T) {
	c := &contest{allowed: 1}
	for _, o := range []outcome{{0.1, true}, {0.3, false}, {0.2, true}} {
		if err := c.judge(o); err != nil {
			t.Fatal(err)
		}
	}
	if *c.result.RelativeError != 0.3 || *c.result.BitIdentical {
		t.Errorf("%v, %v", *c.result.RelativeError, *c.result.BitIdentical)
	}
}

// TestLastOf: the last line is that of a program's output, however much it prints.
func TestLastOf(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "\n\n": "", "a\nb": "b", "a\n b \n\n": "b",
		strings.Repeat("x", 10_000) + "\nFATAL: end\n": "FATAL: end",
		strings.Repeat("y", 300):                       strings.Repeat("y", 300),
	} {
		if got := lastOf(strings.NewReader(text)); got != want {
			t.Errorf("%.20q: %.20q, want %q", text, got, want)
		}
	}
}
