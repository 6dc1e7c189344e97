package programs

import "fmt"

// Rule says what starts the clock of a scenario: the one that its injects and late joins
// count on.
type Rule string

// The rules.
const (
	ClockCommand Rule = "command" // the start of the programs
	ClockTraffic Rule = "traffic" // the first byte between workers, or a mark before it
	ClockMark    Rule = "mark"    // testbed mark start
)

// Rules lists the rules.
var Rules = []Rule{ClockTraffic, ClockMark, ClockCommand}

// Clock decides when the clock of a scenario starts. It has no time of its own.
type Clock struct {
	Rule   Rule
	By     string // what has started it, in words; empty: it has not started
	begun  bool
	marked bool
}

// Begin takes that the programs start, and says whether the clock starts.
func (c *Clock) Begin() (starts bool) {
	c.begun = true
	return c.Rule == ClockCommand && c.start("the start of the programs")
}

// Carried takes the first byte that a node has sent to another worker, and says whether
// the clock starts.
func (c *Clock) Carried(from string) (starts bool) {
	return c.Rule == ClockTraffic && c.start("the first byte between workers, from "+from)
}

// Mark takes a mark and says whether the clock starts. A mark in vain has an objection.
func (c *Clock) Mark(from string) (starts bool, objection string) {
	first := !c.marked
	c.marked = true
	if c.start("testbed mark start in " + from) {
		return true, ""
	}
	if c.By != "" && first { // every worker may mark the start
		objection = fmt.Sprintf("testbed mark start in %s changes nothing: the clock had been started by %s; take --clock mark", from, c.By)
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

// Silent says in words why the clock has not started.
func (c *Clock) Silent() string {
	if c.Rule == ClockMark {
		return "testbed mark start was not called"
	}
	return "no worker sent a byte to another"
}
