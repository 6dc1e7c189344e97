package bench

import (
	"math"

	"testbed/allreduce"
	"testbed/allreduce/codec"
	"testbed/allreduce/rivals"
)

// format is a way to encode values. Its kernels are its operations.
type format struct {
	name, suffix string // of the format, and of its kernels
	bits         int    // of a code, if it is one of package int8's
	encodedLen   func(n, block int) int
	kernels      []kernel
}

// Names of the operations, and so of int8's kernels.
const (
	quantise      = "quantise"
	dequantise    = "dequantise"
	dequantiseAdd = "dequantise_add"
	ringStep      = "ring_step"
)

// kernel is an operation on vectors.
type kernel struct {
	operation string
	run       func(v *vectors, block int)
}

// formats are all formats: the package's own first, then those for comparison.
var formats = func() []*format {
	all := []*format{ours("int8", "", 8), ours("int4", "_4bit", 4), ours("float32", "_float32", 32), ours("bf16", "_bf16", 16)}
	for _, c := range rivals.All {
		all = append(all, theirs(c))
	}
	return all
}()

// own is the number of formats that are always measured; they come first.
const own = 2

// AgainstNames lists the formats that can be measured for comparison.
func AgainstNames() (names []string) {
	for _, f := range formats[own:] {
		names = append(names, f.name)
	}
	return names
}

// ours is a format of the ring.
func ours(name, suffix string, bits int) *format {
	of := func(block int) *codec.Codec {
		return &codec.Codec{Format: allreduce.Format{Bits: bits, Block: block}}
	}
	return &format{
		name: name, suffix: suffix, bits: bits,
		encodedLen: func(n, block int) int { return of(block).EncodedLen(n) },
		kernels: []kernel{
			{quantise, func(v *vectors, block int) { of(block).Quantise(v.out, v.src, nil) }},
			{dequantise, func(v *vectors, block int) { of(block).Dequantise(v.dst, v.in) }},
			{dequantiseAdd, func(v *vectors, block int) { of(block).DequantiseAdd(v.dst, v.in, v.src) }},
			{ringStep, func(v *vectors, block int) { of(block).AddRequantise(v.out, v.in, v.src, 1, nil) }},
		},
	}
}

// routed formats have package int8's routes; the others are plain Go.
func (f *format) routed() bool { return f.bits == 8 || f.bits == 4 }

// theirs is a rival's format. Its step of a ring decodes and adds, and then
// encodes again.
func theirs(c rivals.Codec) *format {
	return &format{
		name: c.Name, suffix: "_" + c.Name, encodedLen: c.EncodedLen,
		kernels: []kernel{
			{quantise, func(v *vectors, block int) { c.Quantise(v.out, v.src, block) }},
			{dequantise, func(v *vectors, block int) { c.DequantiseAdd(v.dst, v.in, nil, block) }},
			{dequantiseAdd, func(v *vectors, block int) { c.DequantiseAdd(v.dst, v.in, v.src, block) }},
			{ringStep, func(v *vectors, block int) {
				c.DequantiseAdd(v.dst, v.in, v.src, block)
				c.Quantise(v.out, v.dst, block)
			}},
		},
	}
}

// do runs one of the format's operations.
func (f *format) do(operation string, v *vectors, block int) {
	for _, k := range f.kernels {
		if k.operation == operation {
			k.run(v, block)
		}
	}
}

// Accuracy is the error of encoding and decoding values once.
type Accuracy struct {
	Data Data `json:"data"` // a distribution, or a file
	// RelativeError is the relative L2 error, and Bias the mean of the errors
	// divided by the root mean square of the values. For Layers each is the mean
	// over the layers.
	RelativeError float64 `json:"relative_error"`
	Bias          float64 `json:"bias"`
}

// accuracyValues is the length of the vectors for measuring errors: all scales
// of Layers once.
const accuracyValues = layerScales * layerValues

// accuracy measures the format on values.
func (f *format) accuracy(data Data, values []float32, block int) Accuracy {
	v := &vectors{src: values, dst: make([]float32, len(values)), out: make([]byte, f.encodedLen(len(values), block))}
	v.in = v.out
	f.do(quantise, v, block)
	f.do(dequantise, v, block)
	part := len(values)
	if data == Layers {
		part = layerValues
	}
	a := Accuracy{Data: data}
	for lo := 0; lo < len(values); lo += part {
		share := float64(min(part, len(values)-lo)) / float64(len(values))
		e, bias := errorOf(v.dst[lo:], values[lo:min(lo+part, len(values))])
		a.RelativeError += share * e
		a.Bias += share * bias
	}
	return a
}

// errorOf returns the relative L2 error of got, and its bias as in Accuracy.
func errorOf(got, exact []float32) (relative, bias float64) {
	var s Squares
	for i, x := range exact {
		d := float64(got[i]) - float64(x)
		s.Error += d * d
		s.Exact += float64(x) * float64(x)
		bias += d
	}
	if bias != 0 {
		bias /= math.Sqrt(s.Exact * float64(len(exact)))
	}
	return s.Relative(), bias
}

// Format is a row of the table of formats, with the costs and the errors of a
// format.
type Format struct {
	Name          string
	Route, Taken  string // as in Kernel
	Bytes, Cores  int    // of each core's float32 values, and how many at once
	BytesPerValue float64
	// GB/s of float32 values; 0 if not measured.
	Quantise, DequantiseAdd, RingStep float64
	Accuracy                          []Accuracy
}

// Formats summarises kernels by format, from the rows of the smallest size, the
// fewest cores, and the last of the routes, which is the fastest.
func Formats(all []Kernel) (rows []Format) {
	for _, f := range formats {
		var at *Kernel
		for i, k := range all {
			if k.Format == f.name && (at == nil || k.Bytes < at.Bytes || k.Bytes == at.Bytes && k.Cores <= at.Cores) {
				at = &all[i]
			}
		}
		if at == nil {
			continue
		}
		row := Format{Name: f.name, Route: at.Route, Taken: at.Taken, Bytes: at.Bytes, Cores: at.Cores, BytesPerValue: at.BytesPerValue}
		for _, k := range all {
			if k.Format != f.name || k.Route != at.Route || k.Bytes != at.Bytes || k.Cores != at.Cores {
				continue
			}
			switch k.Kernel {
			case quantise + f.suffix:
				row.Quantise, row.Accuracy = k.GBs, k.Accuracy
			case dequantiseAdd + f.suffix:
				row.DequantiseAdd = k.GBs
			case ringStep + f.suffix:
				row.RingStep = k.GBs
			}
		}
		rows = append(rows, row)
	}
	return rows
}
