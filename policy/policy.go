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

// Policy decides when a round closes, and what becomes of the members that it
// closes without. All else (who is a member, heartbeats, joins, reductions that
// fail) is the Machine's, which asks the policy of the run at every change.
//
// A policy is a pointer to a struct. Its exported fields are its parameters:
// scenario files, sweeps and the command line set them by their yaml names. Its
// other fields are its memory, empty when a run begins. It is as pure as the
// Machine: no clock, no randomness but from Round.Seed, no order of a map.
//
// Whatever it says, a round closes when every member has arrived, and never
// before one has.
type Policy interface {
	// Validate reports every parameter out of range as a *errs.FieldError, several of
	// them joined.
	Validate() error
	// Deadline is asked when a round begins and when anything has changed in
	// it, until the deadline has come. It returns a deadline that is to hold
	// from now on, with At and the numbers behind it, or nil to leave things as
	// they are. At first there is none.
	Deadline(r *Round) *Deadline
	// Enough reports whether the round, in which somebody has arrived, may close
	// without those that have not, and how many had to arrive for that, which
	// goes on record. It closes at the end of the instant, if Enough then still
	// holds.
	Enough(r *Round) (needed int, enough bool)
	// Late is asked about each member without which a round has closed: whether
	// it is evicted, and not only sidelined. The limit goes on record: how many
	// misses in a row are tolerated, or 0 if any number is.
	Late(r *Round, w Member) (limit int, evict bool)
	// Closed is told of every round that has closed, so that the policy can
	// learn from its arrivals; but not of rounds in which the coordinator was
	// away, because those say little about the workers.
	Closed(r *Round)
}

// Finisher is a Policy that can have a sidelined member finish the inner steps
// of a round that went on without it before it catches up.
type Finisher interface{ FinishesSteps() bool }

// External is a Policy that is asked outside of this process, and may fail to
// answer. The run then ends: see RulePolicyFailed.
type External interface {
	Policy
	// Err returns why the policy can answer no more, or nil while it can. What it
	// answers afterwards has no effect.
	Err() error
	// Close ends what answers in this run. Nothing is asked afterwards.
	Close()
}

// FailedError is why an External policy could not answer, after which a run has ended.
type FailedError struct{ Err error }

func (e *FailedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FailedError) Unwrap() error { return e.Err }

// Round is what a Policy is shown of the running round. It is valid during the
// call only.
type Round struct {
	Number  int  // from 1
	Now     Time // of the event that the policy is asked for
	Start   Time // when the round began
	Members int  // that it counts on: all but joiners that begin with the next one
	Arrived int  // of them, in time
	First   Time // when the first of them did; of no meaning while Arrived is 0
	// Deadline is the one that holds, and Overdue says that it has come. A round
	// that is opened again, because nobody of its reduction was left, is
	// overdue, too.
	Deadline *Deadline
	Overdue  bool
	// MinSlack is the least time from First to a deadline in this world, 0 in a
	// simulator without noise.
	MinSlack Time
	Seed     uint64

	machine *Machine
}

// Member is a member that the running round counts on.
type Member struct {
	ID      ID
	Arrived bool // in time
	At      Time // when it arrived; if Arrived
	// Began is when it began the inner steps of the round, if Begun.
	Begun bool
	Began Time
	// Lag is by how much it began the round late, because it had to catch up: the
	// deadline is put off by it.
	Lag Time
	// Misses counts the rounds in a row that went on without it.
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

// Register makes a policy known by a name, with the parameters that the
// prototype has as their defaults. It is called by init functions, and panics
// if the name is taken or the prototype is not valid. The summary says in one
// line what the policy does.
func Register(name, summary string, prototype Policy) {
	Parameters(prototype) // panics if a range is wrong
	if _, ok := Named(name); ok || prototype.Validate() != nil {
		panic(fmt.Sprintf("policy: %s is registered twice, or its defaults are not valid", name))
	}
	registered = append(registered, registration{name: name, summary: summary, prototype: prototype})
}

// RegisterUnlisted makes a policy known to Config's JSON alone, under a name that no
// other has: one that takes more than a name and parameters to find.
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

// Named returns a policy with its default parameters, as a copy of its own.
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

// BadParameter returns the error of a Validate: which parameter cannot be used, and as a
// text what is wrong and what would be right, such as "is %v; it must lie in (0, 1]".
func BadParameter(name, format string, args ...any) error { return errs.Fieldf(name, format, args...) }

// NameOf returns the name by which a policy is registered, empty if it is not.
func NameOf(p Policy) string {
	i := slices.IndexFunc(registered, func(r registration) bool { return reflect.TypeOf(r.prototype) == reflect.TypeOf(p) })
	if i < 0 {
		return ""
	}
	return registered[i].name
}

// Summary says in one line what a registered policy does.
func Summary(name string) string {
	i := slices.IndexFunc(registered, func(r registration) bool { return r.name == name })
	return registered[i].summary
}

// Parameter is a parameter of a policy, by its name in a file, with the value
// that it has; its default, in a policy of that name alone.
type Parameter struct {
	Name    string `json:"name"`
	Default any    `json:"default"`
	// Range is where it is worth to search for its best value, or nil.
	Range *Range `json:"range,omitempty"`
}

// Range is from Low to High, each times what it is of. It stands in the tag
// `tune` of a field, such as `tune:"0.1 4 log of round"`.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	Log  bool    `json:"log,omitempty"` // rather by its logarithm
	Of   string  `json:"of,omitempty"`  // OfRound, OfMembers or empty
}

// What a Range may be of: what the inner steps of a round typically take, or the
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

// Parameters returns the parameters of a policy in the order in which it has
// them.
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

// fresh copies a policy that no Machine has asked yet.
func fresh(p Policy) Policy {
	of := reflect.ValueOf(p).Elem()
	n := reflect.New(of.Type())
	n.Elem().Set(of)
	return n.Interface().(Policy)
}
