//go:build linux

package host

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// measurements gathers what the verdict on the emulation rests on.
type measurements struct {
	fidelity.Measurements
	lateness []time.Duration // of workers' timers
	pressure time.Duration   // cpuPressure when the run began
	failures []string        // what went wrong that no scenario asked for
}

// rtt keeps the least round trip between a worker and the coordinator.
func (m *measurements) rtt(plan *shaping.Plan, name string, rtt time.Duration) {
	for k := range m.Pairs {
		if p := &m.Pairs[k]; p.From == name {
			p.Measured = min(p.Measured, rtt)
			return
		}
	}
	a, b := plan.Index(scenarios.Coordinator), plan.Index(name)
	m.Pairs = append(m.Pairs, fidelity.PairRTT{
		From: name, To: scenarios.Coordinator, Measured: rtt,
		Planned: time.Duration(plan.Paths[a][b].OneWayDelay + plan.Paths[b][a].OneWayDelay),
	})
}

func (m *measurements) router(s *userlink.Stats) {
	m.RouterLatenessP99, m.RouterPackets = s.LatenessP99, s.Packets
	m.UnplannedDrops += unplanned(s)
}

// unplanned counts the packets that the router lost against the plan.
func unplanned(s *userlink.Stats) uint64 { return s.Overflow + s.SocketDrops + s.SendDrops }

// conclude computes what is known only at the end of a run.
func (m *measurements) conclude(took time.Duration) measured {
	if n := len(m.lateness); n > 0 {
		slices.Sort(m.lateness)
		m.TimerLatenessP99 = m.lateness[(n-1)*99/100]
	}
	m.CPUPressure = float64(cpuPressure()-m.pressure) / float64(took)
	return measured{m.Measurements, m.failures}
}

// measured is what the sandbox hands out for judgement.
type measured struct {
	fidelity.Measurements
	Failures []string `json:"failures"`
}

// judge gives the verdict. A process that failed of itself makes the run
// another one than the scenario's.
func (m measured) judge() runlog.Fidelity {
	v := fidelity.Judge(m.Measurements)
	f := runlog.Fidelity{Verdict: string(v.Verdict), Reasons: v.Reasons}
	if len(m.Failures) > 0 {
		f.Verdict = string(fidelity.Invalid)
		f.Reasons = append(f.Reasons, m.Failures...)
	}
	return f
}

// cpuPressure returns for how long, since boot, some runnable task of this
// machine has waited for a processor (Documentation/accounting/psi.rst), or 0
// where the kernel does not say.
func cpuPressure() time.Duration {
	f, err := os.Open("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		rest, found := strings.CutPrefix(in.Text(), "some ")
		_, total, ok := strings.Cut(rest, "total=")
		if us, err := strconv.ParseInt(total, 10, 64); found && ok && err == nil {
			return time.Duration(us) * time.Microsecond
		}
	}
	return 0
}
