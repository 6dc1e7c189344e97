package node

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
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
	memnet.Bubble(t, func(t *testing.T) {
		w := newWorld(t, s)
		arrived := map[string]int{}
		var early int64
		var evicted time.Time // the last one
		w.onEvent = func(e record.Event) {
			var id policy.ID
			switch fmt.Sscanf(e.Node, "w%d", &id); {
			case e.Type == record.Arrive && id >= stay:
				if arrived[e.Node]++; arrived[e.Node] > 1 {
					return
				}
				if id%2 == 0 {
					w.command(id, Command{Op: OpLeave})
				} else {
					w.crash(id)
				}
			case e.Type == record.Evict:
				evicted = time.Now()
			case e.Type == record.OuterStep && e.Round == 1:
				early = live("node.newLine")
			case e.Type == record.OuterStep && e.Round == s.TargetOuterSteps-1:
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
