package record

import (
	"fmt"
	"slices"

	"testbed/policy"
	"testbed/shaping/fidelity"
)

// Summary is the result of a run, simulated or real. Times are scenario time
// in microseconds.
type Summary struct {
	Scenario string `json:"scenario"` // The name of the scenario.
	Policy   string `json:"policy"`   // The policy with its parameters, as given.
	// The [world](results.md#worlds), `sim` for both simulations.
	World string `json:"world"`
	// The name of the [world](results.md#worlds). Older records lack it.
	WorldName string `json:"world_name,omitempty"`
	// Real runs: `user`, `htb` or `netem`. Simulated runs: `none` (churn's network) or
	// `plan`.
	Links     string  `json:"links"`
	Seed      uint64  `json:"seed"`       // The seed of the scenario.
	TimeScale float64 `json:"time_scale"` // Real time divided by scenario time.
	// Real runs: [time dilation](dilation.md).
	Dilation float64 `json:"dilation,omitempty"`
	// All outer steps were taken before the horizon.
	Complete   bool        `json:"complete"`
	WallClock  policy.Time `json:"wall_clock_us"` // The time of the last outer step.
	OuterSteps int         `json:"outer_steps"`   // The number of outer steps.
	// The time of completed inner steps, including discarded ones, divided by the
	// membership time. The membership time is the sum over workers of the time in
	// which they were members.
	ComputeFraction float64 `json:"compute_fraction"`
	// The time from a participant's arrival to the last close of its round, summed
	// and divided by the membership time. If rounds overlap, the wait begins after
	// the last inner step that the participant may take ahead.
	BarrierWaitFraction float64 `json:"barrier_wait_fraction"`
	// Simulated runs: a reconstruction of the utilisation that churn publishes. It
	// fits the published figures, but may not be their definition.
	ChurnLikeUtilization *float64 `json:"churn_like_utilization,omitempty"`
	// The parts of the wall-clock.
	Split Split `json:"split"`
	// The time for which late joiners waited for the outer state.
	JoinerStall policy.Time `json:"joiner_stall_us"`
	// The time for which rounds waited for late joiners in the joiners' first round. It
	// counts from the last other arrival or, with `join: blocking`, from the moment
	// when the round could have closed.
	JoinersHeld policy.Time `json:"joiners_held_us"`
	// Workers that were left out of a round as late.
	Sidelined []Membership `json:"sidelined"`
	// Workers that were evicted.
	Evicted []Membership `json:"evicted"`
	// Workers that came back after they had been sidelined.
	Rejoined []Membership `json:"rejoined"`
	// Workers that were admitted again after an eviction.
	Returned []Return `json:"returned,omitempty"`
	// For each pair of [lineages](torchft.md#two-lineages), the first outer step that
	// both have taken.
	Diverged []Divergence `json:"diverged,omitempty"`
	// Outer steps that no worker holds any more.
	Undone []Undoing `json:"undone,omitempty"`
	// Times without a coordinator.
	Outages []Outage `json:"outages,omitempty"`
	// The outer steps from whose checkpoints the run was resumed.
	ResumedFrom []int `json:"resumed_from,omitempty"`
	// Outer states that reached the [store](scenarios.md#uploads).
	Uploads []Upload `json:"uploads,omitempty"`
	// Workers that were lost without leaving.
	Detected []Detection `json:"detected"`
	// The account of inner steps. Older records lack it.
	Work *Work `json:"work,omitempty"`
	// The validation loss before the first outer step. Older records lack it.
	InitialLoss *float64 `json:"initial_loss,omitempty"`
	// Trained runs: the tokens of inner steps that outer steps include.
	TokensSeen *int `json:"tokens_seen,omitempty"`
	// Trained runs: the tokens of discarded inner steps.
	TokensLost *int `json:"tokens_lost,omitempty"`
	// Trained runs: when the validation loss first reached each tenth of a nat.
	TimeToLoss []TimeToLoss `json:"time_to_loss,omitempty"`
	// Trained runs: the relative quantisation error of each layer of a
	// pseudo-gradient, as a mean over the rounds.
	LayerErrors []LayerError `json:"layer_errors,omitempty"`
	// Completed rounds, without undone ones. With several lineages, they are the rounds
	// of lineage 0 and, once no worker holds it, of the lineage that continued.
	Rounds []Round `json:"rounds"`
	// In every round all participants had the same bytes of the mean and of the
	// model. It is `null` if no bytes moved.
	BitIdentical *bool `json:"bit_identical"`
	// The [verdict](fidelity.md): `verdict` (`valid`, `suspect`, `invalid`) and
	// `reasons`.
	Fidelity fidelity.Verdict `json:"fidelity"`
	// Real runs: the packets that links dropped as planned, by node. They are no
	// reason to doubt a run.
	PlannedDrops []LinkDrops `json:"planned_drops,omitempty"`
	// Simulated runs on churn's network: link injects, which this network ignores.
	NotSimulated []string `json:"not_simulated,omitempty"`
	// The fields of the scenario that this world ignores.
	Ignored []Ignored `json:"ignored,omitempty"`
	// Simulated runs: the [calibration](calibrate.md) whose costs the run includes.
	Calibration *Calibration `json:"calibration,omitempty"`
	// Workers that were due to join and never became members.
	NeverJoined []policy.ID `json:"never_joined,omitempty"`
	// Workers that did inner steps but contributed only zeros, if the record contains
	// contributions.
	ContributedNothing []policy.ID `json:"contributed_nothing,omitempty"`
	// Parts of the scenario that were due after the run, or for a worker that was
	// not alive.
	NeverHappened []string `json:"never_happened,omitempty"`
	// Runs on [several hosts](hosts.md): the hosts, the leader first.
	Hosts []Host `json:"hosts,omitempty"`
	// Runs of a [stack](stacks.md): the stack.
	Stack *Stack `json:"stack,omitempty"`
	Dir   string `json:"dir"` // The run directory.
}

// Stack is the training system of somebody else that was played as a whole.
type Stack struct {
	Name    string             `json:"name"`    // The stack.
	Version string             `json:"version"` // The version of its software.
	Options map[string]float64 `json:"options"` // All its options.
	// The congestion control of TCP in the nodes. Older records lack it.
	TCP string `json:"tcp,omitempty"`
	// Parts of the scenario that the stack cannot do, and that were left out.
	LeftOut []string `json:"left_out,omitempty"`
	// Injects and joins of workers that did not happen, because programs had ended.
	Missed []string `json:"missed,omitempty"`
	// Failed reductions, as workers reported them.
	FailedReductions int `json:"failed_reductions"`
	// Programs that failed or ended early, and a time-out that ended the run.
	Failures []string `json:"failures,omitempty"`
	// Contradictions between workers' reports, and between a report and the
	// [lanes](stacks.md#participants-of-a-round) of an average.
	Disputes []string `json:"disputes,omitempty"`
}

// Calibration names a file of testbed calibrate.
type Calibration struct {
	File string `json:"file"` // The file that was read.
	Made string `json:"made"` // When the calibration was made, in RFC 3339 form.
}

// Ignored is a field of a scenario that a world ignores, and why.
type Ignored struct {
	Field string `json:"field"` // The path of the field in the scenario.
	Why   string `json:"why"`   // The reason.
}

// Membership is a change of a worker's standing.
type Membership struct {
	Round int       `json:"round"` // The round of the change.
	ID    policy.ID `json:"id"`    // The worker's number.
	// Of evictions: `straggler`, `leave`, or a cause as in `detected[].cause`.
	Reason policy.Rule `json:"reason,omitempty"`
	// The numbers on which the decision was based.
	Why *policy.Reason `json:"why,omitempty"`
}

// Return is a worker's return after an eviction.
type Return struct {
	Round       int         `json:"round"`       // The round in which the worker was admitted.
	ID          policy.ID   `json:"id"`          // The worker's number.
	Incarnation int         `json:"incarnation"` // The number of the worker's process, from 0.
	Out         policy.Time `json:"out_us"`      // How long the worker was not a member.
}

// Divergence is an outer step that is taken a second time, by a group that did
// not know of the first time.
type Divergence struct {
	Round        int         `json:"round"`        // The outer step.
	At           policy.Time `json:"at_us"`        // When `lineage` took it.
	Lineage      int         `json:"lineage"`      // The lineage that took it second.
	Other        int         `json:"other"`        // The lineage that took it first.
	Participants []policy.ID `json:"participants"` // The workers that took it in `lineage`.
}

// Undoing is the loss of a lineage's last outer steps: the last worker that
// held them goes on in another lineage.
type Undoing struct {
	Round   int         `json:"round"`   // The last outer step that was lost.
	Steps   int         `json:"steps"`   // How many outer steps were lost.
	At      policy.Time `json:"at_us"`   // When they were lost.
	ID      policy.ID   `json:"id"`      // The worker that held them last.
	Lineage int         `json:"lineage"` // The lineage that lost them.
	Other   int         `json:"other"`   // The lineage that the worker joined.
}

// Outage is a time without a coordinator: from its death until another one had
// taken its place.
type Outage struct {
	At policy.Time `json:"at_us"` // When the coordinator died.
	// The time until a new coordinator had taken over. It is absent if the run ended
	// before.
	Length *policy.Time `json:"length_us,omitempty"`
	// How the process ended, as in `signal: killed`. It is absent after an inject.
	Cause string `json:"cause,omitempty"`
}

// Upload is the transfer of an outer state to the store.
type Upload struct {
	Round int         `json:"round"`    // The outer step whose state was uploaded.
	ID    policy.ID   `json:"id"`       // The worker that sent the state.
	Start policy.Time `json:"start_us"` // When the transfer began.
	End   policy.Time `json:"end_us"`   // When the store had the state.
	Bytes int64       `json:"bytes"`    // The bytes on the network, if known.
}

// Detection is how the loss of a worker was noticed.
type Detection struct {
	Round int       `json:"round"` // The round in which the loss was noticed.
	ID    policy.ID `json:"id"`    // The worker's number.
	// [The cause](scenarios.md#failure-detection): `heartbeat`, `connection`,
	// `progress`, `gave_up`, `reduce_failed` or `replaced`. Older records have
	// `rattle` for `gave_up`.
	Cause policy.Rule `json:"cause"`
	// The time since the worker's last sign of life.
	Silent policy.Time `json:"silent_us"`
	// The time since the worker crashed, failed, was paused or was cut off, if the
	// record has it.
	After *policy.Time `json:"after_us,omitempty"`
}

// Round is one completed round.
type Round struct {
	Round        int         `json:"round"`        // The round's number, from 1.
	Start        policy.Time `json:"start_us"`     // When the round began.
	Close        policy.Time `json:"close_us"`     // When no more arrivals were admitted.
	End          policy.Time `json:"end_us"`       // When the outer step was taken.
	Participants []policy.ID `json:"participants"` // The workers that reduced.
	Late         []policy.ID `json:"late"`         // The members that were left out as late.
	// How long the slowest participant's all-reduce took.
	Reduce    policy.Time `json:"reduce_us"`
	BytesSent int64       `json:"bytes_sent"` // All bytes that the all-reduce's streams carried.
	// The hash of the mean.
	Hash string `json:"hash,omitempty"`
	// The hash of the outer state after the outer step. Simulated runs have it with
	// `--train`.
	ModelHash string `json:"model_hash,omitempty"`
	// Trained runs: the round's losses.
	Loss *RoundLoss `json:"loss,omitempty"`
	// The participants and hashes of each region, if [regions reduce
	// separately](learning.md#hierarchical-outer-steps). Then `hash`, `model_hash` and
	// the validation loss are absent.
	Regions []RegionHash `json:"regions,omitempty"`
	// Trained runs: the known contributions of participants.
	PseudoGradients []PseudoGradient `json:"pseudo_gradients,omitempty"`
}

// Summarizer computes a Summary from the events of a run, one by one.
type Summarizer struct {
	run          Tracker
	sum          Summary
	current      Round // without Round and Start, which run has
	silenced     map[policy.ID]silence
	joiners      map[policy.ID]bool // workers that have joined late and not yet arrived in time
	member, busy policy.Time        // completed spans
	wait         policy.Time
	last         policy.Time
	lineage      int // lineage whose rounds are counted: the first, until its last outer steps are lost
	// overlap reports that rounds overlap: a worker that has arrived goes on, and
	// waits only before an outcome comes in.
	overlap  bool
	reduce   policy.Time // when the last reduction began
	held     policy.Time // time for which the running round has waited for joiners
	work     accounting
	training *Training
	rule     *policy.Grouping
	hashes   []RegionHash // outcomes of the regions in the running round
	planned  []planned
	due      map[happening][]int // places in planned of those that have not taken place, in order of time
	ended    bool                // the run is over
}

// silence is the cause of a worker's silence, and its time.
type silence struct {
	by Condition
	at policy.Time
}

// planned is one of a scenario's happenings, and whether it has taken place.
type planned struct {
	Planned
	happened bool
}

// happening is the kind of event by which a planned happening takes place.
type happening struct {
	what Type
	node string
}

// NewSummarizer returns a Summarizer without events.
func NewSummarizer(s Setup) *Summarizer {
	sum := &Summarizer{
		sum: Summary{
			Sidelined: []Membership{}, Evicted: []Membership{}, Rejoined: []Membership{}, Detected: []Detection{}, Rounds: []Round{},
			Fidelity: fidelity.Verdict{Reasons: []string{}},
		},
		silenced: map[policy.ID]silence{}, joiners: map[policy.ID]bool{}, due: map[happening][]int{},
		overlap: s.Overlap > 0, training: NewTraining(s.TokensPerStep), rule: s.Grouping,
	}
	sum.work = newAccounting(&s, &sum.run)
	for i, p := range s.Planned {
		sum.planned = append(sum.planned, planned{Planned: p})
		if p.Type != "" {
			sum.due[happening{p.Type, p.Node}] = append(sum.due[happening{p.Type, p.Node}], i)
		}
	}
	return sum
}

// Add takes the next event. It does not keep it.
func (s *Summarizer) Add(e *Event) {
	s.last = max(s.last, e.T)
	switch {
	case e.Type == Step: // most events are these
		s.step(e)
	case e.Type == Arrive:
	case s.elsewhere(e):
		return
	default:
		s.event(e)
	}
	for _, c := range s.run.Add(e) {
		s.silence(e, c)
		s.work.change(e, c)
	}
}

func (s *Summarizer) event(e *Event) {
	s.work.add(e)
	s.happens(e)
	switch e.Type {
	case RunStart:
		if r := e.Run; r != nil {
			s.sum.Scenario, s.sum.Policy, s.sum.World, s.sum.Links = r.Scenario, r.Policy, r.World, r.Links
			s.sum.WorldName = WorldName(r.World, r.Links)
			s.sum.Seed, s.sum.TimeScale, s.sum.Dilation = r.Seed, r.TimeScale, r.Dilation
		}
	case Join:
		s.join(e)
	case RoundClose:
		s.close(e)
	case ReduceStart:
		s.reduce = e.T
		s.training.Add(e)
	case Merge:
		s.merge(e)
	case ReduceDone:
		s.current.Reduce, s.current.BytesSent, s.current.Hash, s.hashes = e.Duration, e.BytesSent, e.Hash, e.Regions
		s.identical(e)
	case State, Validated, Contributed:
		s.training.Add(e)
	case OuterStep:
		s.outerStep(e)
	case Sideline:
		s.sum.Sidelined = append(s.sum.Sidelined, membership(e, ""))
	case Rejoin:
		s.sum.Rejoined = append(s.sum.Rejoined, membership(e, ""))
	case Evict:
		s.evict(e)
	case FetchStart:
		if id, _ := e.Worker(); rule(e) == policy.RuleJoin {
			s.joiners[id] = true
		}
	case FetchDone:
		if w := s.run.Of(e); len(w.Fetch) > 0 && rule(&w.Fetch[0]) == policy.RuleJoin {
			s.sum.JoinerStall += e.T - w.Joined
		}
	case Diverged:
		s.sum.Diverged = append(s.sum.Diverged, Divergence{e.Round, e.T, e.Lineage, other(e), e.Participants})
	case Undone:
		id, _ := e.Worker()
		s.sum.Undone = append(s.sum.Undone, Undoing{e.Round, e.Step, e.T, id, e.Lineage, other(e)})
		if e.Lineage == s.lineage {
			s.lineage = other(e)
		}
	case CoordinatorCrash:
		s.sum.Outages = append(s.sum.Outages, Outage{At: e.T, Cause: e.Cause})
	case CoordinatorBack:
		if n := len(s.sum.Outages); n > 0 && s.sum.Outages[n-1].Length == nil {
			s.sum.Outages[n-1].Length = new(max(0, e.T-s.sum.Outages[n-1].At))
		}
	case UploadDone:
		if id, ok := e.Worker(); ok && e.Cause == "" {
			s.sum.Uploads = append(s.sum.Uploads, Upload{e.Round, id, e.T - e.Duration, e.T, e.BytesSent})
		}
	case RunResume:
		s.resume(e)
	case RunEnd:
		s.sum.Complete, s.ended = e.Complete != nil && *e.Complete, true
	}
}

// elsewhere reports whether an event belongs to a round of another lineage than
// the one whose rounds are counted.
func (s *Summarizer) elsewhere(e *Event) bool {
	switch e.Type {
	case State:
		s.identical(e)
		return e.Lineage != s.lineage
	case RoundClose, ReduceStart, ReduceAbort, ReduceDone, OuterStep:
		return e.Lineage != s.lineage
	}
	return false
}

func (s *Summarizer) step(e *Event) {
	if e.Loss != nil {
		s.training.Add(e)
	}
	id, _ := e.Worker()
	if w := s.run.Worker(id); !w.Evicted || w.Member || e.T <= w.Left { // an evicted worker may not know of it yet
		s.busy += e.Duration
	}
	s.work.step(id, e)
}

// join records a worker's join, perhaps another one. A fault that ended the
// process before this one no longer silences the worker.
func (s *Summarizer) join(e *Event) {
	id, _ := e.Worker()
	w := s.run.Worker(id)
	if w.Evicted {
		s.sum.Returned = append(s.sum.Returned, Return{e.Round, id, e.Incarnation, e.T - w.Left})
	}
	if (w.Evicted || e.Incarnation > 0) && s.silenced[id].by == Dead {
		delete(s.silenced, id)
	}
}

func (s *Summarizer) close(e *Event) {
	s.current.Close, s.current.Participants, s.current.Late = e.T, e.Participants, e.Missing
	for _, id := range e.Participants {
		if w := s.run.Worker(id); w.Arrived && !s.overlap {
			s.wait += e.T - max(w.Arrival, w.waited)
			w.waited = e.T // a round that was closed may close again
		}
	}
	s.reduce = e.T
	s.held += e.Held
	s.sum.JoinersHeld += e.Held + s.heldByJoiners(e)
}

// heldByJoiners is the time for which a closing round has waited for joiners
// alone.
func (s *Summarizer) heldByJoiners(e *Event) policy.Time {
	if len(s.joiners) == 0 {
		return 0
	}
	var joiner, other policy.Time
	others := false
	for _, id := range e.Participants {
		w := s.run.Worker(id)
		switch {
		case !w.Arrived: // contributes zeros
		case s.joiners[id]:
			joiner = max(joiner, w.Arrival)
		default:
			other, others = max(other, w.Arrival), true
		}
		delete(s.joiners, id)
	}
	if !others {
		return 0
	}
	return max(0, joiner-other)
}

// merge adds the time for which a worker that had taken its steps ahead has
// waited for the round to close.
func (s *Summarizer) merge(e *Event) {
	if n := len(s.sum.Rounds); n > 0 && s.sum.Rounds[n-1].Round == e.Round {
		s.wait += max(0, s.sum.Rounds[n-1].Close-s.run.Of(e).Stepped)
	}
}

// outerStep completes the running round.
func (s *Summarizer) outerStep(e *Event) {
	r := &s.current
	// A member evicted during the reduction is not among them any more.
	r.Round, r.Start, r.End, r.Participants = s.run.Round, s.run.Start, e.T, e.Participants
	r.Regions = regionsOf(s.rule, e, s.hashes)
	if r.Late == nil {
		r.Late = []policy.ID{}
	}
	s.split(r)
	s.sum.Rounds = append(s.sum.Rounds, *r)
	s.sum.OuterSteps, s.sum.WallClock = e.Round, e.T
	*r = Round{}
}

// resume takes back the outer steps after the one from which the run goes on.
func (s *Summarizer) resume(e *Event) {
	s.sum.ResumedFrom = append(s.sum.ResumedFrom, e.Round)
	s.sum.Rounds = slices.DeleteFunc(s.sum.Rounds, func(r Round) bool { return r.Round > e.Round })
	undone := func(m Membership) bool { return m.Round > e.Round }
	s.sum.Sidelined = slices.DeleteFunc(s.sum.Sidelined, undone)
	s.sum.Rejoined = slices.DeleteFunc(s.sum.Rejoined, undone)
	s.sum.OuterSteps, s.sum.Complete = e.Round, false
	s.current = Round{}
}

// silence notes the cause of a worker's silence, for its detection. The first
// cause counts.
func (s *Summarizer) silence(e *Event, c Change) {
	was, silent := s.silenced[c.ID]
	switch {
	case c.Condition == Slowed:
	case c.Begins && !silent:
		s.silenced[c.ID] = silence{c.Condition, e.T}
	case !c.Begins && c.Condition == was.by && c.Condition != Dead: // otherwise see join
		delete(s.silenced, c.ID)
	}
}

func (s *Summarizer) evict(e *Event) {
	m := membership(e, rule(e))
	s.sum.Evicted = append(s.sum.Evicted, m)
	w := s.run.Worker(m.ID)
	if w.Member {
		s.member += e.T - w.Joined
	}
	switch m.Reason {
	case "", policy.RuleLeave, policy.RuleStraggler, policy.RuleLost: // the last worker leaves with its group
		return
	}
	d := Detection{Round: m.Round, ID: m.ID, Cause: m.Reason, Silent: e.Reason.Silent}
	if by, ok := s.silenced[m.ID]; ok {
		d.After = new(e.T - by.at)
	}
	s.sum.Detected = append(s.sum.Detected, d)
}

func (s *Summarizer) identical(e *Event) {
	if e.Identical != nil {
		same := *e.Identical && (s.sum.BitIdentical == nil || *s.sum.BitIdentical)
		s.sum.BitIdentical = &same
	}
}

// Summary returns the result as of the last event.
func (s *Summarizer) Summary() Summary {
	sum := s.sum
	sum.Work = s.work.work()
	sum.Rounds = slices.Clone(s.sum.Rounds)
	s.training.Complete(&sum)
	s.unplayed(&sum)
	end := s.last
	if sum.Complete {
		end = sum.WallClock
	}
	member := s.member
	for _, w := range s.run.workers {
		if w != nil && w.Member {
			member += max(0, end-w.Joined)
		}
	}
	if member > 0 {
		sum.ComputeFraction = float64(s.busy) / float64(member)
		sum.BarrierWaitFraction = float64(s.wait) / float64(member)
	}
	return sum
}

// happens ticks off what was planned.
func (s *Summarizer) happens(e *Event) {
	next := s.due[happening{e.Type, e.Node}]
	if len(next) > 0 && s.planned[next[0]].At <= e.T {
		s.planned[next[0]].happened = true
		s.due[happening{e.Type, e.Node}] = next[1:]
	}
}

// unplayed lists the parts of the scenario that never happened in the run,
// which is over.
func (s *Summarizer) unplayed(sum *Summary) {
	if !s.ended {
		return
	}
	for _, p := range s.planned {
		switch {
		case p.At > s.last:
			sum.NeverHappened = append(sum.NeverHappened, fmt.Sprintf("%s at %d µs (the run was over)", p.What, p.At))
		case p.Type != "" && !p.happened:
			sum.NeverHappened = append(sum.NeverHappened, fmt.Sprintf("%s at %d µs (the node was not alive then)", p.What, p.At))
		case p.Joins != nil:
			if w := s.run.Worker(*p.Joins); !w.Member && !w.Evicted {
				sum.NeverJoined = append(sum.NeverJoined, *p.Joins)
			}
		}
	}
}

// other is the other lineage of an event.
func other(e *Event) int {
	if e.Other == nil {
		return 0
	}
	return *e.Other
}

// rule returns the rule of an event's reason, if it has one.
func rule(e *Event) policy.Rule {
	if e.Reason == nil {
		return ""
	}
	return e.Reason.Rule
}

func membership(e *Event, why policy.Rule) Membership {
	id, _ := e.Worker()
	return Membership{Round: e.Round, ID: id, Reason: why, Why: e.Reason}
}
