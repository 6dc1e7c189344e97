//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/allreduce/bench"
	"testbed/allreduce/rivals"
)

// vectors are the ranks' vectors and results in memory that programs of rivals
// map. The vectors are the ring's. Rivals take turns, so they share the results.
type vectors struct {
	inputs, outputs []memory // by rank
}

// memory is an anonymous file of float32 values, and its mapping.
type memory struct {
	file   *os.File
	mapped []byte
}

func newMemory(name string, elements int) (memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return memory{}, fmt.Errorf("allocating the memory of a vector: %w", err)
	}
	m := memory{file: os.NewFile(uintptr(fd), name)}
	size := elements * int(unsafe.Sizeof(float32(0)))
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		m.mapped, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		m.file.Close()
		return memory{}, fmt.Errorf("allocating the memory of a vector: %w", err)
	}
	return m, nil
}

func (m memory) values() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.mapped))), len(m.mapped)/int(unsafe.Sizeof(float32(0))))
}

func newVectors(s *bench.Settings) (*vectors, error) {
	v := &vectors{}
	for rank := range s.Workers {
		in, err := newMemory("vector", s.Elements)
		if err != nil {
			return nil, err
		}
		out, err := newMemory("result", s.Elements)
		if err != nil {
			return nil, err
		}
		s.Data.Fill(in.values(), s.Seed, rank, 0)
		v.inputs, v.outputs = append(v.inputs, in), append(v.outputs, out)
	}
	v.spoil()
	return v, nil
}

// spoil overwrites the results, so that the next results cannot be these.
func (v *vectors) spoil() {
	for _, out := range v.outputs {
		values := out.values()
		for i := range values {
			values[i] = float32(math.NaN())
		}
	}
}

// outcome is what a rival's reduction ended with.
type outcome struct {
	relative  float64 // the error of the worst rank (L2)
	identical bool    // all ranks have equal bytes
}

// check compares the results, divided by divisor, with the exact mean.
func (v *vectors) check(divisor float64) outcome {
	o := outcome{identical: true}
	for rank, out := range v.outputs {
		if rank > 0 && bytes.Equal(out.mapped, v.outputs[0].mapped) {
			continue // as rank 0
		}
		o.identical = o.identical && rank == 0
		o.relative = max(o.relative, v.relative(out.values(), divisor)) // NaN stays
	}
	return o
}

func (v *vectors) relative(got []float32, divisor float64) float64 {
	var squares bench.Squares
	n := float64(len(v.inputs))
	inputs := v.values()
	for i, x := range got {
		exact := 0.0
		for _, in := range inputs {
			exact += float64(in[i])
		}
		exact /= n
		d := float64(x)/divisor - exact
		squares.Error += d * d
		squares.Exact += exact * exact
	}
	return squares.Relative()
}

// values are the ranks' vectors.
func (v *vectors) values() (all [][]float32) {
	for _, in := range v.inputs {
		all = append(all, in.values())
	}
	return all
}

// allowed is the largest relative error of a right result: that of sums in
// float32, and of quantisation, if the rival quantises, one and a half times
// what the codec's own computation gives for these vectors.
func (v *vectors) allowed(codec *rivals.Codec, slices int) float64 {
	const unit = 0x1p-24 // of rounding
	n := float64(len(v.inputs))
	limit := unit * n * math.Sqrt(n)
	if codec != nil {
		const slack = 1.5
		limit += slack * codec.RingError(v.values(), slices)
	}
	return limit
}

// close gives the memory back.
func (v *vectors) close() {
	if v == nil {
		return
	}
	for _, m := range append(v.inputs, v.outputs...) {
		_ = unix.Munmap(m.mapped)
		m.file.Close()
	}
}
