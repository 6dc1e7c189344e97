package policy

import "slices"

// helpers is how many donors may help the one that a member fetches from.
const helpers = 2

// fetch sends a member to a donor: of the members that hold the current state,
// the one that has served least since the last round, and the lowest ID among
// equals. A donor that has just failed is asked again only if it is the only
// one.
func (m *Machine) fetch(w *member, why Reason) {
	better := func(a, b *member) bool {
		if why.Lost != nil && (a.id == *why.Lost) != (b.id == *why.Lost) {
			return b.id == *why.Lost
		}
		return a.fetches < b.fetches
	}
	donors := make([]*member, 0, 2+helpers) // the best, in order
	current := m.OuterSteps()
	for _, d := range m.members {
		if d == w || d.outerSteps != current || d.work == fetching {
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
			if least := donors[helpers]; least.fetches == 0 && (why.Lost == nil || least.id != *why.Lost) {
				break // nobody is better than that
			}
		}
	}
	if len(donors) == 0 {
		m.finish(false, Reason{Rule: RuleStateLost, Members: len(m.members)})
		return
	}
	donor := donors[0]
	donor.fetches++
	w.work, w.donor = fetching, donor.id
	m.emit(&Fetch{ID: w.id, From: donor.id, Helpers: ids(donors[1:]), Round: m.round, OuterSteps: m.OuterSteps(), Reason: why})
}

// fetchLimit is the number of fetches in a row that a member may fail before
// the others wait for it no more.
const fetchLimit = 5

func (m *Machine) fetchFailed(now Time, w *member) {
	failed := w.donor
	why := Reason{Rule: RuleFetchFailed, Lost: &failed}
	if w.failures++; w.failures == fetchLimit {
		why.Misses, why.Limit = w.failures, fetchLimit
		m.evict(w, why)
		m.settle(now)
		return
	}
	m.fetch(w, why)
}

func (m *Machine) fetched(now Time, e StateFetched) {
	w := m.find(e.ID)
	if w == nil || w.work != fetching {
		return
	}
	if e.OuterSteps < m.OuterSteps() {
		m.fetch(w, Reason{Rule: RuleStaleFetch})
		return
	}
	w.outerSteps, w.failures = m.OuterSteps(), 0
	m.emit(&Fetched{ID: w.id, Round: m.round, Reason: Reason{Rule: RuleState}})
	if w.resync {
		w.lag = now - m.roundStart
		m.lagging = append(m.lagging, w)
	}
	m.begin(w, RuleState)
}

// resync has a member get what it has missed.
func (m *Machine) resync(w *member) {
	m.activate(w)
	w.resync, w.finishing = true, false
	m.fetch(w, Reason{Rule: RuleResync, Misses: w.misses})
}
