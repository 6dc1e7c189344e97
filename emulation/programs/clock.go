package programs

import "fmt"

// Rule determines what starts the clock of a scenario, on which its injects and
// late joins are timed.
type Rule string

// The rules.
const (
	ClockCommand Rule = "command" // the start of the programs
	ClockTraffic Rule = "traffic" // the first byte between workers, or an earlier mark
	ClockMark    Rule = "mark"    // testbed mark start
)

// Rules lists the rules.
var Rules = []Rule{ClockTraffic, ClockMark, ClockCommand}

// Clock decides when the clock of a scenario starts. It keeps no time of its
// own.
type Clock struct {
	Rule   Rule
	By     string // what has started it, in words; empty: it has not started
	begun  bool
	marked bool
}

// Begin records the start of the programs, and reports whether the clock
// starts.
func (c *Clock) Begin() (starts bool) {
	c.begun = true
	return c.Rule == ClockCommand && c.start("the start of the programs")
}

// Carried records the first byte from a worker's node to another worker, and
// reports whether the clock starts.
func (c *Clock) Carried(from string) (starts bool) {
	return c.Rule == ClockTraffic && c.start("the first byte between workers, from "+from)
}

// Mark records a mark and reports whether the clock starts. A mark without
// effect has an objection.
func (c *Clock) Mark(from string) (starts bool, objection string) {
	first := !c.marked
	c.marked = true
	if c.start("testbed mark start in " + from) {
		return true, ""
	}
	if c.By != "" && first { // every worker may mark the start
		objection = fmt.Sprintf("testbed mark start in %s has no effect: the clock was already started by %s; use --clock mark", from, c.By)
	}
	return false, objection
}

func (c *Clock) start(by string) bool {
	if !c.begun || c.By != "" {
		return false
	}
	c.By = by
	return true
}

// Silent explains in words why the clock has not started.
func (c *Clock) Silent() string {
	if c.Rule == ClockMark {
		return "testbed mark start was not called"
	}
	return "no worker sent a byte to another worker"
}
