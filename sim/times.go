package sim

import (
	"slices"
	"time"

	"testbed/policy"
	"testbed/scenarios/resolved"
)

// Times are the undisturbed durations, in real time, of single operations on
// the links of a scenario's plan. RunLinks is made of them. They serve for
// comparison with measurements one by one.
type Times struct {
	links *links
	nodes map[policy.ID]int
}

// NewTimes computes with the links of a scenario and the costs of a machine. If
// the all-reduce decides by itself whether to shorten codes, NewTimes assumes
// that they are not shortened.
func NewTimes(r *resolved.Scenario, costs Costs) *Times {
	t := &Times{links: newLinks(r, costs), nodes: map[policy.ID]int{}}
	for i, w := range r.Workers {
		t.nodes[w.ID] = i + 1
	}
	return t
}

// With returns the same links with other costs.
func (t *Times) With(costs Costs) *Times {
	other := t.copied()
	other.links.costs = costs
	return other
}

// Sending returns the same links for reductions in which so many participants
// send so many bytes together, as in a record. The bytes depend on the values,
// because entropy coding does.
func (t *Times) Sending(participants int, bytes int64) *Times {
	other := t.copied()
	other.links.coded, other.links.share = false, 0
	if plain := other.Sent(participants); plain > 0 {
		other.links.share = float64(bytes) / float64(plain)
	}
	return other
}

func (t *Times) copied() *Times {
	links := *t.links
	return &Times{links: &links, nodes: t.nodes}
}

// Control is the time of two control messages, to a worker and back.
func (t *Times) Control(id policy.ID) time.Duration {
	return t.links.oneWay(coordinator, t.nodes[id]) + t.links.oneWay(t.nodes[id], coordinator)
}

// Hello is the time from the start of a worker until the coordinator has its
// first message.
func (t *Times) Hello(id policy.ID) time.Duration { return t.links.hello(t.nodes[id]) }

// Reduction is the time of a reduction in which all begin together. before are
// the participants of the reduction before, which are connected.
func (t *Times) Reduction(participants, before []policy.ID) time.Duration {
	warm := t.links.connected(t.ring(before))
	ends := t.links.reduce(t.ring(participants), make([]time.Duration, len(participants)), func(i, j int) bool { return !warm[[2]int{i, j}] })
	return slices.Max(ends)
}

func (t *Times) of(ids []policy.ID) []int {
	nodes := make([]int, len(ids))
	for k, id := range ids {
		nodes[k] = t.nodes[id]
	}
	return nodes
}

// ring are the nodes of participants in the order of their ring, as in
// RunLinks.
func (t *Times) ring(ids []policy.ID) []int { return t.of(t.links.inOrder(ids)) }

// Hops is the number of consecutive hops in a reduction of so many
// participants.
func (t *Times) Hops(participants int) int { return t.links.algorithm.Hops(participants) }

// Sent is the number of bytes that so many participants send together in a
// reduction.
func (t *Times) Sent(participants int) int64 {
	if participants < 2 {
		return 0
	}
	return int64(participants) * int64(t.links.sent(participants))
}

// Fetch is the time of a state fetch, from a worker's decision until it has the
// outcomes of so many outer steps. Without outcomes, it is the time of the
// whole state, which the first donor sends with the help of the others.
func (t *Times) Fetch(asker policy.ID, donors []policy.ID, outcomes int) time.Duration {
	a, from := t.nodes[asker], t.of(donors)
	request := t.links.fetchRequest(a, from[0])
	if outcomes > 0 {
		return request + t.links.fetchOutcomes(from[0], a, t.links.outcomes(0, outcomes))
	}
	return request + t.links.fetchState(from, a, false)
}

// FetchBytes is the size of a fetch in bytes: of so many outcomes or, if there
// are none, of the whole state, before compression.
func (t *Times) FetchBytes(outcomes int) int64 {
	if outcomes > 0 {
		return int64(t.links.outcomes(0, outcomes))
	}
	return int64(t.links.state())
}
