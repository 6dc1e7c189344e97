package policy

import "slices"

// helpers is the most donors that help a fetch's first donor.
const helpers = 2

// memberFetch is the fetch that a member is busy with.
type memberFetch struct {
	donor    ID
	failures int  // consecutive failures, one donor after the other
	resync   bool // it is for an outer step that the member missed
	// agreed and outerSteps are copied from the Fetch.
	agreed     bool
	outerSteps int
}

// fetch sends a member to a donor: of the members that hold the current state,
// the one that has served least since the last round, and the lowest ID among
// equals. A donor that has just failed is asked again only if it is the only
// one.
func (m *Machine) fetch(w *member, why Reason) {
	better := func(a, b *member) bool {
		if why.Lost != nil && (a.id == *why.Lost) != (b.id == *why.Lost) {
			return b.id == *why.Lost
		}
		return a.round.served < b.round.served
	}
	donors := make([]*member, 0, 2+helpers) // the best, in order
	agreed := m.orphaned(w)
	for _, d := range m.members {
		if d == w || !m.holds(d) || !agreed && !m.neighbours(d, w) {
			continue
		}
		at := len(donors)
		for at > 0 && better(d, donors[at-1]) {
			at--
		}
		if at <= helpers {
			donors = slices.Insert(donors, at, d)
			donors = donors[:min(len(donors), 1+helpers)]
		}
		if len(donors) > helpers {
			if least := donors[helpers]; least.round.served == 0 && (why.Lost == nil || least.id != *why.Lost) {
				break // nobody is better than that
			}
		}
	}
	if len(donors) == 0 {
		m.becomeFinished(false, Reason{Rule: RuleStateLost, Members: len(m.members)})
		return
	}
	if w.learner && m.cfg.Join == JoinBlocking {
		donors = donors[:1]
	}
	donor := donors[0]
	donor.round.served++
	w.work, w.fetch.donor, w.fetch.agreed, w.fetch.outerSteps = fetching, donor.id, agreed, m.OuterSteps()
	m.emit(&Fetch{ID: w.id, From: donor.id, Helpers: ids(donors[1:]), Round: m.round.number, OuterSteps: m.OuterSteps(), Agreed: agreed, Reason: why})
}

// holds reports whether a member may give the current state away.
func (m *Machine) holds(w *member) bool { return w.outerSteps == m.OuterSteps() && w.work != fetching }

// neighbours reports whether two workers share their outer states.
func (m *Machine) neighbours(a, b *member) bool {
	return !m.cfg.Grouping.Regional() || m.cfg.Grouping.Of(a.id) == m.cfg.Grouping.Of(b.id)
}

// orphaned reports whether no other worker of a worker's region holds the
// region's current state. Then only the last state that all regions agreed on
// is left.
func (m *Machine) orphaned(w *member) bool {
	return m.cfg.Grouping.Regional() && !slices.ContainsFunc(m.members, func(d *member) bool { return d != w && m.holds(d) && m.neighbours(d, w) })
}

// fetchLimit is the number of consecutive fetches that a member may fail before
// the others stop waiting for it.
const fetchLimit = 5

func (m *Machine) fetchFailed(now Time, w *member) {
	failed := w.fetch.donor
	why := Reason{Rule: RuleFetchFailed, Lost: &failed}
	if w.fetch.failures++; w.fetch.failures == fetchLimit {
		why.Misses, why.Limit = fetchLimit, fetchLimit
		m.evict(w, why)
		m.settle(now)
		return
	}
	m.fetch(w, why)
}

func (m *Machine) fetched(now Time, e StateFetched) {
	w := m.find(e.ID)
	if w == nil || w.work != fetching || e.Agreed != w.fetch.agreed { // it has another order by now
		return
	}
	// The agreed state is also the region's state until the region has taken a
	// step.
	if e.OuterSteps < m.OuterSteps() || e.Agreed && w.fetch.outerSteps < m.OuterSteps() {
		m.fetch(w, Reason{Rule: RuleStaleFetch})
		return
	}
	w.outerSteps = m.OuterSteps()
	m.emit(&Fetched{ID: w.id, Round: m.round.number, Agreed: e.Agreed, Reason: Reason{Rule: RuleState}})
	if w.fetch.resync {
		m.giveCredit(now, w)
	}
	m.begin(now, w, RuleState)
	if w.learner && m.round.letIn {
		m.settle(now)
	}
}

// resync tells a member to fetch the outer steps that it has missed.
func (m *Machine) resync(w *member) {
	m.promote(w)
	w.fetch = memberFetch{resync: true}
	m.fetch(w, Reason{Rule: RuleResync, Misses: w.misses})
}
