//go:build linux

package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Machine describes how much of the machine other programs took during a
// measurement. The zero Machine means that the measurement had it alone.
type Machine struct {
	// Taken is the share of all processor time that went to programs outside this
	// test, or to other machines of the same host.
	Taken float64
	// Late is the worst lateness of a bare timer of a millisecond.
	Late time.Duration
}

func (m Machine) String() string {
	return fmt.Sprintf("other processes took %.0f %% of the processors, and the latest timer was %v late", 100*m.Taken, m.Late.Round(10*time.Microsecond))
}

// quiet reports whether a measurement had the machine alone. Services take some
// of an idle machine too, and accounting has a resolution of a hundredth of a
// second. A timer also waits for programs of the test itself. Hosts that do not
// report withheld time are noticed by the timer alone.
func (m Machine) quiet() bool { return m.Taken < services && m.Late < 10*time.Millisecond }

// services is the share that services may take.
const services = 0.02

// attempts is the most attempts at a measurement.
const attempts = 3

// mostExcused is the share that a fair scheduler may leave to another program
// while the test needs the processors itself. A program that merely fills idle
// time takes more, which excuses nothing.
const mostExcused = 0.5

// Measure takes a measurement and judges it. judge reports what is wrong with
// it, if anything, given the time that others took meanwhile. For the zero
// Machine it has the tolerance of a quiet machine, otherwise as much more as
// the taken time explains.
//
// A measurement that seems wrong is taken again, twice at most, and the state
// of the machine is logged. The last one has to be right: on a quiet machine
// for the zero Machine, on a busy one for the time that others took. Measure
// ends neither the test nor the goroutine.
func Measure(t testing.TB, measure func() (judge func(Machine) error)) {
	t.Helper()
	needName(t)
	repeat(t, watch, measure)
}

// repeat repeats a measurement; watch reports the taken time.
func repeat(t testing.TB, watch func() (stop func() Machine), measure func() (judge func(Machine) error)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		stop := watch()
		judge := measure()
		m := stop()
		err := judge(Machine{})
		if err == nil || t.Failed() {
			return
		}
		if attempt < attempts {
			t.Logf("measurement %d of %d: %v (%v)", attempt, attempts, err, m)
			continue
		}
		if m.quiet() {
			t.Errorf("the last of %d measurements is wrong, and the machine was quiet (%v): %v", attempts, m, err)
			return
		}
		if wide := judge(Machine{min(m.Taken, mostExcused), m.Late}); wide != nil {
			t.Errorf("the last of %d measurements is wrong even for a machine this busy (%v): %v", attempts, m, wide)
			return
		}
		t.Logf("the last of %d measurements is within the tolerance of a machine this busy (%v), but not of a quiet one: %v", attempts, m, err)
		return
	}
}

// watch begins to watch the machine.
func watch() (stop func() Machine) {
	busy, all := processorTime()
	own := ownTime()
	late := watchTimer()
	return func() (m Machine) {
		m.Late = late()
		nowBusy, nowAll := processorTime()
		if others := nowBusy - busy - (ownTime() - own); others > 0 {
			m.Taken = min(float64(others)/float64(nowAll-all), 1)
		}
		return m
	}
}

// watchTimer measures the worst lateness of a bare timer.
func watchTimer() (stop func() time.Duration) {
	ended, late := make(chan struct{}), make(chan time.Duration)
	go func() {
		var worst time.Duration
		for {
			before := time.Now()
			select {
			case <-ended:
				late <- worst
				return
			case <-time.After(time.Millisecond):
				worst = max(worst, time.Since(before)-time.Millisecond)
			}
		}
	}()
	return func() time.Duration {
		close(ended)
		return <-late
	}
}

// tick is the unit of the kernel's accounts.
const tick = time.Second / 100

// processorTime is how long the processors were busy with programs, or were
// withheld by the host, and all the time since the machine started
// (proc_stat(5)). Interrupts do not count as busy: most of them carry the
// packets of the test.
func processorTime() (busy, all time.Duration) {
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	// cpu user nice system idle iowait irq softirq steal, and guests, who are users
	for k, field := range strings.Fields(line)[1:9] {
		ticks, _ := strconv.ParseInt(field, 10, 64)
		spent := time.Duration(ticks) * tick
		all += spent
		if k < 3 || k == 7 {
			busy += spent
		}
	}
	return busy, all
}

// ownTime is the processor time of this process and of its descendants,
// including those that have ended and been waited for (proc_pid_stat(5)).
func ownTime() (sum time.Duration) {
	parents, spent := map[int]int{}, map[int]time.Duration{}
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", d.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // from the third
		parents[pid], _ = strconv.Atoi(fields[4-3])
		for _, field := range fields[14-3 : 18-3] { // its own, and of its children
			ticks, _ := strconv.ParseInt(field, 10, 64)
			spent[pid] += time.Duration(ticks) * tick
		}
	}
	for pid, s := range spent {
		for pid != os.Getpid() && pid > 0 {
			pid = parents[pid]
		}
		if pid > 0 {
			sum += s
		}
	}
	return sum
}
