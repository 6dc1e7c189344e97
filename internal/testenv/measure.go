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

// Machine is what others took of the machine while something was measured. The
// zero Machine is one that the measurement had to itself.
type Machine struct {
	// Taken is the share of all processor time that went to programs that are
	// not of this test, or to other machines of the same host.
	Taken float64
	// Late is by how much a bare timer of a millisecond fired too late, at worst.
	Late time.Duration
}

func (m Machine) String() string {
	return fmt.Sprintf("others took %.0f %% of the processors, and a timer was %v late at worst", 100*m.Taken, m.Late.Round(10*time.Microsecond))
}

// quiet says whether a measurement had the machine to itself. Services take some
// of an idle machine too, and its account has a grain of a hundredth of a second;
// a timer waits for programs of the test itself. Hosts that do not say what they
// withhold show by the timer alone.
func (m Machine) quiet() bool { return m.Taken < services && m.Late < 10*time.Millisecond }

// services is the share that they may take.
const services = 0.02

// attempts is how often a measurement is taken at most.
const attempts = 3

// mostExcused is the share that a scheduler which is fair to both may leave to
// another program where the test needs the processors itself. A program that
// merely fills what is idle takes more, and excuses nothing by that.
const mostExcused = 0.5

// Measure takes a measurement and judges it. judge says what is wrong with it,
// if anything, given what others took meanwhile: given the zero Machine it has
// the tolerance of a quiet one, otherwise that much more as the taken time
// explains.
//
// A measurement that seems wrong is taken again, twice at most, and what the machine
// did meanwhile is logged. The last one has to be right: on a quiet machine for the
// zero Machine, on a busy one for what others took. Measure ends neither the test
// nor the goroutine.
func Measure(t testing.TB, measure func() (judge func(Machine) error)) {
	t.Helper()
	needName(t)
	repeat(t, watch, measure)
}

// repeat has watch say what was taken.
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
			t.Errorf("the last of %d measurements: %v (on a quiet machine: %v)", attempts, err, m)
			return
		}
		if wide := judge(Machine{min(m.Taken, mostExcused), m.Late}); wide != nil {
			t.Errorf("the last of %d measurements: %v, even for a busy machine: %v", attempts, wide, m)
			return
		}
		t.Logf("the last of %d measurements is right for a busy machine, %v: %v", attempts, m, err)
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

// watchTimer looks how late a bare timer fires, at worst.
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

// processorTime is how long the processors were busy with programs, or the host
// withheld them, of all the time since the machine started (proc_stat(5)).
// Interrupts do not count as busy: most of them carry the packets of the test.
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

// ownTime is the processor time of this process and of its descendants, those that
// have ended and been waited for included (proc_pid_stat(5)).
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
