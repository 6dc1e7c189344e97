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

	"testbed/allreduce"
	"testbed/allreduce/int8"
	"testbed/internal/errs"
)

// KernelOptions select the kernels to measure.
type KernelOptions struct {
	Block  int      // values per scale
	Sizes  []Size   // of the float32 values
	Routes []string // of package int8; empty: all routes of the machine
	Cores  []int    // how many at once
	Rounds int
	// Within limits the time: after it no round begins, except for the first
	// leastRounds of each size. 0 is no limit.
	Within  time.Duration
	Against []string // formats besides int8 and int4, from AgainstNames
	Data    Data     // a distribution, or the name of Values
	Values  []float32
	// Progress is called with progress in words; it may be nil.
	Progress func(string)
}

// Kernel is the result for one kernel. docs/bench.md defines every field.
type Kernel struct {
	Kernel string `json:"kernel"`
	Route  string `json:"route,omitempty"` // absent for the references
	// Taken is the route that int8.Auto took, and Choice the reason.
	Taken  string       `json:"taken,omitempty"`
	Choice *int8.Choice `json:"choice,omitempty"`
	// Best is the fastest route that was measured besides int8.Auto, and OfBest
	// the rate of Taken divided by the rate of Best: 1 if auto took the fastest.
	Best   string  `json:"best,omitempty"`
	OfBest float64 `json:"of_best,omitempty"`
	Bytes  int     `json:"bytes"` // of float32 values, for each core
	Block  int     `json:"block"`
	Cores  int     `json:"cores"`
	// Medians over the rounds. A ratio is the median of the rounds' ratios.
	GBs       float64 `json:"gb_per_s"`
	Spread    float64 `json:"spread"`
	MemcpyGBs float64 `json:"memcpy_gb_per_s"`
	Ratio     float64 `json:"ratio"`
	ReadGBs   float64 `json:"read_gb_per_s"`
	ReadRatio float64 `json:"read_ratio"`
	// Scaling is GBs divided by that of one core, if one core was measured.
	Scaling float64 `json:"scaling,omitempty"`
	// Format is the encoding of values, with BytesPerValue of Bytes; the
	// references have none. Accuracy is in the rows that quantise.
	Format        string     `json:"format,omitempty"`
	BytesPerValue float64    `json:"bytes_per_value,omitempty"`
	Data          Data       `json:"data"`
	Accuracy      []Accuracy `json:"accuracy,omitempty"`
	// Rates are GB/s by round.
	Rates []float64 `json:"-"`
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

// ParseSizes reads several sizes.
func ParseSizes(texts []string) (sizes []Size, err error) {
	for _, text := range texts {
		s, err := ParseSize(text)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, s)
	}
	return sizes, nil
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
	// batchBytes is about the number of bytes processed between two looks at the
	// clock: enough to make the cost of a look, and of a common start of several
	// cores, negligible.
	batchBytes = 64 << 20
)

// vectors are the data of the kernels of one core.
type vectors struct {
	src, dst []float32
	in, out  []byte // encoded; in, by the format at work
	plain    []byte // without zero bytes
}

// references are measured for comparison with all formats' kernels.
var references = []kernel{
	{"memcpy", func(v *vectors, _ int) { copy(v.dst, v.src) }},
	// The standard library searches for a byte that is missing with the widest
	// loads that it has.
	{"read", func(v *vectors, _ int) { found.Store(bytes.IndexByte(v.plain, 0) >= 0) }},
}

// found keeps the compiler from removing the read.
var found atomic.Bool

// Check reports what is wrong with the options, as a *errs.FieldError, and
// fills in missing ones.
func (o *KernelOptions) Check() error {
	if field, problem := (allreduce.Format{Bits: 8, Block: o.Block}).Problem(); field != "" {
		return errs.Fieldf(field, "%s", problem)
	}
	if o.Rounds < 1 || o.Rounds > maxRepeat {
		return errs.Fieldf("rounds", "%d must lie between 1 and %d", o.Rounds, maxRepeat)
	}
	if len(o.Sizes) == 0 {
		return errs.Fieldf("sizes", "is empty: give at least one size")
	}
	if len(o.Cores) == 0 {
		return errs.Fieldf("cores", "is empty: give at least one number of cores")
	}
	for _, n := range o.Cores {
		if n < 1 || n > runtime.NumCPU() {
			return errs.Fieldf("cores", "%d must lie between 1 and %d, the number of cores of this machine", n, runtime.NumCPU())
		}
	}
	for _, name := range o.Against {
		if !slices.Contains(AgainstNames(), name) {
			return errs.Fieldf("against", "%s: choose from %s", name, strings.Join(AgainstNames(), ", "))
		}
	}
	if o.Data == "" {
		o.Data = Gaussian
	}
	if o.Values == nil && !slices.Contains(DataNames, o.Data) {
		return errs.Fieldf("data", "%s: choose one of %s, or a file that ends in .npy or .raw", o.Data, errs.List(DataNames))
	}
	if len(o.Routes) == 0 {
		o.Routes = int8.Routes()
	}
	for _, r := range o.Routes {
		if !slices.Contains(int8.Routes(), r) {
			return errs.Fieldf("route", "%s: this machine has no such route; choose from %s", r, strings.Join(int8.Routes(), ", "))
		}
	}
	return nil
}

// subject is a format's kernel on a route, or a reference, on so many cores.
type subject struct {
	kernel
	format *format // nil: a reference
	route  string
	choice *int8.Choice // of route int8.Auto
	cores  int
	rates  []float64 // by round, in GB/s
}

// name is that of the kernel in the results.
func (s *subject) name() string {
	if s.format == nil {
		return s.operation
	}
	return s.operation + s.format.suffix
}

// Kernels measures the kernels, and copying and reading memory for comparison.
// They take turns in every round, so that a disturbance of the machine affects
// all of them. It changes the route of package int8 and restores it.
func Kernels(o KernelOptions) ([]Kernel, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	defer func() { _ = int8.Use(int8.Auto) }() // every machine has this route
	tell := func(format string, args ...any) {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf(format, args...))
		}
	}
	began := time.Now()
	tell("measuring the error of each format on %d values", accuracyValues)
	accuracy := o.accuracy()
	var results []Kernel
	for _, size := range o.Sizes {
		tell("measuring the kernels with vectors of %v (rounds: at most %d)", size, o.Rounds)
		r, err := o.measure(size, func() bool { return o.Within > 0 && time.Since(began) > o.Within })
		if err != nil {
			return nil, err
		}
		for i, k := range r {
			if strings.HasPrefix(k.Kernel, quantise) {
				r[i].Accuracy = accuracy[k.Format]
			}
		}
		results = append(results, r...)
	}
	return results, nil
}

// formats are the measured formats.
func (o *KernelOptions) formats() (chosen []*format) {
	for i, f := range formats {
		if i < own || slices.Contains(o.Against, f.name) {
			chosen = append(chosen, f)
		}
	}
	return chosen
}

// accuracy measures the errors of each format, for every distribution and for
// the given values. It depends on no clock and on no machine.
func (o *KernelOptions) accuracy() map[string][]Accuracy {
	of := map[string][]Accuracy{}
	measure := func(data Data, values []float32) {
		for _, f := range o.formats() {
			of[f.name] = append(of[f.name], f.accuracy(data, values, o.Block))
		}
	}
	values := make([]float32, accuracyValues)
	for _, data := range DataNames {
		data.Fill(values, accuracySeed, 0, 0)
		measure(data, values)
	}
	if o.Values != nil {
		measure(o.Data, o.Values)
	}
	return of
}

// accuracySeed seeds the values for measuring errors.
const accuracySeed = 1

// leastRounds are enough for a median that one disturbance does not decide.
const leastRounds = 3

// measure measures all kernels at one size. over reports that no time is left.
func (o *KernelOptions) measure(size Size, over func() bool) ([]Kernel, error) {
	sets := make([]*vectors, slices.Max(o.Cores))
	for k := range sets {
		sets[k] = o.newVectors(int(size)/floatBytes, k)
	}
	subjects := o.subjects()
	var encoded *format // the format of in
	for round := range o.Rounds + 1 {
		if round > leastRounds && over() {
			break
		}
		for i, s := range subjects {
			if round == 0 && i+1 < len(subjects) && subjects[i+1].name() == s.name() && subjects[i+1].cores == s.cores {
				continue // the last route touches the same memory
			}
			if f := s.format; f != nil && f != encoded {
				for _, v := range sets {
					f.do(quantise, &vectors{src: v.src, out: v.in}, o.Block)
				}
				encoded = f
			}
			if s.format != nil && s.format.routed() {
				if err := int8.Use(s.route); err != nil {
					return nil, err
				}
				if s.route == int8.Auto {
					s.choice = choiceFor(s.operation, s.format.bits, size)
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

// choiceFor is the choice of int8.Auto for an operation.
func choiceFor(operation string, bits int, size Size) (last *int8.Choice) {
	for _, c := range int8.Choices() { // lengths ascend
		if c.Operation == operation && c.Bits == bits && c.FromBytes <= int(size) {
			last = &c
		}
	}
	return last
}

// subjects are all subjects to measure; the references come first.
func (o *KernelOptions) subjects() (subjects []*subject) {
	for _, cores := range o.Cores {
		for _, k := range references {
			subjects = append(subjects, &subject{kernel: k, cores: cores})
		}
		for _, f := range o.formats() {
			routes := int8.Routes()[:1] // plain Go
			if f.routed() {
				routes = o.Routes
			}
			for _, k := range f.kernels {
				for _, r := range routes {
					subjects = append(subjects, &subject{kernel: k, format: f, route: r, cores: cores})
				}
			}
		}
	}
	return subjects
}

func (o *KernelOptions) newVectors(n, rank int) *vectors {
	longest := 0
	for _, f := range o.formats() {
		longest = max(longest, f.encodedLen(n, o.Block))
	}
	v := &vectors{
		src: make([]float32, n), dst: make([]float32, n), plain: bytes.Repeat([]byte{1}, floatBytes*n),
		in: make([]byte, longest), out: make([]byte, longest),
	}
	values := o.Values
	if values == nil { // drawing all of a long vector would take as long as measuring it
		values = v.src[:min(n, accuracyValues)]
		o.Data.Fill(values, 1, rank, 0)
	}
	for filled := 0; filled < n; {
		filled += copy(v.src[filled:], values)
	}
	return v
}

// once runs the kernel on as many cores as there are sets, from a common
// start to the end of the last, and returns the rate in GB/s.
func (s *subject) once(sets []*vectors, block int) float64 {
	size := floatBytes * len(sets[0].src)
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
				s.run(v, block)
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
			if s.name() == name && s.route == route && s.cores == cores {
				return s
			}
		}
		return nil
	}
	var all []Kernel
	for _, s := range subjects {
		name := s.name()
		memcpy, read := find("memcpy", "", s.cores), find("read", "", s.cores)
		k := Kernel{
			Kernel: name, Route: s.route, Choice: s.choice, Bytes: int(size), Block: o.Block, Cores: s.cores,
			GBs: medianOrZero(s.rates), Spread: Spread(s.rates),
			MemcpyGBs: medianOrZero(memcpy.rates), Ratio: medianOrZero(quotients(s.rates, memcpy.rates)),
			ReadGBs: medianOrZero(read.rates), ReadRatio: medianOrZero(quotients(s.rates, read.rates)),
			Data: o.Data, Rates: s.rates,
		}
		if s.choice != nil {
			k.Taken = s.choice.Route
			k.Best, k.OfBest = s.beside(subjects)
		}
		if f := s.format; f != nil {
			n := int(size) / floatBytes
			k.Format, k.BytesPerValue = f.name, float64(f.encodedLen(n, o.Block))/float64(n)
		}
		if one := find(name, s.route, 1); one != nil {
			k.Scaling = medianOrZero(quotients(s.rates, one.rates))
		}
		all = append(all, k)
	}
	return all
}

// beside compares auto with the other routes of its kernel on as many cores. It
// returns the fastest, and the rate of the route that auto took divided by the
// rate of the fastest. The name is empty if auto alone was measured.
func (s *subject) beside(all []*subject) (best string, ratio float64) {
	taken, fastest := s, (*subject)(nil)
	for _, o := range all {
		if o.name() != s.name() || o.cores != s.cores || o.route == int8.Auto {
			continue
		}
		if o.route == s.choice.Route { // two measurements of one route differ by noise
			taken = o
		}
		if fastest == nil || medianOrZero(o.rates) > medianOrZero(fastest.rates) {
			fastest = o
		}
	}
	if fastest == nil {
		return "", 0
	}
	return fastest.route, medianOrZero(quotients(taken.rates, fastest.rates))
}

func quotients(a, b []float64) []float64 {
	q := make([]float64, len(a))
	for i := range a {
		q[i] = a[i] / b[i]
	}
	return q
}
