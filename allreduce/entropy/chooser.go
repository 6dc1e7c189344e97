package entropy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/allreduce"
)

// Mode determines when codes are shortened.
type Mode string

const (
	Auto Mode = "auto" // while a Chooser finds that this makes reductions faster
	On   Mode = "on"
	Off  Mode = "off"
)

// Modes are all modes.
var Modes = []Mode{Auto, On, Off}

// Problem says what is wrong with the mode for values in this format, in words
// that follow the name of its field. It is empty if nothing is wrong.
func (m Mode) Problem(f allreduce.Format) string {
	switch {
	case !slices.Contains(Modes, m):
		var names []string
		for _, known := range Modes {
			names = append(names, string(known))
		}
		return fmt.Sprintf("is %q: choose one of %s", string(m), strings.Join(names, ", "))
	case m == On && !f.HasCodes():
		return fmt.Sprintf("is on, but values of %d bits have no codes to shorten: remove it, or set bits to 8 or 4", f.Bits)
	}
	return ""
}

// Chooser decides before each reduction whether this rank's codes are
// shortened. It compares the times of reductions with and without coding. The
// benefit depends on the link, on the load of the processors and on the values,
// and no rank knows its peers' links and loads. Its zero value is ready; it is
// not safe for concurrent use.
//
// The first reduction does not count: it dials, and its connections are still
// slow. The next reductions alternate between no coding and coding, with trials
// of each, since connections may still be getting faster. Then the Chooser
// keeps to the faster way. It tries the other way again every retryEvery
// reductions, by the reduction's number, so that all ranks of a ring try at the
// same time.
type Chooser struct {
	warm bool    // the first reduction is over
	pace [2]pace // without and with coding
	cost float64 // of coding and decoding, ns per value; 0 if unknown
	wait float64 // of the sender for the link, ns per value, without coding
}

// pace is the speed of the last reductions of one kind.
type pace struct {
	known  int
	recent [3]float64 // ns per value
}

// trials is the number of tries of each way before the first judgement.
const trials = 2

// retryEvery reductions the slower way gets another chance.
const retryEvery = 16

// gain is the least gain of coding, as a share of the time. It keeps noise from
// deciding if there is nothing to gain.
const gain = 0.01

// Choose returns whether to code in reduction number n, which counts from 0
// and is the same on all ranks.
func (c *Chooser) Choose(n int) bool {
	plain, coded := &c.pace[0], &c.pace[1]
	switch {
	case plain.known == 0, !c.plausible():
		return false
	case plain.known < trials, coded.known < trials:
		return plain.known > coded.known
	}
	better := coded.best() < (1-gain)*plain.best()
	if n%retryEvery == retryEvery-1 {
		return !better
	}
	return better
}

// plausible reports whether the sender waits longer for its link than coding
// would take. If not, the link is not the bottleneck.
func (c *Chooser) plausible() bool { return c.wait > c.cost }

// Reduction has a rank's measurements of one reduction.
type Reduction struct {
	Coded  bool
	Values int
	Total  time.Duration
	Wait   time.Duration // sender's wait for the link to accept data
	Coding time.Duration // spent on coding and decoding
}

// Note records the measurements of a finished reduction.
func (c *Chooser) Note(r Reduction) {
	if r.Values == 0 {
		return
	}
	if !c.warm {
		c.warm = true
		return
	}
	per := func(d time.Duration) float64 { return float64(d) / float64(r.Values) }
	kind := 0
	if r.Coded {
		kind = 1
		c.cost = per(r.Coding)
	} else {
		c.wait = per(r.Wait)
	}
	c.pace[kind].note(per(r.Total))
}

func (p *pace) note(d float64) {
	p.recent[p.known%len(p.recent)] = d
	p.known++
}

// best is the least of the recent paces: delays unrelated to the choice only
// ever add.
func (p *pace) best() float64 {
	best := p.recent[0]
	for _, d := range p.recent[1:min(p.known, len(p.recent))] {
		best = min(best, d)
	}
	return best
}
