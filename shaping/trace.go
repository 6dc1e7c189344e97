package shaping

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pace is a rate that changes all the time, from a trace in Mahimahi's format:
// the mean rate of each of its windows, repeated for ever.
type Pace struct {
	// Period is the total length of all windows. They are equally long.
	Period Duration `json:"period"`
	Rates  []Rate   `json:"rates"`
}

const (
	// paceWindow is the least length of a window. docs/links.md has the reason for
	// its value.
	paceWindow = 100 * time.Millisecond
	// maxTrace limits the length of a trace, in time and in lines.
	maxTrace, maxOpportunities = time.Hour, 32 << 20
	// leastPace is the lowest rate that a link may have.
	leastPace Rate = 1000
)

// TraceError is a line of a trace that cannot be used.
type TraceError struct {
	Line    int // 0: the trace as a whole
	Problem string
}

func (e *TraceError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Problem) }

// ParseTrace reads a trace in Mahimahi's format: each line is a time in whole
// milliseconds at which one full packet can be delivered, in ascending order.
// After the last line the trace begins again. A full packet is FrameSize bytes
// here, as rates count it; Mahimahi counts the same packet as 1504. Every error
// is a *TraceError.
func ParseTrace(text []byte) (*Pace, error) {
	counts, lines, err := traceCounts(text)
	if err != nil {
		return nil, err
	}
	length := time.Duration(len(counts)-1) * time.Millisecond
	// A trace shorter than a window is repeated within it.
	repeat := max(1, int((paceWindow+length-1)/length))
	period := time.Duration(repeat) * length
	// If a window would hold less than a packet, it is as long as one packet
	// takes.
	windows := make([]int64, min(int(period/paceWindow), repeat*lines))
	for ms, count := range counts {
		for k := range repeat {
			// Packets at the end of a window belong to it.
			since := max(time.Duration(ms)*time.Millisecond+time.Duration(k)*length-1, 0)
			windows[int64(since)*int64(len(windows))/int64(period)] += int64(count)
		}
	}
	if mean := oneFrame(period / time.Duration(len(windows))); mean < leastPace {
		return nil, &TraceError{Problem: fmt.Sprintf("the mean rate of the trace, %dbit, is below the least rate of a link, 1kbit (lines: %d, length: %v); use a trace of a faster link, or cut the end of the trace", mean, lines, length)}
	}
	p := &Pace{Period: Duration(period), Rates: make([]Rate, len(windows))}
	each := period / time.Duration(len(windows))
	debt := int64(0)
	for range 2 { // the second time with the debt from the end of the trace
		for i, count := range windows {
			carried := max(count-debt, 1)
			debt += carried - count
			p.Rates[i] = Rate(carried) * oneFrame(each)
		}
	}
	if p.Peak() > 1e12 {
		return nil, &TraceError{Problem: fmt.Sprintf("the highest rate of %v is above 1tbit; write times in milliseconds", p.Peak())}
	}
	return p, nil
}

// oneFrame is the rate of one full frame in so much time.
func oneFrame(d time.Duration) Rate { return Rate(FrameSize * 8 * time.Second / d) }

// traceCounts are the numbers of lines of a trace for each millisecond, from 0
// to its last, and their total. In this form a trace of an hour at any rate
// takes 15 MB.
func traceCounts(text []byte) (counts []uint32, lines int, err error) {
	line := 0
	for raw := range bytes.Lines(text) {
		line++
		raw = bytes.TrimRight(raw, "\r\n")
		ms, plain := plainMillisecond(raw)
		if !plain {
			if problem := notMilliseconds(string(raw)); problem != "" {
				return nil, 0, &TraceError{line, problem}
			}
			parsed, _ := strconv.ParseUint(string(raw), 10, 32) // there is no problem with it
			ms = int(parsed)
		}
		problem := ""
		switch {
		case ms < len(counts)-1:
			problem = fmt.Sprintf("%d ms comes after %d ms; sort the lines", ms, len(counts)-1)
		case lines == maxOpportunities:
			problem = fmt.Sprintf("there are more than %d lines; cut the trace with head -n %d FILE, because a run repeats a short trace", maxOpportunities, maxOpportunities)
		}
		if problem != "" {
			return nil, 0, &TraceError{line, problem}
		}
		for len(counts) <= ms {
			counts = append(counts, 0)
		}
		counts[ms]++
		lines++
	}
	switch len(counts) {
	case 0:
		return nil, 0, &TraceError{Problem: "is empty: each line is a time in milliseconds at which one full packet can be delivered"}
	case 1:
		return nil, 0, &TraceError{line, "every time is 0, so the trace has no length; write its length in milliseconds in the last line"}
	}
	return counts, lines, nil
}

// notMilliseconds says what is wrong with a single line.
func notMilliseconds(s string) string {
	ms, err := strconv.ParseUint(s, 10, 32)
	switch columns := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t,;", r) }); {
	case s == "":
		return "the line is empty; remove it"
	case len(columns) == 2 && areNumbers(columns):
		return fmt.Sprintf("%.40q has two columns, perhaps a time and a rate; a trace in Mahimahi's format has one, the time in milliseconds of each full packet: convert it, so that a rate of R bit/s gives R × seconds ÷ %d lines", s, FrameSize*8)
	case err != nil:
		return fmt.Sprintf("%.40q is not a whole number of milliseconds from 0; write for example 25", s)
	case time.Duration(ms)*time.Millisecond > maxTrace:
		return fmt.Sprintf("%d ms is beyond %v, the limit for the length of a trace; cut the trace", ms, maxTrace)
	}
	return ""
}

func areNumbers(columns []string) bool {
	return !slices.ContainsFunc(columns, func(s string) bool { _, err := strconv.ParseFloat(s, 64); return err != nil })
}

// plainMillisecond reads a line that is only a time within maxTrace: a trace
// may have millions of them.
func plainMillisecond(line []byte) (ms int, ok bool) {
	if len(line) == 0 || len(line) > 7 {
		return 0, false
	}
	for _, c := range line {
		if c < '0' || c > '9' {
			return 0, false
		}
		ms = 10*ms + int(c-'0')
	}
	return ms, ms <= int(maxTrace/time.Millisecond)
}

// At is the rate at a time since the trace's beginning.
func (p *Pace) At(t time.Duration) Rate {
	into := t % time.Duration(p.Period)
	return p.Rates[int64(into)*int64(len(p.Rates))/int64(p.Period)]
}

// Next is the beginning of the next window after a time since the trace's
// beginning.
func (p *Pace) Next(after time.Duration) time.Duration {
	period, n := int64(p.Period), int64(len(p.Rates))
	whole, into := int64(after)/period, int64(after)%period
	k := into*n/period + 1
	return time.Duration(whole*period + (k*period+n-1)/n)
}

// Peak is the highest of the rates.
func (p *Pace) Peak() Rate { return slices.Max(p.Rates) }

// Mean is the average of the rates over the period.
func (p *Pace) Mean() Rate {
	sum := Rate(0)
	for _, r := range p.Rates {
		sum += r
	}
	return sum / Rate(len(p.Rates))
}
