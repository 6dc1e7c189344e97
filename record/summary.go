package record

import (
	"maps"
	"slices"

	"testbed/policy"
	"testbed/shaping/fidelity"
)

// Summary is the result of a run, simulated or real. Times are scenario time
// in microseconds.
type Summary struct {
	Scenario  string  `json:"scenario"`
	Policy    string  `json:"policy"`
	World     string  `json:"world"`
	Links     string  `json:"links"`
	Seed      uint64  `json:"seed"`
	TimeScale float64 `json:"time_scale"`
	// Dilation is by how much a real run took longer by the machine's clock than
	// wall-clock and time scale say. Simulated runs have none.
	Dilation float64 `json:"dilation,omitempty"`
	// Complete says that all outer steps were done before the horizon.
	Complete bool `json:"complete"`
	// WallClock is the time of the last outer step.
	WallClock  policy.Time `json:"wall_clock_us"`
	OuterSteps int         `json:"outer_steps"`
	// ComputeFraction is the time of completed inner steps, also of those
	// whose outcome was discarded, divided by the membership time: the sum
	// over workers of the time in which they were members.
	ComputeFraction float64 `json:"compute_fraction"`
	// BarrierWaitFraction is the time from a participant's arrival to the
	// last close of its round, summed, divided by the membership time. Where rounds
	// overlap that of its last inner step ahead to the close, if it is waited for.
	BarrierWaitFraction float64 `json:"barrier_wait_fraction"`
	// ChurnLikeUtilization reconstructs the utilisation that churn publishes;
	// it fits the published figures but may not be their definition. Simulated
	// runs only.
	ChurnLikeUtilization *float64 `json:"churn_like_utilization,omitempty"`
	// Split says what the wall-clock was spent on.
	Split Split `json:"split"`
	// JoinerStall is how long late joiners waited for the outer state.
	JoinerStall policy.Time `json:"joiner_stall_us"`
	// JoinersHeld is how long rounds stayed open for late joiners in their
	// first round, after the arrival of the last other participant.
	JoinersHeld policy.Time  `json:"joiners_held_us"`
	Sidelined   []Membership `json:"sidelined"`
	Evicted     []Membership `json:"evicted"`
	Rejoined    []Membership `json:"rejoined"`
	// Returned are those that were admitted again after an eviction.
	Returned []Return `json:"returned,omitempty"`
	// Diverged are the outer steps that two lineages of outer states have taken, the
	// first for each two, and Undone those that nobody holds any more.
	Diverged []Divergence `json:"diverged,omitempty"`
	Undone   []Undoing    `json:"undone,omitempty"`
	// Outages are when there was no coordinator.
	Outages []Outage `json:"outages,omitempty"`
	// ResumedFrom are the outer steps from whose checkpoints the run went on
	// after all its nodes had died.
	ResumedFrom []int `json:"resumed_from,omitempty"`
	// Uploads are those of outer states that have come to the store.
	Uploads []Upload `json:"uploads,omitempty"`
	// Detected are the workers that were lost without leaving.
	Detected []Detection `json:"detected"`
	// Work says what became of inner steps. Records of a time when summaries did
	// not have it lack it.
	Work *Work `json:"work,omitempty"`
	// TokensSeen are those of the inner steps that outer steps have, TokensLost
	// those of steps that were thrown away, and TimeToLoss is when the validation
	// loss was first no more than each tenth of a nat. Absent where nothing real is
	// trained, or the simulator did not train.
	TokensSeen *int         `json:"tokens_seen,omitempty"`
	TokensLost *int         `json:"tokens_lost,omitempty"`
	TimeToLoss []TimeToLoss `json:"time_to_loss,omitempty"`
	// LayerErrors are what quantisation takes from the layers of a pseudo-gradient,
	// relative to them, as means over the rounds.
	LayerErrors []LayerError `json:"layer_errors,omitempty"`
	Rounds      []Round      `json:"rounds"`
	// BitIdentical says that in every round every participant ended with the
	// same bytes. It is absent where no bytes moved.
	BitIdentical *bool `json:"bit_identical"`
	// Fidelity says whether the emulation was what it claimed to be.
	Fidelity fidelity.Verdict `json:"fidelity"`
	// NotSimulated are the injects of links in the scenario, which a simulator
	// without links leaves out. Simulated runs only.
	NotSimulated []string `json:"not_simulated,omitempty"`
	// Hosts are those of a run over several.
	Hosts []Host `json:"hosts,omitempty"`
	Dir   string `json:"dir"`
}

// Membership is a change of a worker's standing.
type Membership struct {
	Round int       `json:"round"`
	ID    policy.ID `json:"id"`
	// Reason is given for evictions: straggler, leave, or the cause of a
	// Detection.
	Reason policy.Rule `json:"reason,omitempty"`
	// Why has the numbers that it was decided on.
	Why *policy.Reason `json:"why,omitempty"`
}

// Return is a worker's return after an eviction.
type Return struct {
	Round int       `json:"round"`
	ID    policy.ID `json:"id"`
	// Incarnation is the number of its process; the first one of a worker is 0.
	Incarnation int `json:"incarnation"`
	// Out is how long it was no member.
	Out policy.Time `json:"out_us"`
}

// Divergence is an outer step that is taken a second time, by groups that knew
// nothing of those that took it first.
type Divergence struct {
	Round        int         `json:"round"`
	At           policy.Time `json:"at_us"`
	Lineage      int         `json:"lineage"`
	Other        int         `json:"other"` // that had taken it before
	Participants []policy.ID `json:"participants"`
}

// Undoing is the loss of a lineage's last outer steps: the last worker that held
// them goes on in another one.
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
	// Length is absent if the run ended before.
	Length *policy.Time `json:"length_us,omitempty"`
	// Cause is how the coordinator ended; absent if an inject asked for it.
	Cause string `json:"cause,omitempty"`
}

// Upload is the way of an outer state to the store.
type Upload struct {
	Round int         `json:"round"` // whose outer step led to it
	ID    policy.ID   `json:"id"`    // the worker that sent it
	Start policy.Time `json:"start_us"`
	End   policy.Time `json:"end_us"`
	Bytes int64       `json:"bytes"` // on the network, where they are known
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
	// After is the time since it crashed, failed, was paused or was cut off, if the
	// record has that.
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
	// Hash is that of the outcome, ModelHash that of the outer state that it leads
	// to, and Loss how well that does, where something real is trained.
	Hash      string     `json:"hash,omitempty"`
	ModelHash string     `json:"model_hash,omitempty"`
	Loss      *RoundLoss `json:"loss,omitempty"`
	// Regions are the participants of each region, with what they agree on, in a
	// round that regions reduce apart: then Hash, ModelHash and the validation loss
	// are absent.
	Regions []RegionHash `json:"regions,omitempty"`
	// PseudoGradients are those of the participants whose are known, where something
	// real is trained.
	PseudoGradients []PseudoGradient `json:"pseudo_gradients,omitempty"`
}

// Summarizer computes a Summary from the events of a run, one by one.
type Summarizer struct {
	sum          Summary
	current      Round
	since        map[string]policy.Time // join time of the present members
	turns        turns                  // in the running round
	fetching     map[string]policy.Time // start of a joiner's fetch
	silenced     map[string]Event       // by which crash, failure, pause or partition
	evicted      map[string]policy.Time // last
	joiners      map[string]bool        // have joined late and not yet arrived in time
	member, busy policy.Time            // completed spans
	wait         policy.Time
	// stepped is when workers ended their last inner steps, where rounds overlap: who
	// has arrived goes on, and waits only before an outcome comes in. Else it is nil.
	stepped map[string]policy.Time
	last    policy.Time
	lineage int // whose rounds are counted
	started bool
	split   splitter
	work    account
	learnt  *Learnt
	rule    *policy.Grouping
	hashes  []RegionHash // of the regions' outcomes in the running round
}

// NewSummarizer returns a Summarizer that has seen no event of a run.
func NewSummarizer(s Setup) *Summarizer {
	sum := &Summarizer{
		sum: Summary{
			Sidelined: []Membership{}, Evicted: []Membership{}, Rejoined: []Membership{}, Detected: []Detection{}, Rounds: []Round{},
			Fidelity: fidelity.Verdict{Reasons: []string{}},
		},
		since:    map[string]policy.Time{},
		fetching: map[string]policy.Time{},
		silenced: map[string]Event{},
		evicted:  map[string]policy.Time{},
		joiners:  map[string]bool{},
		split:    newSplitter(),
		work:     newAccount(&s),
		learnt:   NewLearnt(s.TokensPerStep),
		rule:     s.Grouping,
	}
	if s.Overlap > 0 {
		sum.stepped = map[string]policy.Time{}
	}
	return sum
}

// Add takes the next event. It does not keep it.
func (s *Summarizer) Add(e *Event) {
	s.last = max(s.last, e.T)
	switch e.Type { // most events are these
	case Step:
		s.step(e)
		return
	case Arrive:
		s.arrive(e)
		return
	}
	if s.elsewhere(e) {
		return
	}
	s.split.add(e, &s.current)
	s.work.add(e)
	switch e.Type {
	case RunStart:
		if r := e.Run; r != nil {
			s.sum.Scenario, s.sum.Policy, s.sum.World, s.sum.Links = r.Scenario, r.Policy, r.World, r.Links
			s.sum.Seed, s.sum.TimeScale, s.sum.Dilation = r.Seed, r.TimeScale, r.Dilation
		}
	case Join:
		if !s.started || len(s.sum.Rounds) == 0 && e.Round > s.current.Round { // whoever begins at a later outer step
			s.started, s.current = true, Round{Round: max(e.Round, 1), Start: e.T}
		}
		s.since[e.Node] = e.T
		s.turns.anew(e.Node)
		s.returns(e)
	case RoundClose:
		s.close(e)
	case Merge:
		s.merge(e)
	case ReduceDone:
		s.current.Reduce, s.current.BytesSent, s.current.Hash, s.hashes = e.Duration, e.BytesSent, e.Hash, e.Regions
		s.identical(e)
	case State, Validated, Contributed:
		s.state(e)
	case OuterStep:
		s.outerStep(e)
	case Sideline:
		s.sum.Sidelined = append(s.sum.Sidelined, membership(e, ""))
	case Rejoin:
		s.sum.Rejoined = append(s.sum.Rejoined, membership(e, ""))
	case Crash, Fail, Pause, Resume, Partition, Heal:
		s.fault(e)
	case Evict:
		s.detected(e)
		s.sum.Evicted = append(s.sum.Evicted, membership(e, rule(e)))
		if since, ok := s.since[e.Node]; ok {
			s.member += e.T - since
		}
		delete(s.since, e.Node)
		delete(s.fetching, e.Node)
		s.evicted[e.Node] = e.T
	case FetchStart:
		if _, running := s.fetching[e.Node]; !running && rule(e) == policy.RuleJoin {
			s.fetching[e.Node] = s.since[e.Node]
			s.joiners[e.Node] = true
		}
	case FetchDone:
		if start, ok := s.fetching[e.Node]; ok {
			s.sum.JoinerStall += e.T - start
			delete(s.fetching, e.Node)
		}
	case CoordinatorCrash:
		s.sum.Outages = append(s.sum.Outages, Outage{At: e.T, Cause: e.Cause})
	case CoordinatorBack:
		if n := len(s.sum.Outages); n > 0 && s.sum.Outages[n-1].Length == nil {
			s.sum.Outages[n-1].Length = new(max(0, e.T-s.sum.Outages[n-1].At))
		}
	case UploadDone:
		if id, ok := workerID(e.Node); ok && e.Cause == "" {
			s.sum.Uploads = append(s.sum.Uploads, Upload{e.Round, id, e.T - e.Duration, e.T, e.BytesSent})
		}
	case RunResume:
		s.resume(e)
	case RunEnd:
		s.sum.Complete = e.Complete != nil && *e.Complete
	}
}

// arrive takes an arrival. A late one counts too: its round may open again and
// take it in.
func (s *Summarizer) arrive(e *Event) {
	if e.Round == s.current.Round {
		w := s.turns.named(e.Node)
		w.arrived, w.arrival = true, e.T
	}
}

// elsewhere reports whether an event is about another lineage than the one whose
// rounds are counted: the first, until its last outer steps are lost.
func (s *Summarizer) elsewhere(e *Event) bool {
	switch e.Type {
	case RoundClose, ReduceStart, ReduceAbort, ReduceDone, OuterStep:
		return e.Lineage != s.lineage
	case State:
		if e.Lineage != s.lineage {
			s.identical(e)
		}
		return e.Lineage != s.lineage
	case Diverged:
		s.sum.Diverged = append(s.sum.Diverged, Divergence{e.Round, e.T, e.Lineage, other(e), e.Participants})
	case Undone:
		id, _ := workerID(e.Node) // written by node
		s.sum.Undone = append(s.sum.Undone, Undoing{e.Round, e.Step, e.T, id, e.Lineage, other(e)})
		if e.Lineage == s.lineage {
			s.lineage = other(e)
		}
	}
	return false
}

// other is the other lineage that an event is about.
func other(e *Event) int {
	if e.Other == nil {
		return 0
	}
	return *e.Other
}

func (s *Summarizer) close(e *Event) {
	s.current.Close, s.current.Participants, s.current.Late = e.T, e.Participants, e.Missing
	for _, id := range e.Participants {
		if w := s.turns.of(id); w.arrived && s.stepped == nil {
			s.wait += e.T - max(w.arrival, w.waited)
			w.waited = e.T // a round that was closed may close again
		}
	}
	s.sum.JoinersHeld += e.Held
	s.held(e)
}

// merge adds for how long a worker that had taken its steps ahead has waited for
// the round to close.
func (s *Summarizer) merge(e *Event) {
	if n := len(s.sum.Rounds); n > 0 && s.sum.Rounds[n-1].Round == e.Round {
		s.wait += max(0, s.sum.Rounds[n-1].Close-s.stepped[e.Node])
	}
}

func (s *Summarizer) state(e *Event) {
	s.identical(e)
	s.learnt.Add(e)
}

func (s *Summarizer) step(e *Event) {
	if s.stepped != nil {
		s.stepped[e.Node] = e.T
	}
	if e.Loss != nil {
		s.learnt.Add(e)
	}
	if len(s.evicted) == 0 || s.mayWork(e) {
		s.busy += e.Duration
	}
	if id, ok := workerID(e.Node); ok {
		s.work.step(id, e)
		if e.Round == s.current.Round {
			s.turns.of(id).busy += e.Duration
		}
	}
}

// mayWork says whether the worker of an inner step was a member. One that was
// evicted may have yet to learn it.
func (s *Summarizer) mayWork(e *Event) bool {
	at, evicted := s.evicted[e.Node]
	return !evicted || e.T <= at || s.isMember(e.Node)
}

// outerStep completes the running round.
func (s *Summarizer) outerStep(e *Event) {
	// A member evicted during the reduction is not among them any more.
	s.current.Participants, s.current.End = e.Participants, e.T
	s.current.Regions = regionsOf(s.rule, e, s.hashes)
	if s.current.Late == nil {
		s.current.Late = []policy.ID{}
	}
	s.split.end(&s.sum.Split, &s.current, &s.turns)
	s.sum.Rounds = append(s.sum.Rounds, s.current)
	s.sum.OuterSteps, s.sum.WallClock = e.Round, e.T
	s.current = Round{Round: e.Round + 1, Start: e.T}
	s.turns.next()
}

func (s *Summarizer) isMember(name string) bool {
	_, ok := s.since[name]
	return ok
}

// returns takes a worker in that was evicted before. What has ended the process
// before this one silences it no more.
func (s *Summarizer) returns(e *Event) {
	at, evicted := s.evicted[e.Node]
	if evicted {
		id, _ := workerID(e.Node) // written by node
		s.sum.Returned = append(s.sum.Returned, Return{e.Round, id, e.Incarnation, e.T - at})
	}
	if !evicted && e.Incarnation == 0 {
		return
	}
	if by := s.silenced[e.Node].Type; by == Crash || by == Fail {
		delete(s.silenced, e.Node)
	}
}

// fault keeps what silences a worker, for its detection.
func (s *Summarizer) fault(e *Event) {
	switch e.Type {
	case Crash, Fail, Pause:
		s.silence(e.Node, e)
	case Resume:
		s.endSilence(e.Node, Pause)
	case Partition:
		for _, id := range e.IDs {
			s.silence(id.Node(), e)
		}
	case Heal:
		for _, id := range e.IDs {
			s.endSilence(id.Node(), Partition)
		}
		if e.IDs == nil {
			maps.DeleteFunc(s.silenced, func(_ string, by Event) bool { return by.Type == Partition })
		}
	}
}

// resume takes back what came after the outer step that the run goes on from.
func (s *Summarizer) resume(e *Event) {
	s.sum.ResumedFrom = append(s.sum.ResumedFrom, e.Round)
	s.sum.Rounds = slices.DeleteFunc(s.sum.Rounds, func(r Round) bool { return r.Round > e.Round })
	undone := func(m Membership) bool { return m.Round > e.Round }
	s.sum.Sidelined = slices.DeleteFunc(s.sum.Sidelined, undone)
	s.sum.Rejoined = slices.DeleteFunc(s.sum.Rejoined, undone)
	s.sum.OuterSteps, s.sum.Complete = e.Round, false
	s.current = Round{Round: e.Round + 1, Start: e.T}
	s.turns.next()
	clear(s.fetching)
}

// held adds what a round that closes has waited for joiners.
func (s *Summarizer) held(e *Event) {
	if len(s.joiners) == 0 {
		return
	}
	var joiner, other policy.Time
	others := false
	for _, id := range e.Participants {
		w := s.turns.of(id)
		switch {
		case !w.arrived: // contributes zeros
		case s.joiners[id.Node()]:
			joiner = max(joiner, w.arrival)
		default:
			other, others = max(other, w.arrival), true
		}
		delete(s.joiners, id.Node())
	}
	if others {
		s.sum.JoinersHeld += max(0, joiner-other)
	}
}

// silence notes what silences a worker. The first cause counts.
func (s *Summarizer) silence(name string, by *Event) {
	if _, already := s.silenced[name]; !already {
		s.silenced[name] = *by
	}
}

// endSilence forgets a cause that is over.
func (s *Summarizer) endSilence(name string, cause Type) {
	if s.silenced[name].Type == cause {
		delete(s.silenced, name)
	}
}

func (s *Summarizer) detected(e *Event) {
	if e.Reason == nil || e.Reason.Rule == policy.RuleLeave || e.Reason.Rule == policy.RuleStraggler || e.Reason.Rule == policy.RuleLost { // with its group
		return
	}
	m := membership(e, "")
	d := Detection{Round: m.Round, ID: m.ID, Cause: e.Reason.Rule, Silent: e.Reason.Silent}
	if by, ok := s.silenced[e.Node]; ok {
		d.After = new(e.T - by.T)
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
	s.learnt.Into(&sum)
	end := s.last
	if sum.Complete {
		end = sum.WallClock
	}
	member := s.member
	for _, since := range s.since {
		member += max(0, end-since)
	}
	if member > 0 {
		sum.ComputeFraction = float64(s.busy) / float64(member)
		sum.BarrierWaitFraction = float64(s.wait) / float64(member)
	}
	return sum
}

// rule returns the rule of an event's reason, if it has one.
func rule(e *Event) policy.Rule {
	if e.Reason == nil {
		return ""
	}
	return e.Reason.Rule
}

func membership(e *Event, why policy.Rule) Membership {
	id, _ := workerID(e.Node) // written by node
	return Membership{Round: e.Round, ID: id, Reason: why, Why: e.Reason}
}
