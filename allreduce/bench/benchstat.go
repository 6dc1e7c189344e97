package bench

import (
	"fmt"
	"io"
	"runtime"
)

// goFormat writes results in the format of go test -bench, which benchstat
// reads: a line for every sample.
type goFormat struct {
	w   io.Writer
	m   Machine
	err error
}

func newGoFormat(w io.Writer, m Machine) *goFormat {
	g := &goFormat{w: w, m: m}
	g.printf("goos: %s\ngoarch: %s\npkg: testbed/bench\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, m.Processor)
	return g
}

func (g *goFormat) printf(format string, args ...any) {
	if g.err == nil {
		_, g.err = fmt.Fprintf(g.w, format, args...)
	}
}

// sample writes a sample that took so many seconds for so many bytes of values.
func (g *goFormat) sample(name string, seconds, bytes float64) {
	g.printf("Benchmark%s-%d\t1\t%.1f ns/op\t%.2f MB/s\n", name, g.m.Cores, 1e9*seconds, bytes/seconds/1e6)
}

// WriteGoKernels writes kernels' rounds in the format of go test -bench.
func WriteGoKernels(w io.Writer, m Machine, all []Kernel) error {
	g := newGoFormat(w, m)
	for _, k := range all {
		route := ""
		if k.Route != "" {
			route = "/route=" + k.Route
		}
		name := fmt.Sprintf("Kernel/kernel=%s%s/size=%v/cores=%d", k.Kernel, route, Size(k.Bytes), k.Cores)
		for _, rate := range k.Rates {
			bytes := float64(k.Bytes * k.Cores)
			g.sample(name, bytes/(1e9*rate), bytes)
		}
	}
	return g.err
}

// WriteGo writes the results of the ring and its rivals in the format of go
// test -bench. Its bytes are those of the float32 vector.
func (r *Ring) WriteGo(w io.Writer) error {
	g := newGoFormat(w, r.Machine)
	samples := func(program, order string, seconds []float64) {
		links := "rate=" + r.Links.Rate.String()
		if r.Links.Scenario != "" {
			links = "scenario=" + r.Links.Scenario
		}
		for _, s := range seconds {
			g.sample(fmt.Sprintf("AllReduce/program=%s/algorithm=%s/order=%s/bits=%d/workers=%d/elements=%d/%s",
				program, r.Algorithm, order, r.Bits, r.Workers, r.Elements, links), s, floatBytes*float64(r.Elements))
		}
	}
	if r.Ordered != nil {
		samples("testbed", "naive", r.Ordered.NaiveSeconds)
	}
	samples("testbed", r.Order, r.Seconds)
	for _, a := range r.Against {
		program := a.Name
		if a.TCP != "" {
			program += "/tcp=" + a.TCP
		}
		if a.Connections > 0 {
			program += fmt.Sprintf("/connections=%d/quantisation=%s", a.Connections, a.Quantisation)
		}
		samples(program, r.Order, a.Seconds)
	}
	return g.err
}
