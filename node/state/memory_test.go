package state

import (
	"bytes"
	"runtime"
	"testing"
	"weak"

	"testbed/allreduce/codec"
	"testbed/policy/worker"
	"testbed/train"
)

// TestBoundedMemory: what a worker holds for others does not grow with the run,
// and slices keep nothing that they no longer show.
func TestBoundedMemory(t *testing.T) {
	const n, steps = 100, 30
	m := newTestOuter(1, n)
	d := &donor{Config: Config{Outer: m}}
	var outcomes []weak.Pointer[codec.Outcome]
	var states []weak.Pointer[hashed]
	for i := range steps {
		o, values := quantised(t, uint64(i), n)
		m.Step(values, o)
		outcomes = append(outcomes, weak.Make(o))
		states = append(states, weak.Make(d.snapshot("", false)))
	}
	runtime.GC()
	if n := held(outcomes); n != worker.KeptOutcomes {
		t.Errorf("after %d outer steps the model holds %d outcomes, want %d", steps, n, worker.KeptOutcomes)
	}
	if n := held(states); n != servedStates {
		t.Errorf("of %d states that it has served the donor holds %d, want %d", steps, n, servedStates)
	}
	runtime.KeepAlive(d)
}

// TestChunksNeedLittleMemory: a worker that others fetch from must not be twice
// as large meanwhile.
func TestChunksNeedLittleMemory(t *testing.T) {
	values := train.NewQuadratic(1, 64<<10).Start() // a chunk, which tests make smaller
	var wire bytes.Buffer
	wire.Grow(8 * len(values))
	took := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	write := took(func() {
		w, err := newChunkWriter(&wire)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		if err := w.write(values); err != nil {
			t.Fatal(err)
		}
	})
	read := took(func() {
		r, err := newChunkReader(&wire)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		if err := r.read(make([]float32, len(values))); err != nil {
			t.Fatal(err)
		}
	})
	if limit := uint64(16 * 4 * len(values)); write > limit || read > limit {
		t.Errorf("writing a chunk of %d bytes took %d, reading it %d; want at most %d", 4*len(values), write, read, limit)
	}
}

func held[T any](all []weak.Pointer[T]) (n int) {
	for _, p := range all {
		if p.Value() != nil {
			n++
		}
	}
	return n
}
