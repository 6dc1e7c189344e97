package entropy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/allreduce"
)

// Mode says when codes are shortened.
type Mode string

const (
	Auto Mode = "auto" // while a Chooser finds that it shortens reductions
	On   Mode = "on"
	Off  Mode = "off"
)

// Modes are all there are.
var Modes = []Mode{Auto, On, Off}

// Problem says what is wrong with the mode where values go in this format, in
// words that follow the name of its field; empty if nothing is.
func (m Mode) Problem(f allreduce.Format) string {
	switch {
	case !slices.Contains(Modes, m):
		var names []string
		for _, known := range Modes {
			names = append(names, string(known))
		}
		return fmt.Sprintf("is %q; choose one of %s", string(m), strings.Join(names, ", "))
	case m == On && !f.HasCodes():
		return fmt.Sprintf("is on, but values of %d bits have no codes to shorten; remove it, or set bits to 8 or 4", f.Bits)
	}
	return ""
}

// Chooser decides before each reduction whether this rank's codes are
// shortened. It goes by what reductions with and without took, because whether
// coding pays depends on the link, on how busy the processors are, and on the
// values, and no rank knows the first two of its peers. Its zero value is
// ready; it is not safe for concurrent use.
//
// The first reduction does not count: it dials, and its connections have to get
// going. The next ones go without and with coding by turns, trials of each, since
// connections may still be getting faster. Then it keeps to what was faster, and
// looks again at the other every retryEvery reductions, by the reduction's number,
// so that all ranks of a ring look at the same time.
type Chooser struct {
	warm bool    // the first reduction is over
	pace [2]pace // without and with coding
	cost float64 // of coding and decoding, ns for a value; 0 if not known
	wait float64 // of the sender for the link, ns for a value, without coding
}

// pace is how fast the last reductions of one kind were.
type pace struct {
	known  int
	recent [3]float64 // ns for a value
}

// trials is how often each way is tried before the first judgement.
const trials = 2

// retryEvery reductions the slower way gets another chance.
const retryEvery = 16

// gain is what coding has to win, as a share of the time. It keeps noise from
// deciding where there is nothing to win.
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

// plausible reports whether the sender waits for its link for longer than
// coding would take. Where it does not, the link is not what takes the time.
func (c *Chooser) plausible() bool { return c.wait > c.cost }

// Reduction is what a rank measured in one reduction.
type Reduction struct {
	Coded  bool
	Values int
	Total  time.Duration
	Wait   time.Duration // in which the sender waited for the link to take data
	Coding time.Duration // spent on coding and decoding
}

// Note takes the measurements of a finished reduction in.
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

// best is the least of the recent paces: delays that have nothing to do with
// the choice only ever add.
func (p *pace) best() float64 {
	best := p.recent[0]
	for _, d := range p.recent[1:min(p.known, len(p.recent))] {
		best = min(best, d)
	}
	return best
}
