// Package account turns what the adapters of a stack have marked into the common
// record of runs. Who took part in an average is read from the average itself: each
// worker has lanes in the vector. What adapters only say is compared with it.
package account

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"testbed/internal/errs"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/resolved"
)

// lanes are the numbers of each worker at the head of a slice of the vector, as in
// common/testbed_stack.py. Rounds are counted modulo roundsModulo there.
const (
	lanes        = 4
	roundsModulo = 1000
)

// mostDisputes limits the list of contradictions.
const mostDisputes = 20

// mostParts is the most parts that an adapter reduces apart from each other, such as one
// for each connection. Each has whole slices.
const mostParts = 16

// Result is the account of a run.
type Result struct {
	Events  []record.Event // in order of time, without run_start and run_end
	Rounds  int            // completed
	Version string         // of the stack, as its adapters say
	// Failures are programs that ended by themselves with an error.
	Failures []string
	// Disputes are contradictions between what workers say and the averages.
	Disputes []string
	// Attempts are failed reductions, as reported by workers.
	Attempts int
}

// commit is a worker's report of an outer step.
type commit struct {
	at       policy.Time
	duration policy.Time
	sent     int64
	hash     string
	slices   [][]float64
	worlds   []int // workers in each part of the average, if the lanes are apart from them
}

// arrival is a worker's report that it has come to a reduction.
type arrival struct {
	at    policy.Time
	steps int
}

type key struct {
	round int
	id    policy.ID
}

// clerk collects an account.
type clerk struct {
	Result
	s       *resolved.Scenario
	inexact bool
	first   policy.Time
	clock   policy.Time // of the machine, when the scenario's clock started
	ticks   bool
	events  []record.Event

	members      map[policy.ID]int // the incarnation that is a member
	incarnations map[string]int
	killed       map[string]policy.Time // by an inject, by the machine's clock
	exits        []record.ProgramEvent
	epoch        int
	commits      map[int]map[policy.ID]commit
	arrivals     map[key]arrival
	began        map[int]policy.Time // the first step of a round
	disputed     int
	wrong        map[string]bool        // marks with an error that was reported
	started      map[string]policy.Time // the last program of a node, by the machine's clock
	last         map[string]int         // the highest round that a node has committed
	finished     policy.Time            // the first commit of the last round, by the machine's clock; 0: none
	excused      map[key]bool           // workers that have reported why they do not commit
	changes      []record.Event         // of who is there
}

// Of makes the account of a run from the events of its programs. States of a stack
// that is inexact differ in the last bits, so they are not compared.
func Of(s *resolved.Scenario, inexact bool, events []record.ProgramEvent) Result {
	c := &clerk{
		s: s, inexact: inexact, first: s.FirstJoin(), members: map[policy.ID]int{}, incarnations: map[string]int{}, killed: map[string]policy.Time{},
		commits: map[int]map[policy.ID]commit{}, arrivals: map[key]arrival{}, began: map[int]policy.Time{}, epoch: -1,
		wrong: map[string]bool{}, started: map[string]policy.Time{}, last: map[string]int{}, excused: map[key]bool{},
	}
	for _, e := range events {
		if e.Type == record.ProgramClock {
			c.clock, c.ticks = e.T, true
		}
	}
	for k := range events {
		c.take(&events[k])
	}
	c.judgeExits()
	c.rounds()
	slices.SortStableFunc(c.events, func(a, b record.Event) int { return cmp.Compare(a.T, b.T) })
	c.Events = c.distinct()
	if c.disputed > len(c.Disputes) {
		c.Disputes = append(c.Disputes, fmt.Sprintf("further contradictions between the marks that the programs wrote: %d", c.disputed-len(c.Disputes)))
	}
	return c.Result
}

// distinct are the events without those that are in every way equal to an earlier one:
// readers of records take them for damage.
func (c *clerk) distinct() []record.Event {
	seen := map[string]bool{}
	all := slices.DeleteFunc(c.events, func(e record.Event) bool {
		text, err := json.Marshal(e)
		was := seen[string(text)]
		seen[string(text)] = true
		return err == nil && was
	})
	if n := len(c.events) - len(all); n > 0 {
		c.dispute("marks that repeat others in every field, at the same time: %d", n)
	}
	return all
}

// at converts a time of the programs' record to scenario time. What happened before the
// clock started has the time of the start.
func (c *clerk) at(t policy.Time) policy.Time {
	if !c.ticks || t <= c.clock {
		return c.first
	}
	return c.first + c.span(t-c.clock)
}

// span converts a duration by the machine's clock.
func (c *clerk) span(d policy.Time) policy.Time {
	return c.s.ClockTime(time.Duration(d) * time.Microsecond)
}

func (c *clerk) add(e record.Event) { c.events = append(c.events, e) }

func (c *clerk) dispute(format string, args ...any) {
	if c.disputed++; c.disputed <= mostDisputes {
		c.Disputes = append(c.Disputes, fmt.Sprintf(format, args...))
	}
}

func (c *clerk) take(e *record.ProgramEvent) {
	t := c.at(e.T)
	_, worker := policy.ParseNode(e.Node)
	switch e.Type {
	case record.ProgramStart:
		c.incarnations[e.Node], c.started[e.Node] = e.Incarnation, e.T
		switch {
		case e.Incarnation == 0:
		case worker:
			c.add(record.Event{T: t, Type: record.Restart, Node: e.Node, Incarnation: e.Incarnation})
		default:
			c.add(record.Event{T: t, Type: record.CoordinatorBack, Duration: t - c.at(c.killed[e.Node])})
		}
	case record.ProgramExit:
		c.exits = append(c.exits, *e)
	case record.ProgramInvalidMark:
		c.dispute("%s: %s", e.Node, e.Cause)
	case record.ProgramInject:
		c.inject(t, e, worker)
	case record.Partition, record.Heal, record.LinkFault, record.LinkRestored:
		c.add(record.Event{T: t, Type: e.Type, Op: e.Op, Node: e.Node, From: e.From, To: e.To, IDs: e.IDs})
	case record.ProgramMark:
		if worker {
			c.mark(t, e)
		}
	}
}

// faultTypes are the events of injects that begin and end at once.
var faultTypes = map[string]record.Type{
	"Pause": record.Pause, "Resume": record.Resume, "Slow": record.Slow, "Restore": record.Restore,
}

func (c *clerk) inject(t policy.Time, e *record.ProgramEvent, worker bool) {
	kind, is := faultTypes[e.Op]
	switch {
	case is:
	case e.Op == "Preempt" && e.Processes == nil:
		kind = record.Preempt
		c.killed[e.Node] = e.T
	case worker:
		kind = record.Crash
		c.killed[e.Node] = e.T
	default:
		c.killed[e.Node] = e.T
		c.add(record.Event{T: t, Type: record.CoordinatorCrash})
		return
	}
	c.add(record.Event{T: t, Type: kind, Node: e.Node, Factor: e.Factor})
}

// killedBy is the most time between an inject and the exit that it causes.
const killedBy = policy.Time(10_000_000)

// judgeExits separates ends of programs by injects from failures.
func (c *clerk) judgeExits() {
	var last policy.Time // the end of the last worker
	for _, e := range c.exits {
		if _, worker := policy.ParseNode(e.Node); worker {
			last = max(last, e.T)
		}
	}
	for _, e := range c.exits {
		_, worker := policy.ParseNode(e.Node)
		killed, injured := c.killed[e.Node]
		how := ""
		switch {
		case e.Cause != "":
			how = "could not be started: " + e.Cause
		case e.Told || e.Signal == "SIGTERM": // the launch ends programs so
		case e.Code != nil && *e.Code > 0:
			how = fmt.Sprintf("exited with code %d", *e.Code)
		case e.Signal != "" && !(injured && max(killed-e.T, e.T-killed) < killedBy):
			how = "was ended by " + e.Signal
		case e.Signal != "" || injured:
		case worker && (c.finished == 0 || e.T < c.finished):
			how = fmt.Sprintf("exited with code 0 after round %d of %d", c.last[e.Node], c.s.TargetOuterSteps)
		case !worker && e.T < last:
			how = "exited with code 0 before the workers"
		}
		if how == "" {
			continue
		}
		c.Failures = append(c.Failures, fmt.Sprintf("%s %s", e.Node, how))
		if worker {
			c.add(record.Event{T: c.at(e.T), Type: record.Fail, Node: e.Node, Cause: how})
		}
	}
}

// limits are the least and the most value of a field of marks. The most of a round depends
// on the scenario.
type limits struct{ least, most float64 }

const largest = 1 << 53 // every whole number up to it is a float64

// fields are the numbers in marks that the account uses. Other marks and other fields are
// the program's own.
var fields = map[string]map[string]limits{
	"start":      {},
	"joined":     {"round": {1, 0}},
	"agreed":     {"round": {1, 0}, "epoch": {0, largest}},
	"step":       {"round": {1, 0}, "step": {0, largest}},
	"arrive":     {"round": {1, 0}, "steps": {0, largest}},
	"reduce_end": {"round": {1, 0}},
	"fetch_end":  {"round": {1, 0}},
	"commit":     {"round": {1, 0}},
}

// valid reports whether a mark has the fields that the account needs, with possible
// values.
func (c *clerk) valid(e *record.ProgramEvent) bool {
	known, is := fields[e.Mark]
	if !is {
		return false
	}
	if node, is := e.Fields["node"]; is && node != e.Node {
		c.invalid(e, "node", "only the node itself may be named")
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		l := known[name]
		if name == "round" {
			l.most = float64(c.s.TargetOuterSteps + 1) // for whoever is ready for one more
		}
		if x, is := e.Fields[name].(float64); !is || x != math.Trunc(x) || x < l.least || x > l.most {
			c.invalid(e, name, fmt.Sprintf("a whole number from %.0f to %.0f is needed", l.least, l.most))
			return false
		}
	}
	return true
}

// invalid notes a mark that the account cannot use: once for a kind of mark and a field
// of a worker.
func (c *clerk) invalid(e *record.ProgramEvent, field, why string) {
	if which := e.Node + " " + e.Mark + " " + field; !c.wrong[which] {
		c.wrong[which] = true
		c.dispute("%s: the mark %s is ignored: its field %s is %s, but %s", e.Node, e.Mark, field, shown(e.Fields[field]), why)
	}
}

// took is the duration in a mark. It lies within the life of the program.
func (c *clerk) took(e *record.ProgramEvent) policy.Time {
	const late = 1_000_000 // clocks are read one after the other
	return c.span(policy.Time(c.optional(e, "duration_us", float64(e.T-c.started[e.Node]+late), "which is no time within the life of the program")))
}

// optional is a number from 0 to most in a mark, or 0 if the mark does not have it.
func (c *clerk) optional(e *record.ProgramEvent, name string, most float64, why string) float64 {
	value, is := e.Fields[name]
	if x, number := value.(float64); !is || number && x >= 0 && x <= most {
		return x
	}
	if which := e.Node + " " + e.Mark + " " + name; !c.wrong[which] {
		c.wrong[which] = true
		c.dispute("%s: the %s of the mark %s is %s, %s", e.Node, name, e.Mark, shown(value), why)
	}
	return 0
}

// shown is a value of a mark, for people.
func shown(value any) string {
	text, _ := json.Marshal(value) // it came as JSON
	if len(text) > 40 {
		text = append(text[:40], " …"...)
	}
	return strings.ToValidUTF8(string(text), "")
}

// number is a field of a mark.
func number(fields map[string]any, name string) float64 {
	x, _ := fields[name].(float64)
	return x
}

func text(fields map[string]any, name string) string {
	x, _ := fields[name].(string)
	return x
}

func (c *clerk) mark(t policy.Time, e *record.ProgramEvent) {
	id, _ := policy.ParseNode(e.Node)
	f := e.Fields
	if !c.valid(e) {
		return
	}
	round := int(number(f, "round"))
	took := c.took(e)
	switch e.Mark {
	case "start":
		c.Version = cmp.Or(c.Version, printable(text(f, "version")))
	case "joined":
		c.join(t, id, round)
	case "agreed":
		c.agreed(t, e, round)
	case "step":
		if began, is := c.began[round]; !is || t-took < began {
			c.began[round] = t - took
		}
		c.add(record.Event{T: t, Type: record.Step, Node: e.Node, Round: round, Step: int(number(f, "step")), Duration: took})
	case "arrive":
		if _, again := c.arrivals[key{round, id}]; !again { // the first attempt of the round
			c.add(record.Event{T: t, Type: record.Arrive, Node: e.Node, Round: round, Offset: new(policy.Time)})
		}
		c.arrivals[key{round, id}] = arrival{t, int(number(f, "steps"))}
	case "reduce_end":
		if ok, _ := f["ok"].(bool); !ok {
			c.Attempts++
			c.excused[key{round, id}] = true
			c.add(record.Event{T: t, Type: record.ReduceAbort, Node: e.Node, Round: round, Cause: text(f, "error"), Reason: &policy.Reason{Rule: policy.RuleReduceFailed, Lost: &id}})
		}
	case "fetch_end":
		from := text(f, "from")
		for r := round; r >= 1 && !c.excused[key{r, id}]; r-- { // it has missed these rounds
			c.excused[key{r, id}] = true
		}
		c.add(record.Event{T: t - took, Type: record.FetchStart, Node: e.Node, Round: round, From: from, Reason: &policy.Reason{Rule: policy.RuleJoin}})
		c.add(record.Event{T: t, Type: record.FetchDone, Node: e.Node, Round: round, From: from, Duration: took})
	case "commit":
		c.last[e.Node] = max(c.last[e.Node], round)
		if round == c.s.TargetOuterSteps && c.finished == 0 {
			c.finished = e.T
		}
		c.commit(t, id, round, took, e)
	}
}

// printable is text of a program that is shown to the user: without control characters,
// and not too long.
func printable(text string) string {
	const longest = 200
	runes := []rune(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text))
	return string(runes[:min(len(runes), longest)])
}

// join notes that a worker has become a member.
func (c *clerk) join(t policy.Time, id policy.ID, round int) {
	now := c.incarnations[id.Node()]
	if was, is := c.members[id]; is && was == now {
		return
	} else if is {
		c.evict(t, id, round, policy.RuleReplaced)
	}
	c.members[id] = now
	c.add(record.Event{T: t, Type: record.Join, Node: id.Node(), Round: round, Incarnation: now, Reason: &policy.Reason{Rule: policy.RuleJoin}})
}

func (c *clerk) evict(t policy.Time, id policy.ID, round int, why policy.Rule) {
	delete(c.members, id)
	c.add(record.Event{T: t, Type: record.Evict, Node: id.Node(), Round: round, Reason: &policy.Reason{Rule: why}})
}

// agreed notes the members that a stack has agreed on. All of them report it.
func (c *clerk) agreed(t policy.Time, e *record.ProgramEvent, round int) {
	list, is := e.Fields["members"].([]any)
	if !is || len(list) == 0 {
		c.invalid(e, "members", "a list of nodes is needed")
		return
	}
	var now []policy.ID
	for _, m := range list {
		name, _ := m.(string)
		id, is := policy.ParseNode(name)
		if is && slices.Contains(c.s.IDs(), id) {
			now = append(now, id)
		} else {
			c.invalid(e, "members", "all members must be workers of the scenario")
			return
		}
	}
	epoch := int(number(e.Fields, "epoch"))
	if epoch <= c.epoch {
		return
	}
	c.epoch = epoch
	slices.Sort(now)
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		if !slices.Contains(now, id) {
			c.evict(t, id, round, policy.RuleMembership)
		}
	}
	for _, id := range now {
		c.join(t, id, round)
	}
}

// mostSlices is the most slices of a vector: as many as workers, rounded up so that each
// part has whole ones.
func (c *clerk) mostSlices() int { return len(c.s.Workers) + mostParts - 1 }

// worlds are the numbers of workers in the parts of an average; nil if the mark has none.
func (c *clerk) worlds(e *record.ProgramEvent) []int {
	value := e.Fields["worlds"]
	if value == nil {
		return nil
	}
	list, is := value.([]any)
	var all []int
	for _, w := range list {
		if n, number := w.(float64); number && n == math.Trunc(n) && n >= 1 && n <= float64(len(c.s.Workers)) {
			all = append(all, int(n))
		}
	}
	if is && len(all) == len(list) && len(all) <= mostParts {
		return all
	}
	if which := e.Node + " commit worlds"; !c.wrong[which] {
		c.wrong[which] = true
		c.dispute("%s: the worlds of the mark commit are %s, which are not the numbers of workers in at most %d parts", e.Node, shown(value), mostParts)
	}
	return nil
}

func (c *clerk) commit(t policy.Time, id policy.ID, round int, took policy.Time, e *record.ProgramEvent) {
	f := e.Fields
	m := commit{at: t, duration: took, sent: int64(c.optional(e, "tx", largest, "which is no number of bytes")), hash: text(f, "hash")}
	blocks, _ := f["lanes"].([]any)
	if n := c.mostSlices(); len(blocks) > n {
		c.dispute("round %d: %s reports the lanes of %d slices, but the vector has at most %d", round, id.Node(), len(blocks), n)
		blocks = nil
	}
	for _, b := range blocks {
		values, _ := b.([]any)
		block := make([]float64, len(values))
		for k, v := range values {
			block[k], _ = v.(float64)
		}
		if len(block) != lanes*len(c.s.Workers) {
			c.dispute("round %d: %s reports a vector of %d lanes, but the vector has %d", round, id.Node(), len(block), lanes*len(c.s.Workers))
			continue
		}
		m.slices = append(m.slices, block)
	}
	m.worlds = c.worlds(e)
	if c.commits[round] == nil {
		c.commits[round] = map[policy.ID]commit{}
	}
	if was, again := c.commits[round][id]; again {
		c.dispute("round %d: %s took the outer step twice", round, id.Node())
		m.at = was.at
	}
	c.commits[round][id] = m
}

// rounds adds the events of all completed rounds.
func (c *clerk) rounds() {
	for _, e := range c.events {
		switch e.Type {
		case record.Join, record.Evict, record.Crash, record.Fail:
			c.changes = append(c.changes, e)
		}
	}
	last := c.first
	for _, round := range slices.Sorted(maps.Keys(c.commits)) {
		if round != c.Rounds+1 || round > c.s.TargetOuterSteps {
			by := slices.Min(slices.Collect(maps.Keys(c.commits[round])))
			c.dispute("%s reports that round %d is complete, but the last complete round is %d of %d", by.Node(), round, c.Rounds, c.s.TargetOuterSteps)
			return
		}
		last = c.complete(round, last)
	}
}

// ids are the scenario's workers in the order of their lanes.
func (c *clerk) ids() []policy.ID {
	ids := c.s.IDs()
	slices.Sort(ids)
	return ids
}

// complete adds the events of a round, and returns its end.
func (c *clerk) complete(round int, after policy.Time) policy.Time {
	commits := c.commits[round]
	shares := c.shares(round)
	var participants, zero []policy.ID
	for _, id := range c.ids() {
		_, committed := commits[id]
		if shares[id] > 0 {
			participants = append(participants, id)
		} else if committed {
			participants, zero = append(participants, id), append(zero, id)
		}
	}
	var end, closed, slowest policy.Time = after, after, 0
	var sent int64
	hashes := map[string]bool{}
	c.compare(round)
	c.absent(round, participants)
	for id, m := range commits {
		end, slowest, sent = max(end, m.at), max(slowest, m.duration), sent+m.sent
		hashes[m.hash] = true
		if a, is := c.arrivals[key{round, id}]; is && a.at <= m.at {
			closed = max(closed, a.at)
		}
	}
	if next, is := c.began[round+1]; is { // a worker that committed later did not hold the others up
		end = max(after, min(end, next))
	}
	closed = min(closed, end)
	epoch := policy.Epoch(round)
	c.add(record.Event{T: closed, Type: record.RoundClose, Round: round, Participants: participants, Missing: c.missing(closed, participants)})
	c.add(record.Event{T: closed, Type: record.ReduceStart, Round: round, Epoch: epoch, Participants: participants, Zero: zero})
	for _, id := range slices.Sorted(maps.Keys(commits)) {
		m := commits[id]
		c.add(record.Event{T: m.at, Type: record.Reduced, Node: id.Node(), Round: round, Epoch: epoch, Duration: m.duration, BytesSent: m.sent})
	}
	same := len(hashes) == 1
	state := record.Event{T: end, Type: record.State, Round: round, Identical: &same}
	switch {
	case c.inexact:
		state.Identical = nil
	case same:
		for state.Hash = range hashes {
		}
	default:
		c.dispute("round %d: the hashes of the workers' results differ (different hashes: %d)", round, len(hashes))
	}
	c.add(record.Event{T: end, Type: record.ReduceDone, Round: round, Epoch: epoch, Participants: participants, Duration: slowest, BytesSent: sent})
	c.add(state)
	c.add(record.Event{T: end, Type: record.OuterStep, Round: round, Epoch: epoch, Participants: participants})
	c.Rounds = round
	return end
}

// compare notes workers of a round that report equal states after different averages,
// and those that report no state.
func (c *clerk) compare(round int) {
	first := map[string]policy.ID{}
	for _, id := range slices.Sorted(maps.Keys(c.commits[round])) {
		m := c.commits[round][id]
		if m.hash == "" && !c.inexact {
			c.dispute("round %d: %s reports no hash of its outer state", round, id.Node())
		}
		other, is := first[m.hash]
		if !is {
			first[m.hash] = id
			continue
		}
		alike := func(a, b []float64) bool {
			return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= exact*max(1, math.Abs(x)) })
		}
		theirs := c.commits[round][other].slices
		if m.hash != "" && len(m.slices) > 0 && len(theirs) > 0 && !slices.EqualFunc(m.slices, theirs, alike) {
			c.dispute("round %d: %s and %s report the same state, but different averages", round, other.Node(), id.Node())
		}
	}
}

// absent notes workers whose work is in the average of a round, but which report neither
// the outer step nor a reason for missing it.
func (c *clerk) absent(round int, participants []policy.ID) {
	for _, id := range participants {
		a, arrived := c.arrivals[key{round, id}]
		if _, committed := c.commits[round][id]; committed || !arrived || c.excused[key{round, id}] {
			continue
		}
		gone := slices.ContainsFunc(c.events, func(e record.Event) bool {
			return e.Node == id.Node() && e.T >= a.at && (e.Type == record.Crash || e.Type == record.Fail || e.Type == record.Preempt)
		})
		if !gone {
			c.dispute("round %d: the average has work of %s, but %[2]s has not reported its outer step", round, id.Node())
		}
	}
}

// missing are the members at a time that have not ended and do not take part.
func (c *clerk) missing(at policy.Time, participants []policy.ID) (missing []policy.ID) {
	there := map[policy.ID]bool{}
	for _, e := range c.changes {
		if id, _ := e.Worker(); e.T <= at {
			delete(there, id)
			if e.Type == record.Join {
				there[id] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(there)) {
		if !slices.Contains(participants, id) {
			missing = append(missing, id)
		}
	}
	return missing
}

// exact is the error that is allowed in a share: of float32 sums, and of averages that are
// not bit-identical.
const exact = 1e-3

// shares reads from the averages of a round each worker's share in it, and compares
// them with what workers say.
func (c *clerk) shares(round int) map[policy.ID]float64 {
	all := map[policy.ID]float64{}
	var groups []string
	ids := c.ids()
	for _, by := range slices.Sorted(maps.Keys(c.commits[round])) {
		m := c.commits[round][by]
		if len(m.slices) == 0 {
			c.dispute("round %d: %s does not report its average", round, by.Node())
		}
		var group []string
		for k, block := range m.slices {
			var here []string
			least, most, sum := math.Inf(1), 0.0, 0.0
			for place, id := range ids {
				share := block[place*lanes]
				if math.Abs(share) < exact {
					continue
				}
				sum += share
				here = append(here, id.Node())
				all[id] = max(all[id], share)
				least, most = min(least, share), max(most, share)
				steps, of := block[place*lanes+1]/share, math.Round(block[place*lanes+2]/share)
				switch a, is := c.arrivals[key{round, id}]; {
				case share < 0 || share > 1+exact:
					c.dispute("round %d: the average of %s has %.3g times the work of %s, which is no possible share", round, by.Node(), share, id.Node())
				case of != float64(round%roundsModulo):
					c.dispute("round %d: the average of %s contains work of %s from round %g", round, by.Node(), id.Node(), of)
				case !is:
					c.dispute("round %d: the average of %s contains work of %s, but %[3]s has not reported its arrival", round, by.Node(), id.Node())
				case math.Abs(steps-float64(a.steps)) > 0.5:
					c.dispute("round %d: %s reports %s, but its work in the average of %s has %.3g", round, id.Node(), errs.Count(a.steps, "inner step"), by.Node(), steps)
				}
			}
			if most > least*(1+exact)+exact {
				c.dispute("round %d: the average of %s has unequal shares, from %.3g to %.3g", round, by.Node(), least, most)
			}
			// An average that is divided by another number than that of its parts.
			if math.Abs(sum-1) > 2*exact {
				c.dispute("round %d: the shares in the average of %s add up to %.3g, not to 1", round, by.Node(), sum)
			}
			if k == 0 {
				group = here
			} else if strings.Join(here, " ") != strings.Join(group, " ") {
				c.dispute("round %d: parts of the average of %s contain the work of different workers: one part that of %s, another part that of %s", round, by.Node(), strings.Join(group, " "), strings.Join(here, " "))
			}
		}
		if slices.ContainsFunc(m.worlds, func(n int) bool { return n != len(group) }) {
			c.dispute("round %d: the average of %s has the work of %s, but its parts are averages of %s workers", round, by.Node(), errs.Count(len(group), "worker"), strings.Trim(strings.ReplaceAll(fmt.Sprint(m.worlds), " ", ", "), "[]"))
		}
		if a, is := c.arrivals[key{round, by}]; is && a.steps > 0 && !slices.Contains(group, by.Node()) && len(m.slices) > 0 {
			c.dispute("round %d: %s reports that it took part with %s, but its own average lacks its work", round, by.Node(), errs.Count(a.steps, "inner step"))
		}
		if text := strings.Join(group, " "); len(m.slices) > 0 && !slices.Contains(groups, text) {
			groups = append(groups, text)
		}
	}
	if len(groups) > 1 {
		c.dispute("round %d: workers averaged in different groups: %s", round, strings.Join(groups, "; "))
	}
	return all
}
