package policy

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testbed/internal/errs"
)

// Policy decides when a round closes, and what happens to the members that it
// closes without. The Machine decides everything else (membership, heartbeats,
// joins, failed reductions). It asks the policy at every event.
//
// A policy is a pointer to a struct. Its exported fields are its parameters:
// scenario files, sweeps and the command line set them by their yaml names. Its
// other fields are its memory, which is empty when a run begins. It is as pure
// as the Machine: it reads no clock, takes randomness only from Round.Seed, and
// does not depend on the order of a map.
//
// Whatever the policy decides, a round closes when every member has arrived,
// and never before the first arrival.
type Policy interface {
	// Validate reports every parameter out of range as a *errs.FieldError, several of
	// them joined.
	Validate() error
	// Deadline is called when a round begins and at every event in it, until the
	// deadline has come. It returns a deadline that holds from now on, with At and
	// the numbers behind it, or nil for no change. A round begins without a
	// deadline.
	Deadline(r *Round) *Deadline
	// Enough reports whether the round, in which somebody has arrived, may close
	// without the missing members. needed, the number of arrivals that this takes,
	// goes on record. The round closes at the end of the instant, if Enough then
	// still holds.
	Enough(r *Round) (needed int, enough bool)
	// Late reports whether a member without which a round has closed is evicted,
	// rather than only sidelined. limit, the number of consecutive misses that are
	// tolerated, goes on record; 0 means any number.
	Late(r *Round, w Member) (limit int, evict bool)
	// Closed is called after every round, so that the policy can learn from its
	// arrivals. It is not called for rounds in which the coordinator was down:
	// their arrivals say little about the workers.
	Closed(r *Round)
}

// Finisher is a Policy that can let a sidelined member finish the inner steps
// of a round that went on without it before it catches up.
type Finisher interface{ FinishesSteps() bool }

// External is a Policy that runs outside of this process and may fail to
// answer. The run then ends: see RulePolicyFailed.
type External interface {
	Policy
	// Err returns why the policy no longer answers, or nil while it does. Its
	// later answers have no effect.
	Err() error
	// Close ends the policy's processes for this run. The policy is not called
	// afterwards.
	Close()
}

// FailedError reports that an External policy could not answer, which has ended
// the run.
type FailedError struct{ Err error }

func (e *FailedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FailedError) Unwrap() error { return e.Err }

// Round is the running round as a Policy sees it. It is valid during the call
// only.
type Round struct {
	Number  int  // from 1
	Now     Time // of the event that led to the call
	Start   Time // when the round began
	Members int  // that it expects: all but joiners that begin with the next round
	Arrived int  // of them, in time
	First   Time // time of the first arrival; meaningless while Arrived is 0
	// Deadline is the current one, and Overdue reports that it has come. A round
	// that is reopened, because its reduction lost all participants, is overdue,
	// too.
	Deadline *Deadline
	Overdue  bool
	// MinSlack is the least time from First to a deadline in this world. It is 0
	// in a simulator without noise.
	MinSlack Time
	Seed     uint64
	// Changes counts changes of what All yields, except for arrivals and misses.
	// While it is equal, the members and the times when they began are equal too,
	// and members that had arrived have still arrived. So a policy need not look
	// at all members at every arrival.
	Changes int

	machine *Machine
}

// Member is a member that the running round counts on.
type Member struct {
	ID      ID
	Arrived bool // in time
	At      Time // time of its arrival, if Arrived
	// Began is when it began the inner steps of the round, if Begun.
	Begun bool
	Began Time
	// Lag is the time by which it began the round late, because it had to catch
	// up. The deadline is put off by it.
	Lag Time
	// Misses counts its consecutive missed rounds.
	Misses int
}

// All yields the members that the round counts on, in order of their IDs.
func (r *Round) All(yield func(Member) bool) {
	for _, w := range r.machine.members {
		if !w.learner && !yield(w.shown()) {
			return
		}
	}
}

// Member returns a member of the round. ok is false if the round has no member
// with that ID.
func (r *Round) Member(id ID) (w Member, ok bool) {
	if m := r.machine.find(id); m != nil && !m.learner {
		return m.shown(), true
	}
	return Member{}, false
}

func (w *member) shown() Member {
	return Member{ID: w.id, Arrived: w.counted(), At: w.round.arrivedAt, Begun: w.round.hasBegun, Began: w.round.began, Lag: w.round.lag, Misses: w.misses}
}

// Share returns ⌈fraction × members⌉, and at least one. The small term keeps a
// product such as 0.7 × 10 from being rounded up by its binary representation.
func Share(fraction float64, members int) int {
	return max(1, int(math.Ceil(float64(fraction*float64(members))-1e-9)))
}

type registration struct {
	name, summary string
	prototype     Policy
	unlisted      bool
}

var registered []registration

// Register makes a policy known by a name. The prototype's parameters are their
// defaults. The summary describes the policy in one line. Register is called by
// init functions. It panics if the name is taken or the prototype is not valid.
func Register(name, summary string, prototype Policy) {
	Parameters(prototype) // panics if a range is wrong
	if _, ok := Named(name); ok || prototype.Validate() != nil {
		panic(fmt.Sprintf("policy: %s is registered twice, or its defaults are not valid", name))
	}
	registered = append(registered, registration{name: name, summary: summary, prototype: prototype})
}

// RegisterUnlisted makes a policy known to Config's JSON alone, under a name
// that no other has. It is for policies that need more than a name and
// parameters.
func RegisterUnlisted(name string, prototype Policy) {
	registered = append(registered, registration{name: name, prototype: prototype, unlisted: true})
}

// Names lists the registered policies: the baseline, then by name.
func Names() []string {
	var names []string
	for _, r := range registered {
		if r.name != "baseline" && !r.unlisted {
			names = append(names, r.name)
		}
	}
	slices.Sort(names)
	return append([]string{"baseline"}, names...)
}

// Named returns a policy with its default parameters, as a new copy.
func Named(name string) (Policy, bool) { return prototype(name, false) }

// prototype returns a copy of a registered policy.
func prototype(name string, unlisted bool) (Policy, bool) {
	for _, r := range registered {
		if r.name == name && r.unlisted == unlisted {
			return fresh(r.prototype), true
		}
	}
	return nil, false
}

// BadParameter returns the error of a Validate. name is the parameter; the text
// says what is wrong and what would be right, such as "is %v: it must lie in
// (0, 1]".
func BadParameter(name, format string, args ...any) error { return errs.Fieldf(name, format, args...) }

// NameOf returns the name by which a policy is registered, empty if it is not.
func NameOf(p Policy) string {
	i := slices.IndexFunc(registered, func(r registration) bool { return reflect.TypeOf(r.prototype) == reflect.TypeOf(p) })
	if i < 0 {
		return ""
	}
	return registered[i].name
}

// Summary describes a registered policy in one line.
func Summary(name string) string {
	i := slices.IndexFunc(registered, func(r registration) bool { return r.name == name })
	return registered[i].summary
}

// Parameter is a parameter of a policy, by its name in files, with its value.
// For a policy given by name alone, the value is the default.
type Parameter struct {
	Name    string `json:"name"`
	Default any    `json:"default"`
	// Range is the range in which to search for its best value, or nil.
	Range *Range `json:"range,omitempty"`
}

// Range is a range from Low to High, in multiples of Of. It is written in the
// tag `tune` of a field, such as `tune:"0.1 4 log of round"`.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	Log  bool    `json:"log,omitempty"` // searched by its logarithm
	Of   string  `json:"of,omitempty"`  // OfRound, OfMembers or empty
}

// Units of a Range: the typical time of the inner steps of a round, or the
// number of workers.
const (
	OfRound   = "round"
	OfMembers = "members"
)

// newRange reads a tag, and panics if it is wrong.
func newRange(tag string) *Range {
	if tag == "" {
		return nil
	}
	tag, of, _ := strings.Cut(tag, " of ")
	tag, log := strings.CutSuffix(tag, " log")
	low, high, _ := strings.Cut(tag, " ")
	r := &Range{Log: log, Of: of}
	var err, err2 error
	r.Low, err = strconv.ParseFloat(low, 64)
	r.High, err2 = strconv.ParseFloat(high, 64)
	if err != nil || err2 != nil || r.High < r.Low || log && r.Low <= 0 || of != "" && of != OfRound && of != OfMembers {
		panic(fmt.Sprintf("policy: the tag tune:%q is no range", tag))
	}
	return r
}

// Parametrised is a Policy whose parameters are not its exported fields.
type Parametrised interface{ Parameters() []Parameter }

// Parameters returns the parameters of a policy in their order.
func Parameters(p Policy) []Parameter {
	if own, ok := p.(Parametrised); ok {
		return own.Parameters()
	}
	all := []Parameter{}
	of := reflect.ValueOf(p).Elem()
	for f, v := range of.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); f.IsExported() && name != "-" {
			all = append(all, Parameter{name, v.Interface(), newRange(f.Tag.Get("tune"))})
		}
	}
	return all
}

// fresh copies a policy that has not yet been used by a Machine.
func fresh(p Policy) Policy {
	of := reflect.ValueOf(p).Elem()
	n := reflect.New(of.Type())
	n.Elem().Set(of)
	return n.Interface().(Policy)
}
