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
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	World    string `json:"world"`
	// WorldName is the result of the function WorldName. Older records lack it.
	WorldName string  `json:"world_name,omitempty"`
	Links     string  `json:"links"`
	Seed      uint64  `json:"seed"`
	TimeScale float64 `json:"time_scale"`
	// Dilation is the factor by which a real run took longer by the machine's
	// clock than wall-clock and time scale suggest. Simulated runs have none.
	Dilation float64 `json:"dilation,omitempty"`
	// Complete reports that all outer steps were done before the horizon.
	Complete bool `json:"complete"`
	// WallClock is the time of the last outer step.
	WallClock  policy.Time `json:"wall_clock_us"`
	OuterSteps int         `json:"outer_steps"`
	// ComputeFraction is the time of completed inner steps, including those whose
	// outcome was discarded, divided by the membership time: the sum over workers
	// of the time in which they were members.
	ComputeFraction float64 `json:"compute_fraction"`
	// BarrierWaitFraction is the time from a participant's arrival to the last
	// close of its round, summed and divided by the membership time. If rounds
	// overlap, the wait of a participant that the round waits for runs from its
	// last inner step ahead to the close.
	BarrierWaitFraction float64 `json:"barrier_wait_fraction"`
	// ChurnLikeUtilization reconstructs the utilisation that churn publishes;
	// it fits the published figures but may not be their definition. Simulated
	// runs only.
	ChurnLikeUtilization *float64 `json:"churn_like_utilization,omitempty"`
	// Split divides the wall-clock by its use.
	Split Split `json:"split"`
	// JoinerStall is how long late joiners waited for the outer state.
	JoinerStall policy.Time `json:"joiner_stall_us"`
	// JoinersHeld is how long rounds stayed open for late joiners in their
	// first round, after the arrival of the last other participant.
	JoinersHeld policy.Time  `json:"joiners_held_us"`
	Sidelined   []Membership `json:"sidelined"`
	Evicted     []Membership `json:"evicted"`
	Rejoined    []Membership `json:"rejoined"`
	// Returned are the workers that were admitted again after an eviction.
	Returned []Return `json:"returned,omitempty"`
	// Diverged are the outer steps that two lineages of outer states have both
	// taken, the first one for each pair of lineages. Undone are the outer steps
	// that no worker holds any more.
	Diverged []Divergence `json:"diverged,omitempty"`
	Undone   []Undoing    `json:"undone,omitempty"`
	// Outages are the times without a coordinator.
	Outages []Outage `json:"outages,omitempty"`
	// ResumedFrom are the outer steps from whose checkpoints the run went on
	// after all its nodes had died.
	ResumedFrom []int `json:"resumed_from,omitempty"`
	// Uploads are the outer states that have arrived at the store.
	Uploads []Upload `json:"uploads,omitempty"`
	// Detected are the workers that were lost without leaving.
	Detected []Detection `json:"detected"`
	// Work reports what became of inner steps. Older records lack it.
	Work *Work `json:"work,omitempty"`
	// TokensSeen counts the tokens of inner steps that outer steps include,
	// TokensLost those of discarded steps. TimeToLoss is the time at which the
	// validation loss first reached each tenth of a nat. They are absent if
	// nothing real is trained, or if the simulator did not train. InitialLoss is
	// the validation loss before the first outer step; older records lack it.
	InitialLoss *float64     `json:"initial_loss,omitempty"`
	TokensSeen  *int         `json:"tokens_seen,omitempty"`
	TokensLost  *int         `json:"tokens_lost,omitempty"`
	TimeToLoss  []TimeToLoss `json:"time_to_loss,omitempty"`
	// LayerErrors are the relative quantisation errors of the layers of a
	// pseudo-gradient, as means over the rounds.
	LayerErrors []LayerError `json:"layer_errors,omitempty"`
	Rounds      []Round      `json:"rounds"`
	// BitIdentical reports that in every round every participant ended with the
	// same bytes. It is absent if no bytes moved.
	BitIdentical *bool `json:"bit_identical"`
	// Fidelity reports whether the emulation was what it claimed to be.
	Fidelity fidelity.Verdict `json:"fidelity"`
	// PlannedDrops are the packets that links have dropped as planned, by node, in a real
	// run. They are no reason to doubt it.
	PlannedDrops []LinkDrops `json:"planned_drops,omitempty"`
	// NotSimulated are the injects of links in the scenario, which a simulator
	// without links skips. Simulated runs only.
	NotSimulated []string `json:"not_simulated,omitempty"`
	// Ignored are the fields of the scenario that this world ignores.
	Ignored []Ignored `json:"ignored,omitempty"`
	// Calibration is the source of the costs in a simulated run.
	Calibration *Calibration `json:"calibration,omitempty"`
	// NeverJoined are the workers that never became members, though the run lasted
	// longer than the time of their join.
	NeverJoined []policy.ID `json:"never_joined,omitempty"`
	// ContributedNothing are the workers whose contributions were all zeros,
	// though they had done inner steps. It needs a record of contributions.
	ContributedNothing []policy.ID `json:"contributed_nothing,omitempty"`
	// NeverHappened are the scenario's happenings after the end of the run, or to
	// a worker that was not alive.
	NeverHappened []string `json:"never_happened,omitempty"`
	// Hosts are the hosts of a run over several.
	Hosts []Host `json:"hosts,omitempty"`
	Dir   string `json:"dir"`
}

// Calibration names a file of testbed calibrate.
type Calibration struct {
	File string `json:"file"`
	Made string `json:"made"` // RFC 3339
}

// Ignored is a field of a scenario that a world ignores, and why.
type Ignored struct {
	Field string `json:"field"`
	Why   string `json:"why"`
}

// Membership is a change of a worker's standing.
type Membership struct {
	Round int       `json:"round"`
	ID    policy.ID `json:"id"`
	// Reason is given for evictions: straggler, leave, or the cause of a
	// Detection.
	Reason policy.Rule `json:"reason,omitempty"`
	// Why has the numbers that the change was decided on.
	Why *policy.Reason `json:"why,omitempty"`
}

// Return is a worker's return after an eviction.
type Return struct {
	Round int       `json:"round"`
	ID    policy.ID `json:"id"`
	// Incarnation is the number of its process; the first one of a worker is 0.
	Incarnation int `json:"incarnation"`
	// Out is how long the worker was not a member.
	Out policy.Time `json:"out_us"`
}

// Divergence is an outer step that is taken a second time, by a group that did
// not know of the first time.
type Divergence struct {
	Round        int         `json:"round"`
	At           policy.Time `json:"at_us"`
	Lineage      int         `json:"lineage"`
	Other        int         `json:"other"` // lineage that had taken it before
	Participants []policy.ID `json:"participants"`
}

// Undoing is the loss of a lineage's last outer steps: the last worker that
// held them goes on in another lineage.
type Undoing struct {
	Round   int         `json:"round"` // the last of them
	Steps   int         `json:"steps"`
	At      policy.Time `json:"at_us"`
	ID      policy.ID   `json:"id"`
	Lineage int         `json:"lineage"`
	Other   int         `json:"other"`
}

// Outage is a time without a coordinator: from its death until another one had
// taken its place.
type Outage struct {
	At policy.Time `json:"at_us"`
	// Length is absent if the run ended during the outage.
	Length *policy.Time `json:"length_us,omitempty"`
	// Cause is how the coordinator ended; absent if an inject asked for it.
	Cause string `json:"cause,omitempty"`
}

// Upload is the transfer of an outer state to the store.
type Upload struct {
	Round int         `json:"round"` // whose outer step led to it
	ID    policy.ID   `json:"id"`    // the worker that sent it
	Start policy.Time `json:"start_us"`
	End   policy.Time `json:"end_us"`
	Bytes int64       `json:"bytes"` // on the network, if known
}

// Detection is how the loss of a worker was noticed.
type Detection struct {
	Round int       `json:"round"`
	ID    policy.ID `json:"id"`
	// Cause is heartbeat, connection, progress, gave_up, reduce_failed or
	// replaced.
	Cause policy.Rule `json:"cause"`
	// Silent is the time since the worker's last sign of life.
	Silent policy.Time `json:"silent_us"`
	// After is the time since the worker crashed, failed, was paused or was cut
	// off, if the record has it.
	After *policy.Time `json:"after_us,omitempty"`
}

// Round is one completed round.
type Round struct {
	Round        int         `json:"round"`
	Start        policy.Time `json:"start_us"`
	Close        policy.Time `json:"close_us"`
	End          policy.Time `json:"end_us"`
	Participants []policy.ID `json:"participants"`
	Late         []policy.ID `json:"late"`
	// Reduce is how long the slowest participant's all-reduce took.
	Reduce    policy.Time `json:"reduce_us"`
	BytesSent int64       `json:"bytes_sent"`
	// Hash is the hash of the outcome, and ModelHash that of the outer state after
	// it. Loss is that state's loss, if something real is trained.
	Hash      string     `json:"hash,omitempty"`
	ModelHash string     `json:"model_hash,omitempty"`
	Loss      *RoundLoss `json:"loss,omitempty"`
	// Regions are the participants of each region, with their hashes, in a round
	// that regions reduce separately. Then Hash, ModelHash and the validation loss
	// are absent.
	Regions []RegionHash `json:"regions,omitempty"`
	// PseudoGradients are the known pseudo-gradients of participants, if something
	// real is trained.
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
	ended    bool // the run is over
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

// NewSummarizer returns a Summarizer without events.
func NewSummarizer(s Setup) *Summarizer {
	sum := &Summarizer{
		sum: Summary{
			Sidelined: []Membership{}, Evicted: []Membership{}, Rejoined: []Membership{}, Detected: []Detection{}, Rounds: []Round{},
			Fidelity: fidelity.Verdict{Reasons: []string{}},
		},
		silenced: map[policy.ID]silence{}, joiners: map[policy.ID]bool{},
		overlap: s.Overlap > 0, training: NewTraining(s.TokensPerStep), rule: s.Grouping,
	}
	sum.work = newAccounting(&s, &sum.run)
	for _, p := range s.Planned {
		sum.planned = append(sum.planned, planned{Planned: p})
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
	for k := range s.planned {
		if p := &s.planned[k]; p.At > e.T {
			return
		} else if p.Type == e.Type && p.Node == e.Node && !p.happened {
			p.happened = true
			return
		}
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
			sum.NeverHappened = append(sum.NeverHappened, fmt.Sprintf("%s at %d µs (it did not live then)", p.What, p.At))
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
