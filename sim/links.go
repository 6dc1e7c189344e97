package sim

import (
	"math"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
	"testbed/allreduce/ringorder"
	"testbed/allreduce/tuner"
	"testbed/policy"
	"testbed/policy/worker"
	"testbed/scenarios/resolved"
	"testbed/shaping"
)

// Costs are the real times that processors and protocols of a given machine add
// to the times of the network. Package calibrate measures them. The zero value
// is a machine that computes in no time.
type Costs struct {
	// Step is added to every inner step: the lateness of its timer.
	Step time.Duration
	// Message is added to every control message on its way.
	Message time.Duration
	// Join is added to the connection of a worker that joins late.
	Join time.Duration
	// Reduce is added to every reduction of two or more.
	Reduce time.Duration
	// Hop is added to every hop of a reduction.
	Hop time.Duration
	// ReduceByte, in nanoseconds, is added to a reduction for every byte that
	// its participants send together, because they share the processors.
	ReduceByte float64
	// Dial is added to a reduction in which a participant has to connect to its
	// successor: the cryptography of the handshakes.
	Dial time.Duration
	// Fetch is added to every state fetch, and FetchByte nanoseconds for each
	// of its bytes.
	Fetch     time.Duration
	FetchByte float64
	// Efficiency is the share of its goodput that a link reaches during a
	// reduction; 0 means all of it.
	Efficiency float64
}

// Sizes and shares of the transport, in bytes.
const (
	// compressedPercent is the size of a compressed state in percent: signs and
	// exponents compress, mantissas do not.
	compressedPercent = 85
	// stateValue is the size of a value of the outer state: parameter and
	// momentum.
	stateValue = 8
)

// coordinator is the coordinator's position in the plan. Workers follow it. The
// store, if there is one, comes last.
const coordinator = 0

// links computes durations on a plan's links. Transfers do not share bandwidth,
// except for those of one reduction, and as withHalf describes.
type links struct {
	plan  *shaping.Plan // the links as they are now
	costs Costs
	// The all-reduce.
	algorithm   allreduce.Algorithm
	ways        ringorder.Ways // by which the ring is ordered
	parameters  int            // of the state
	lengths     []int          // number of exchanged parameters, by round, in turn
	length      int            // number of parameters that this round exchanges
	format      allreduce.Format
	shortPaths  bool  // as in quicring.Config
	connections int   // to every peer; 0: as many as the tuner chooses
	groupOf     []int // by node; hierarchical only
	entropy     entropy.Mode
	coded       bool // codes are shortened
	// share of the plain bytes that a reduction sends, if known; 0: it follows
	// from coded.
	share  float64
	halved int // the node that has half of its link; the coordinator: no node

	// Results computed before.
	burstDelays map[burst]time.Duration
	tunedCounts map[steadyPath]int
}

// newLinks computes with the links of a scenario and the costs of a machine.
func newLinks(r *resolved.Scenario, costs Costs) *links {
	a := r.Reduction
	n := &links{
		shortPaths: r.Plan.ShortPaths(r.WorkerNodes(), allreduce.ShortRTT),
		plan:       r.Plan, costs: costs,
		parameters: r.Train.Shard(r.Parameters), format: a.Format, connections: a.Connections,
		ways:    ringorder.Planned(a, r.IDs(), r.Plan),
		entropy: a.Entropy, coded: a.Entropy == entropy.On,
		burstDelays: map[burst]time.Duration{}, tunedCounts: map[steadyPath]int{},
	}
	for _, f := range r.Exchange.Fragments {
		n.lengths = append(n.lengths, f.Len)
	}
	n.beginRound(1)
	n.algorithm, _ = allreduce.ParseAlgorithm(a.Algorithm) // the scenario is valid
	if !n.format.HasCodes() {
		n.entropy = entropy.Off // nothing can be shortened
	}
	if n.algorithm == allreduce.Hierarchical {
		n.groupOf = append([]int{-1}, r.LinkGroups...) // the plan has the coordinator first
	}
	return n
}

// beginRound sets the number of parameters that a round exchanges.
func (n *links) beginRound(round int) { n.length = n.exchanged(round) }

func (n *links) exchanged(round int) int { return n.lengths[(round-1)%len(n.lengths)] }

// oneWay is how long a control message is on its way.
func (n *links) oneWay(from, to int) time.Duration {
	return time.Duration(n.plan.Paths[from][to].OneWayDelay) + n.costs.Message
}

func (n *links) delay(from, to int) time.Duration {
	return time.Duration(n.plan.Paths[from][to].OneWayDelay)
}

// hop is the delay between two participants, for the last packet of so many
// bytes.
func (n *links) hop(from, to int, bytes byteCount) time.Duration {
	return n.delay(from, to) + n.burstDelay(from, to, bytes) + n.costs.Hop
}

func (n *links) rtt(a, b int) time.Duration { return n.delay(a, b) + n.delay(b, a) }

func (n *links) cut(from, to int) bool {
	return n.plan.Paths[from][to].Cut || n.plan.Paths[from][to].Refused
}

// windowPackets is about the number of packets that Reno keeps in flight if one
// packet in 1/p is lost at random, times √p: √(3/2) (Mathis et al. 1997) for
// Reno's halving, and more for quic-go's gentler backoff by 0.7,
// √((1+0.7)/(2·(1-0.7))).
const windowPackets = 1.68

// access is the rate that the access links on a path leave to it.
func (n *links) access(from, to int) byteRate {
	rate := goodput(n.plan.Rate(from, to))
	if from == n.halved && from != coordinator {
		rate = (rate + 1) / 2
	}
	return rate
}

// path is the rate of a bulk transfer on a path with losses, over so many
// connections; 0: as many as the tuner chooses.
func (n *links) path(from, to, connections int) byteRate {
	rate := n.access(from, to)
	loss, rtt := float64(n.plan.Paths[from][to].MeanLoss()), n.rtt(from, to)
	if loss <= 0 || loss >= 1 || rtt <= 0 {
		return rate
	}
	window := windowPackets / math.Sqrt(loss) * streamData
	if connections == 0 {
		connections = n.tuned(n.steady(from, to, window, tuner.MaxTuned))
	}
	return rate.limited(max(1, byteRate(window*float64(connections)/rtt.Seconds())))
}

// chunk returns the bytes of a chunk of the vector and of a piece of it, with
// their headers, when so many ranks reduce.
func (n *links) chunk(ranks int) (chunk, piece byteCount) {
	_, values := allreduce.Chunk(n.length, ranks, 0)
	longest := allreduce.DefaultPieceValues(n.length, ranks, n.format.Block, n.shortPaths)
	for p := range allreduce.Pieces(values, longest) {
		lo, hi := allreduce.Piece(values, longest, p)
		chunk += n.piece(hi - lo)
	}
	return chunk, n.piece(min(values, longest))
}

// piece is the bytes of a piece of so many values, with its header.
func (n *links) piece(values int) byteCount {
	bytes := allreduce.HeaderLen + n.encoded(values)
	switch {
	case n.share > 0:
		bytes = byteCount(float64(bytes) * n.share)
	case n.coded:
		bytes -= n.saved(values)
	}
	return bytes
}

// encoded is the bytes of so many values as the all-reduce sends them.
func (n *links) encoded(values int) byteCount {
	return byteCount(n.format.EncodedLen(values))
}

// outcomes is the size in bytes of the outcomes of so many outer steps after
// one.
func (n *links) outcomes(after, steps int) (bytes byteCount) {
	for round := after + 1; round <= after+steps; round++ {
		bytes += n.encoded(n.exchanged(round))
	}
	return bytes
}

// state is the bytes of the outer state.
func (n *links) state() byteCount { return stateValue * byteCount(n.parameters) }

// withHalf computes with half of a node's link: other traffic has the rest.
func (n *links) withHalf(node int, compute func()) {
	n.halved = node
	compute()
	n.halved = coordinator
}

// compressed is the size of a state on the wire.
func compressed(bytes byteCount) byteCount { return bytes / 100 * compressedPercent }

// sent is the number of bytes that every rank sends in a reduction.
func (n *links) sent(ranks int) byteCount {
	chunk, _ := n.chunk(ranks)
	return 2 * byteCount(ranks-1) * chunk
}

// reduce returns the time at which each rank holds the outcome. ranks are the
// participants' positions in the plan, in the order of the ring. begin is the
// time at which each begins. cold reports whether rank i has to connect to rank
// j first.
func (n *links) reduce(ranks []int, begin []time.Duration, cold func(i, j int) bool) []time.Duration {
	end := make([]time.Duration, len(ranks))
	if len(ranks) == 1 {
		copy(end, begin)
		return end
	}
	switch n.algorithm {
	case allreduce.Direct:
		n.direct(ranks, begin, cold, end)
	case allreduce.Hierarchical:
		n.grouped(ranks, begin, cold, end)
	default:
		n.ring(ranks, begin, cold, end)
	}
	extra := n.costs.Reduce + time.Duration(n.costs.ReduceByte*float64(byteCount(len(ranks))*n.sent(len(ranks))))
	for i := range ranks {
		end[i] += extra
	}
	return end
}

// transfer is the duration of a transfer of so many bytes of a reduction over a
// path, from the first byte to the last.
func (n *links) transfer(from, to int, bytes byteCount) time.Duration {
	rate := n.reducePath(from, to)
	return rate.serialisation(bytes) + n.stalls(from, to, bytes, rate, n.connections)
}

// reducePath is the rate of a path in a reduction.
func (n *links) reducePath(from, to int) byteRate {
	return n.used(n.path(from, to, n.connections))
}

// used is the part of a rate that a reduction uses.
func (n *links) used(rate byteRate) byteRate {
	if e := n.costs.Efficiency; e > 0 && rate > 0 {
		rate = max(1, byteRate(float64(rate)*e))
	}
	return rate
}

// inOrder returns participants in the order of their ring, as in a real run: by
// the ways at the beginning of the run. Without such an order, it is that of
// the ids.
func (n *links) inOrder(participants []policy.ID) []policy.ID {
	if n.ways.Known() {
		if ring, err := n.ways.Order(participants); err == nil {
			return ring.Order
		}
	}
	return participants
}

// setUp is the time that rank i needs, after the order to reduce, before its
// first bytes to rank j are sent as fast as later ones.
func (n *links) setUp(i, j int, bytes byteCount, rate byteRate, cold bool) time.Duration {
	if !cold {
		return 0
	}
	if n.endsSlowStart(i, j) {
		bytes = min(bytes, jitterWindow) // every transfer includes the later waits
	}
	return n.rtt(i, j) + n.costs.Dial + slowStart(bytes, rate, n.rtt(i, j))
}

// ring follows the first and the last piece of every chunk around the ring. A
// rank passes on a piece when it has the whole piece and its link is free.
func (n *links) ring(ranks []int, begin []time.Duration, cold func(i, j int) bool, end []time.Duration) {
	type span struct{ first, last time.Duration }
	size := len(ranks)
	chunk, piece := n.chunk(size)
	have, next := make([]span, size), make([]span, size)
	chunks, pieces, free := make([]time.Duration, size), make([]time.Duration, size), make([]time.Duration, size)
	hops := make([]time.Duration, size)
	for i, from := range ranks {
		to := ranks[(i+1)%size]
		rate := n.reducePath(from, to)
		chunks[i], pieces[i], hops[i] = n.transfer(from, to, chunk), rate.serialisation(piece), n.hop(from, to, chunk)
		ready := begin[i] + n.setUp(from, to, chunk, rate, cold(from, to))
		have[i] = span{ready, ready}
	}
	for range 2 * (size - 1) {
		for i, d := range hops {
			j := (i + 1) % size
			out := max(have[i].first, free[i])
			free[i] = max(out+chunks[i], have[i].last+pieces[i])
			// Frames wait for a receiver that has not begun.
			next[j] = span{max(out+pieces[i]+d, begin[j]), max(free[i]+d, begin[j])}
		}
		have, next = next, have
	}
	for i := range ranks {
		end[i] = max(have[i].last, free[i])
	}
}

// direct simulates the direct algorithm: every rank sends each chunk to its
// owner, and every owner sends the mean to all. A rank's link carries its
// chunks for all owners side by side. The pieces of the mean follow behind
// them.
func (n *links) direct(ranks []int, begin []time.Duration, cold func(i, j int) bool, end []time.Duration) {
	size := len(ranks)
	chunk, piece := n.chunk(size)
	others := byteCount(size - 1)
	busy := func(i, j int, bytes byteCount) time.Duration {
		// All others share a path at the sender and at the receiver. The path has the
		// losses of this pair.
		return max(n.used(n.access(i, j)).serialisation(others*bytes), n.transfer(i, j, bytes))
	}
	owned, out := make([]time.Duration, size), make([]time.Duration, size)
	for i, from := range ranks {
		for j, to := range ranks {
			if i == j {
				continue
			}
			took := n.setUp(from, to, chunk, n.reducePath(from, to), cold(from, to)) + busy(from, to, chunk)
			out[i] = max(out[i], begin[i]+took)
			owned[j] = max(owned[j], begin[j], begin[i]+took+n.hop(from, to, chunk))
		}
	}
	for i, to := range ranks {
		for j, from := range ranks {
			if i != j {
				last := max(owned[j]+busy(from, to, piece), out[j]+busy(from, to, chunk))
				end[i] = max(end[i], last+n.hop(from, to, chunk))
			}
		}
	}
}

// connected returns the pairs of nodes that are connected after a reduction of
// these nodes. Connections to other nodes close.
func (n *links) connected(nodes []int) map[[2]int]bool {
	pairs := map[[2]int]bool{}
	groups := n.groups(nodes)
	for k, from := range nodes {
		switch n.algorithm {
		case allreduce.Ring:
			pairs[[2]int{from, nodes[(k+1)%len(nodes)]}] = true
		case allreduce.Hierarchical:
			for _, p := range groups.Peers(k) {
				pairs[[2]int{from, nodes[p]}] = true
			}
		default:
			for _, to := range nodes {
				pairs[[2]int{from, to}] = true
			}
		}
	}
	return pairs
}

// fetchRequest is the time from a worker's decision to fetch until its donor
// has the request.
func (n *links) fetchRequest(asker, donor int) time.Duration {
	return n.rtt(asker, donor) + n.delay(asker, donor) // the handshake goes first
}

// fetchOutcomes is the time from the donor's receiving the request until the
// asker has so many bytes of outcomes.
func (n *links) fetchOutcomes(donor, asker int, bytes byteCount) time.Duration {
	rate := n.path(donor, asker, 1)
	return slowStart(bytes, rate, n.rtt(donor, asker)) + rate.serialisation(bytes) + n.stalls(donor, asker, bytes, rate, 1) +
		n.delay(donor, asker) + n.burstDelay(donor, asker, bytes) + n.fetchCost(bytes)
}

func (n *links) fetchCost(bytes byteCount) time.Duration {
	return n.costs.Fetch + time.Duration(n.costs.FetchByte*float64(bytes))
}

// fetchState is the time from the first donor's receiving the request until the
// asker has the whole state, from all donors. First comes a header, then the
// parts, each requested when the one before has arrived. The asker connects to
// the other donors first. A region's state has a third vector, besides
// parameters and momentum.
func (n *links) fetchState(donors []int, asker int, regional bool) time.Duration {
	bytes := n.state()
	if regional {
		bytes += bytes / 2
	}
	if bytes <= worker.RequestBytes {
		donors = donors[:1]
	}
	share := goodput(n.plan.Nodes[asker].RateDown) / byteRate(len(donors))
	// The first free donor takes the next request.
	free, done := make([]time.Duration, len(donors)), time.Duration(0)
	for k, d := range donors {
		free[k] = n.delay(donors[0], asker)
		if k > 0 {
			free[k] += n.rtt(asker, d)
		}
		free[k] += slowStart(compressed(min(bytes, worker.RequestBytes)), n.path(d, asker, 1).limited(share), n.rtt(d, asker))
	}
	for left := bytes; left > 0; left -= worker.RequestBytes {
		k := 0
		for j := range free {
			if free[j] < free[k] {
				k = j
			}
		}
		d := donors[k]
		bytes, rate := compressed(min(left, worker.RequestBytes)), n.path(d, asker, 1).limited(share)
		free[k] += n.rtt(d, asker) + rate.serialisation(bytes) + n.stalls(d, asker, bytes, rate, 1) + n.burstDelay(d, asker, bytes)
		done = max(done, free[k])
	}
	return done + n.fetchCost(bytes)
}

// hello is the time from a worker's start until the coordinator hears of it: a
// handshake, then its first message.
func (n *links) hello(worker int) time.Duration {
	return n.rtt(worker, coordinator) + n.oneWay(worker, coordinator) + n.costs.Join
}

// recovery is the time at which a packet arrives that was lost because its path
// was cut, once the path is open again. QUIC probes after a time-out that
// doubles with each probe (RFC 9002, section 6.2). The first time-out is twice
// the one-way delays plus 25 ms.
func (n *links) recovery(from, to int, sent, open time.Duration) time.Duration {
	const maxAckDelay = 25 * time.Millisecond
	probe := max(n.rtt(from, to)+maxAckDelay, time.Millisecond)
	at := sent + probe
	for at < open {
		probe *= 2
		at += probe
	}
	return at + n.oneWay(from, to)
}
