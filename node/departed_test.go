package node

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"testbed/allreduce/quicring"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/worker"
)

// TestDepartedWorkersLeaveNothing: of workers that have left, died or come back
// too late the coordinator keeps no connection, however many there were.
func TestDepartedWorkersLeaveNothing(t *testing.T) {
	const stay, come = 2, 6
	s := worldScenario(t, stay)
	for id := stay; id < stay+come; id++ {
		s.Workers = append(s.Workers, scenarios.Worker{ID: policy.ID(id), JoinAt: policy.Time(id) * 4000, InnerStepMean: 1000})
	}
	s.TargetOuterSteps = 100
	defer func(before int) { runtime.MemProfileRate = before }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	bubble(t, func(t *testing.T) {
		w := newWorld(t, s)
		arrived := map[string]int{}
		var early int64
		var evicted time.Time // the last one
		w.onEvent = func(e runlog.Event) {
			var id policy.ID
			switch fmt.Sscanf(e.Node, "w%d", &id); {
			case e.Type == runlog.Arrive && id >= stay:
				if arrived[e.Node]++; arrived[e.Node] > 1 {
					return
				}
				if id%2 == 0 {
					w.command(id, Command{Op: OpLeave})
				} else {
					w.crash(id)
				}
			case e.Type == runlog.Evict:
				evicted = time.Now()
			case e.Type == runlog.OuterStep && e.Round == 1:
				early = live("node.newLine")
			case e.Type == runlog.OuterStep && e.Round == s.TargetOuterSteps-1:
				if time.Since(evicted) < 2*endPatience {
					t.Error("the run is too short for this test")
				}
				if late := live("node.newLine"); late > early {
					t.Errorf("with %d workers control connections were made of %d parts; when %d more had come and gone they held %d", stay, early, come, late)
				}
			}
		}
		sum, events := w.play(scenarios.Straggler, time.Hour)
		if !sum.Complete || len(sum.Evicted) != come || len(w.failed) > 0 {
			t.Errorf("complete %v, evicted %v, %q", sum.Complete, sum.Evicted, w.failed)
		}
		if err := checkLineage(s, events); err != nil {
			t.Error(err)
		}
	})
}

// TestBoundedMemory: what a worker holds for others does not grow with the run,
// and slices keep nothing that they no longer show.
func TestBoundedMemory(t *testing.T) {
	const n, steps = 100, 30
	m := newModel(1, 0, n)
	d := &donor{model: m}
	var outcomes []weak.Pointer[quicring.Outcome]
	var states []weak.Pointer[state]
	for i := range steps {
		o, values := quantised(t, uint64(i), n)
		m.outerStep(values, o)
		outcomes = append(outcomes, weak.Make(o))
		states = append(states, weak.Make(d.snapshot("")))
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
	values := gaussian(1, 1, 64<<10) // a chunk, which tests make smaller
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

// live counts what a function has allocated itself and is still there.
func live(function string) (n int64) {
	for range 3 {
		runtime.GC() // the profile lags two collections behind
	}
	records := make([]runtime.MemProfileRecord, 1<<16)
	count, _ := runtime.MemProfile(records, false)
	for _, r := range records[:count] {
		frames := runtime.CallersFrames(r.Stack())
		for {
			f, more := frames.Next()
			if strings.HasSuffix(f.Function, function) {
				n += r.InUseObjects()
			}
			if !more || !strings.HasPrefix(f.Function, "runtime.") {
				break
			}
		}
	}
	return n
}
