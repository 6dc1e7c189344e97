package int8

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// operation is a kind of call.
type operation uint8

const (
	encode operation = iota
	decode
	decodeAdd
	ringStep
)

var operations = [...]string{"quantise", "dequantise", "dequantise_add", "ring_step"}

// class is a range of lengths for which the same form is best.
type class struct {
	from   int  // bytes of values, up to those of the next class
	values int  // in a trial
	cold   bool // whether a trial finds the caches empty
}

// classes are the vectors that fit a second-level cache, those that fit only a
// third-level cache, and those that fit neither.
var classes = [...]class{{0, 64 << 10, false}, {2 << 20, 512 << 10, false}, {64 << 20, 128 << 10, true}}

// choice is the form for calls of one kind.
type choice struct {
	once sync.Once // the first call sets the fields below
	form form
	took time.Duration // measuring
	// rates has the candidates and their GB/s, or nothing without measurements.
	rates []Rate
}

// choices are by operation, bits of a code (4, 8) and class.
var choices [len(operations)][2][len(classes)]choice

// clock is the clock of MeasureBy, or nil.
var clock func() time.Duration

// MeasureBy gives the package a clock: the time since some fixed moment. The
// first call of each kind then measures which form is the fastest. That takes a
// few milliseconds, and changes no byte of any result. Without a clock, or with
// one that stands still like virtual time, calls use the widest instructions.
// No kernel may run meanwhile.
func MeasureBy(now func() time.Duration) { clock = now }

// chosen returns the form for the operation on n values.
func (f Format) chosen(o operation, n int) *choice {
	k := len(classes) - 1
	for floatBytes*n < classes[k].from {
		k--
	}
	c := &choices[o][f.Bits/8][k]
	c.once.Do(func() { c.measure(o, f.Bits, k) })
	return c
}

func (c *choice) measure(o operation, bits, k int) {
	all := candidates(o, k)
	c.form = all[0]
	if len(all) == 1 || clock == nil {
		return
	}
	began := clock()
	s := newSubject(Format{Bits: bits, Block: DefaultBlock}, o, classes[k].values)
	prepare := s.run
	if classes[k].cold && canFlush() {
		prepare = func(form) { s.flush() }
	}
	best, times := fastest(len(all), clock, func(i int) { prepare(all[i]) }, func(i int) { s.run(all[i]) })
	c.form = all[best]
	for i, t := range times {
		c.rates = append(c.rates, Rate{all[i].String(), float64(floatBytes*classes[k].values) / float64(t)})
	}
	c.took = clock() - began
}

// candidates are the forms to choose from, in order of preference: a later one
// must be clearly faster. Vectors that fit a second-level cache are never
// written past it: their next reader would have to fetch them from memory,
// which the trials do not measure.
func candidates(o operation, k int) (all []form) {
	have := forms()
	slices.Reverse(have) // the widest first, plain Go last
	for _, f := range have {
		if !f.stream && (f.route != portable || len(have) == 1) {
			all = append(all, f)
		}
	}
	for _, f := range have {
		if k > 0 && f.streams(o) {
			all = append(all, f)
		}
	}
	return all
}

const (
	// Trials take turns for so many rounds. No new round begins after the time
	// patience, if there have been the fewest rounds.
	mostRounds, fewestRounds = 16, 3
	patience                 = 3 * time.Millisecond
	// gain is the factor by which a form has to be faster than an earlier one. A
	// tenth is more than the error of undisturbed trials.
	gain = 1.1
)

// fastest tries n candidates in turn, each prepared just before. It returns the
// one to take, and the least time of each. With a clock that stands still, it
// returns the first one, without times.
func fastest(n int, now func() time.Duration, prepare, trial func(i int)) (best int, least []time.Duration) {
	least = make([]time.Duration, n)
	start := now()
	for round := range mostRounds {
		for i := range n {
			prepare(i)
			began := now()
			trial(i)
			if took := now() - began; round == 0 || took < least[i] {
				least[i] = took
			}
		}
		if slices.Min(least) <= 0 {
			return 0, nil
		}
		if round+1 >= fewestRounds && now()-start > patience {
			break
		}
	}
	for i, t := range least {
		if gain*float64(t) < float64(least[best]) {
			best = i
		}
	}
	return best, least
}

// subject has the data for an operation's trials.
type subject struct {
	Format
	operation
	values, sums []float32
	in, out      []byte
}

// newSubject makes the operation's input, ordinary numbers, and room for its
// output. Speeds do not depend on the values.
func newSubject(f Format, o operation, n int) *subject {
	s := &subject{Format: f, operation: o}
	if o != decode {
		s.values = fill(valuesFor(n), 1, -0.5, 3)
	}
	if o != encode {
		s.in = fill(f.roomFor(n), 0x3c) // as a scale it is 0.01
	}
	if o == decode || o == decodeAdd {
		s.sums = valuesFor(n)
	} else {
		s.out = f.roomFor(n)
	}
	return s
}

// valuesFor returns room for n values, beginning on a cache line.
func valuesFor(n int) []float32 { return onLine(make([]float32, n+lineValues)) }

// roomFor returns room for an encoding whose codes begin on a cache line, as
// streaming needs.
func (f Format) roomFor(n int) []byte {
	length := f.EncodedLen(n)
	room := make([]byte, length+lineBytes)
	codes := uintptr(unsafe.Pointer(&room[0])) + uintptr(f.ScalesLen(n))
	return room[-codes%lineBytes:][:length]
}

// fill repeats the pattern over s, and returns s.
func fill[T any](s []T, pattern ...T) []T {
	for n := copy(s, pattern); n < len(s); {
		n += copy(s[n:], s[:n])
	}
	return s
}

func (s *subject) run(as form) {
	switch c := s.coderIn(as, s.operation); s.operation {
	case encode:
		c.quantise(s.out, s.values)
	case decode:
		c.dequantise(s.sums, s.in)
	case decodeAdd:
		c.dequantiseAdd(s.sums, s.in, s.values)
	case ringStep:
		c.fused(s.out, s.in, s.values, 1)
	}
}

// flush empties the caches, as vectors far larger than they would do.
func (s *subject) flush() {
	for _, v := range [][]float32{s.values, s.sums} {
		if v != nil {
			flush((*byte)(unsafe.Pointer(&v[0])), floatBytes*len(v))
		}
	}
	for _, b := range [][]byte{s.in, s.out} {
		if b != nil {
			flush(&b[0], len(b))
		}
	}
}

// Choice is the route for calls of one kind, with the reason.
type Choice struct {
	Operation string `json:"operation"` // quantise, dequantise, dequantise_add or ring_step
	Bits      int    `json:"bits"`      // of a code
	// FromBytes is the least length, in bytes of float32 values, up to that of
	// the next choice.
	FromBytes int    `json:"from_bytes"`
	Route     string `json:"route"`
	// Rates are the measurements of each possible route; none if there is only
	// one, or no clock.
	Rates []Rate `json:"rates,omitempty"`
	// MeasuringUS is the duration of the measurement, in microseconds.
	MeasuringUS int64 `json:"measuring_us,omitempty"`
}

// Why gives the reason in words: the rate of each possible route.
func (c Choice) Why() string {
	if len(c.Rates) == 0 {
		return "the only route"
	}
	var all []string
	for _, r := range c.Rates {
		all = append(all, fmt.Sprintf("%s %.1f", r.Route, r.GBs))
	}
	return strings.Join(all, ", ") + " GB/s"
}

// Rate is the speed of a route, in 10⁹ bytes of float32 values per second.
type Rate struct {
	Route string  `json:"route"`
	GBs   float64 `json:"gb_per_s"`
}

// Choices lists the choices of Auto, by operation, bits and length. It first
// measures missing ones, some tens of milliseconds in all.
func Choices() (all []Choice) {
	for o, name := range operations {
		for _, bits := range []int{8, 4} {
			for _, k := range classes {
				c := Format{Bits: bits, Block: DefaultBlock}.chosen(operation(o), k.from/floatBytes)
				all = append(all, Choice{name, bits, k.from, c.form.String(), c.rates, c.took.Microseconds()})
			}
		}
	}
	return all
}

// Rule describes in words which routes a step of the ring takes with codes of 8
// bits, and from which length of the values on. It first measures missing ones.
func Rule() string {
	if forced != nil {
		return forced.String()
	}
	eight := Format{Bits: 8, Block: DefaultBlock}
	last := eight.chosen(ringStep, 0).form
	text := last.String()
	for _, k := range classes[1:] {
		if f := eight.chosen(ringStep, k.from/floatBytes).form; f != last {
			text += fmt.Sprintf(", from %d MiB of values on %v", k.from>>20, f)
			last = f
		}
	}
	return text
}
