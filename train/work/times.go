package work

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// maxDurations limits the number of durations read from a file. Every worker
// receives all of them.
const maxDurations = 100_000

// TraceError is a line of a file of durations that cannot be used.
type TraceError struct {
	Line    int // 0: the file as a whole
	Problem string
}

func (e *TraceError) Error() string {
	if e.Line == 0 {
		return e.Problem
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Problem)
}

// ParseDurations reads measured durations of inner steps and returns them
// divided by their mean. Each line has a positive number in any unit, or
// several columns of CSV, the last of which is the duration. The first line may
// be a header; empty lines and those that begin with # are skipped. Every error
// is a *TraceError.
func ParseDurations(text []byte) ([]float64, error) {
	var all []float64
	sum, line, first := 0.0, 0, true
	for raw := range bytes.Lines(text) {
		line++
		s := strings.TrimSpace(string(raw))
		if s == "" || s[0] == '#' {
			continue
		}
		last := strings.TrimSpace(s[strings.LastIndexByte(s, ',')+1:])
		header := first
		first = false
		d, err := strconv.ParseFloat(last, 64)
		switch {
		case err != nil && header:
			continue
		case err != nil:
			return nil, &TraceError{line, fmt.Sprintf("%.40q is not a number; write one duration per line", last)}
		case !(d > 0 && d <= 1e15):
			return nil, &TraceError{line, fmt.Sprintf("the duration is %v; it must lie in (0, 1e15]", d)}
		case len(all) == maxDurations:
			return nil, &TraceError{line, fmt.Sprintf("there are more than %d durations; leave some out", maxDurations)}
		}
		all, sum = append(all, d), sum+d
	}
	if len(all) == 0 {
		return nil, &TraceError{0, "the file has no durations; write one per line"}
	}
	mean := sum / float64(len(all))
	for i := range all {
		all[i] /= mean
	}
	return all, nil
}
