package bench

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"testbed/allreduce/int8"
)

// KernelOptions say which kernels to measure.
type KernelOptions struct {
	Block  int      // values per scale
	Sizes  []Size   // of the float32 values
	Routes []string // of package int8; empty: all that the machine has
	Cores  []int    // how many at once
	Rounds int
	// Progress is told what happens in words; it may be nil.
	Progress func(string)
}

// Kernel is the result for one kernel. docs/bench.md defines every field.
type Kernel struct {
	Kernel string `json:"kernel"`
	Route  string `json:"route,omitempty"` // none of the references
	Bytes  int    `json:"bytes"`           // of float32 values, for each core
	Block  int    `json:"block"`
	Cores  int    `json:"cores"`
	// Medians over the rounds. A ratio is the median of the rounds' ratios.
	GBs       float64 `json:"gb_per_s"`
	Spread    float64 `json:"spread"`
	MemcpyGBs float64 `json:"memcpy_gb_per_s"`
	Ratio     float64 `json:"ratio"`
	ReadGBs   float64 `json:"read_gb_per_s"`
	ReadRatio float64 `json:"read_ratio"`
	// Scaling is GBs divided by that of one core, where one was measured.
	Scaling float64 `json:"scaling,omitempty"`
}

// Size is a number of bytes.
type Size int

// ParseSize reads a size such as 256KiB or 1MiB; a number alone is in bytes.
func ParseSize(text string) (Size, error) {
	digits, unit := text, 1
	for suffix, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if number, found := strings.CutSuffix(text, suffix); found {
			digits, unit = number, bytes
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxKernelBytes/unit || n*unit%floatBytes != 0 {
		return 0, fmt.Errorf("size %q must be a multiple of 4 bytes up to 4GiB: write for example 256KiB or 256MiB", text)
	}
	return Size(n * unit), nil
}

func (s Size) String() string {
	for _, u := range []struct {
		suffix string
		bytes  Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s >= u.bytes && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", s/u.bytes, u.suffix)
		}
	}
	return strconv.Itoa(int(s))
}

const (
	maxKernelBytes = 4 << 30
	// batchBytes is about what is processed between two looks at the clock:
	// far more than either the look or the common start of several cores costs.
	batchBytes = 64 << 20
)

// vectors are what the kernels of one core work on.
type vectors struct {
	src, dst []float32
	in, out  []byte // encoded with 8 bits
	in4      []byte // encoded with 4 bits; out has room for it
	plain    []byte // without a byte that is zero
}

// kernels are all that there are; the references come first.
var kernels = []struct {
	name      string
	reference bool
	run       func(v *vectors, block int)
}{
	{"memcpy", true, func(v *vectors, _ int) { copy(v.dst, v.src) }},
	// The standard library looks for a byte that is not there with the widest
	// loads that it knows.
	{"read", true, func(v *vectors, _ int) { found.Store(bytes.IndexByte(v.plain, 0) >= 0) }},
	{"quantise", false, func(v *vectors, block int) { int8.Quantise(v.out, v.src, block) }},
	{"dequantise", false, func(v *vectors, block int) { int8.Dequantise(v.dst, v.in, block) }},
	{"ring_step", false, func(v *vectors, block int) { int8.AddRequantise(v.out, v.in, v.src, block, 1) }},
	{"quantise_4bit", false, func(v *vectors, block int) { fourBits(block).Quantise(v.out, v.src, nil) }},
	{"dequantise_4bit", false, func(v *vectors, block int) { fourBits(block).Dequantise(v.dst, v.in4) }},
	{"ring_step_4bit", false, func(v *vectors, block int) { fourBits(block).AddRequantise(v.out, v.in4, v.src, 1, nil) }},
}

func fourBits(block int) int8.Format { return int8.Format{Bits: 4, Block: block} }

// found keeps the compiler from leaving the reading out.
var found atomic.Bool

// Check says what is wrong with the options, as a *FieldError, and fills in
// what is not given.
func (o *KernelOptions) Check() error {
	if err := int8.CheckBlock(o.Block); err != nil {
		return Wrong("block", "%d: %v", o.Block, err)
	}
	if o.Rounds < 1 || o.Rounds > maxRepeat {
		return Wrong("rounds", "%d must lie between 1 and %d", o.Rounds, maxRepeat)
	}
	if len(o.Sizes) == 0 {
		return Wrong("sizes", "is empty; it needs at least one")
	}
	if len(o.Cores) == 0 {
		return Wrong("cores", "is empty; it needs at least one")
	}
	for _, n := range o.Cores {
		if n < 1 || n > runtime.NumCPU() {
			return Wrong("cores", "%d: this machine has 1 to %d", n, runtime.NumCPU())
		}
	}
	if len(o.Routes) == 0 {
		o.Routes = int8.Routes()
	}
	for _, r := range o.Routes {
		if !slices.Contains(int8.Routes(), r) {
			return Wrong("route", "%s: this machine has %s", r, strings.Join(int8.Routes(), ", "))
		}
	}
	return nil
}

// subject is a kernel on a route, or a reference, on so many cores.
type subject struct {
	kernel int
	route  string
	cores  int
	rates  []float64 // by round, in GB/s
}

// Kernels measures the kernels beside copying and reading memory. They take
// turns in every round, so that what disturbs the machine disturbs all of
// them. It changes the route of package int8 and restores it.
func Kernels(o KernelOptions) ([]Kernel, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	all := int8.Routes()
	defer func() { _ = int8.Use(all[len(all)-1]) }() // it was among them
	var results []Kernel
	for _, size := range o.Sizes {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%v, %d rounds", size, o.Rounds))
		}
		r, err := o.measure(size)
		if err != nil {
			return nil, err
		}
		results = append(results, r...)
	}
	return results, nil
}

func (o *KernelOptions) measure(size Size) ([]Kernel, error) {
	sets := make([]*vectors, slices.Max(o.Cores))
	for k := range sets {
		sets[k] = newVectors(int(size)/floatBytes, o.Block, k)
	}
	var subjects []*subject
	for _, cores := range o.Cores {
		for k, kernel := range kernels {
			routes := o.Routes
			if kernel.reference {
				routes = []string{""}
			}
			for _, r := range routes {
				subjects = append(subjects, &subject{kernel: k, route: r, cores: cores})
			}
		}
	}
	for round := range o.Rounds + 1 {
		for _, s := range subjects {
			if s.route != "" {
				if err := int8.Use(s.route); err != nil {
					return nil, err
				}
			}
			rate := s.once(sets[:s.cores], o.Block)
			if round > 0 { // the first one touches the memory
				s.rates = append(s.rates, rate)
			}
		}
	}
	return o.results(size, subjects), nil
}

func newVectors(n, block, rank int) *vectors {
	v := &vectors{
		src: make([]float32, n), dst: make([]float32, n), plain: bytes.Repeat([]byte{1}, floatBytes*n),
		in: make([]byte, int8.EncodedLen(n, block)), out: make([]byte, int8.EncodedLen(n, block)),
	}
	Gaussian.Fill(v.src, 1, rank, 0)
	int8.Quantise(v.in, v.src, block)
	v.in4 = make([]byte, fourBits(block).EncodedLen(n))
	fourBits(block).Quantise(v.in4, v.src, nil)
	return v
}

// once runs the kernel on as many cores as there are sets, from a common
// start to the end of the last, and returns the rate in GB/s.
func (s *subject) once(sets []*vectors, block int) float64 {
	run, size := kernels[s.kernel].run, floatBytes*len(sets[0].src)
	times := max(1, batchBytes/size)
	var ready atomic.Int32
	var group sync.WaitGroup
	began, ended := make([]time.Time, len(sets)), make([]time.Time, len(sets))
	for k, v := range sets {
		group.Go(func() {
			defer pin(k)()
			for ready.Add(1); ready.Load() < int32(len(sets)); {
				// Waking up would take longer than a small batch.
			}
			began[k] = time.Now()
			for range times {
				run(v, block)
			}
			ended[k] = time.Now()
		})
	}
	group.Wait()
	took := slices.MaxFunc(ended, time.Time.Compare).Sub(slices.MinFunc(began, time.Time.Compare))
	return float64(len(sets)*times*size) / float64(took.Nanoseconds())
}

func (o *KernelOptions) results(size Size, subjects []*subject) []Kernel {
	find := func(name, route string, cores int) *subject {
		for _, s := range subjects {
			if kernels[s.kernel].name == name && s.route == route && s.cores == cores {
				return s
			}
		}
		return nil
	}
	var all []Kernel
	for _, s := range subjects {
		name := kernels[s.kernel].name
		memcpy, read := find("memcpy", "", s.cores), find("read", "", s.cores)
		k := Kernel{
			Kernel: name, Route: s.route, Bytes: int(size), Block: o.Block, Cores: s.cores,
			GBs: medianOrZero(s.rates), Spread: Spread(s.rates),
			MemcpyGBs: medianOrZero(memcpy.rates), Ratio: medianOrZero(quotients(s.rates, memcpy.rates)),
			ReadGBs: medianOrZero(read.rates), ReadRatio: medianOrZero(quotients(s.rates, read.rates)),
		}
		if one := find(name, s.route, 1); one != nil {
			k.Scaling = medianOrZero(quotients(s.rates, one.rates))
		}
		all = append(all, k)
	}
	return all
}

func quotients(a, b []float64) []float64 {
	q := make([]float64, len(a))
	for i := range a {
		q[i] = a[i] / b[i]
	}
	return q
}
