// Package timescale converts between the three times of a run: scenario time, in
// microseconds; real time, which is scenario time × a time scale; and the time of the
// machine's clock, on which everything takes Dilation times as long.
//
// The package is pure.
package timescale

import (
	"math"
	"time"

	"testbed/policy"
)

// Scale relates the times of a run.
type Scale struct {
	// TimeScale is real time divided by scenario time, above 0.
	TimeScale float64
	// Dilation is the machine's time divided by real time; 0 is 1.
	Dilation float64 `json:",omitempty"`
}

// RealDuration converts scenario time to real time. Times beyond the range of a
// Duration become its limit.
func (s Scale) RealDuration(t policy.Time) time.Duration {
	d := float64(t) * s.TimeScale * float64(time.Microsecond)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}

// ScenarioTime converts real time to scenario time: the whole microseconds that have
// passed.
func (s Scale) ScenarioTime(d time.Duration) policy.Time {
	return policy.Time(float64(d) / float64(time.Microsecond) / s.TimeScale)
}

// Slowdown is the dilation, at least 1.
func (s Scale) Slowdown() float64 { return max(s.Dilation, 1) }

// ClockDuration converts scenario time to time of the machine's clock.
func (s Scale) ClockDuration(t policy.Time) time.Duration { return s.OnClock(s.RealDuration(t)) }

// ClockTime converts time of the machine's clock to scenario time.
func (s Scale) ClockTime(d time.Duration) policy.Time {
	return policy.Time(float64(d) / float64(time.Microsecond) / s.TimeScale / s.Slowdown())
}

// OnClock converts real time to time of the machine's clock.
func (s Scale) OnClock(d time.Duration) time.Duration { return OnClock(d, s.Slowdown()) }

// OnClock converts real time to time of the clock of a machine on which
// everything takes dilation times as long.
func OnClock(d time.Duration, dilation float64) time.Duration {
	if slow := float64(d) * dilation; slow < math.MaxInt64 {
		return time.Duration(slow)
	}
	return math.MaxInt64
}
