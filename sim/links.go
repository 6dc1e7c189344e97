package sim

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"testbed/allreduce"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
)

// Costs are what processors and protocols add to the times of the network on a
// given machine, in real time. Package calibrate measures them. The zero value
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
	// Efficiency is the share of its goodput that a link is kept busy with
	// during a reduction; 0 means all of it.
	Efficiency float64
}

// Sizes and shares of the transport, in bytes.
const (
	// datagram is the payload of a full UDP datagram, quicData what is left of
	// it for a stream: 1452 less the short header, the frame's header and the
	// AEAD's tag.
	datagram = 1452
	quicData = datagram - 32
	// frame is a full datagram as links count it, with headers down to
	// Ethernet's.
	frame = datagram + 8 + 20 + 14
	// compressedPercent of the state is left of it on the wire: signs and
	// exponents compress, mantissas do not.
	compressedPercent = 85
	// firstWindow is what a new connection may have in flight.
	firstWindow = 32 * datagram
	// stateValue is what a value of the outer state takes: parameter and
	// momentum.
	stateValue = 8
)

// perSecond is the unit that rates count in.
const perSecond = int64(time.Second)

// network computes how long things take on a plan's links. What several
// transfers take from each other does not count, but for those of one reduction.
type network struct {
	plan  *shaping.Plan
	costs Costs
	scale float64
	// The all-reduce.
	algorithm           allreduce.Algorithm
	ordered             bool // the ring is in the best order, not that of the ids
	length, block, bits int
	near                bool  // as in quicring.Config
	connections         int   // 0 is what the ring finds out
	groupOf             []int // by node; hierarchical only
	entropy             string
	coded               bool // codes are shortened

	swells map[swelling]time.Duration // known ones
}

func newNetwork(s *scenarios.Scenario, costs Costs) (network, error) {
	plan, err := s.Plan()
	if err != nil {
		return network{}, err
	}
	a := s.Real.AllReduce
	n := network{
		near: plan.Near(s.Nodes()[1:]), // without the coordinator
		plan: plan, costs: costs, scale: s.Real.TimeScale,
		length: s.Real.Parameters, block: a.Block, bits: a.Bits, connections: a.Connections,
		ordered: a.Order == scenarios.OrderPlanned || a.Order == scenarios.OrderMeasured,
		entropy: a.Entropy, coded: a.Entropy == entropyOn,
		swells: map[swelling]time.Duration{},
	}
	n.algorithm, _ = allreduce.ParseAlgorithm(a.Algorithm) // the scenario is valid
	if n.algorithm == allreduce.Hierarchical {
		ids := make([]policy.ID, len(s.Workers))
		for i, w := range s.Workers {
			ids[i] = w.ID
		}
		n.groupOf = append([]int{-1}, s.Groups(ids)...) // Nodes has the coordinator first
	}
	return n, nil
}

// oneWay is how long a control message is on its way.
func (n *network) oneWay(from, to int) time.Duration {
	return time.Duration(n.plan.Paths[from][to].OneWayDelay) + n.costs.Message
}

func (n *network) delay(from, to int) time.Duration {
	return time.Duration(n.plan.Paths[from][to].OneWayDelay)
}

// hop is the delay between two participants, for the last packet of so many
// bytes.
func (n *network) hop(from, to int, bytes int64) time.Duration {
	return n.delay(from, to) + n.swell(from, to, bytes) + n.costs.Hop
}

func (n *network) rtt(a, b int) time.Duration { return n.delay(a, b) + n.delay(b, a) }

func (n *network) cut(from, to int) bool {
	return n.plan.Paths[from][to].Cut || n.plan.Paths[from][to].Refused
}

// goodput is what is left for data of a rate in bits per second, in bytes per
// second; 0 is unlimited.
func goodput(r shaping.Rate) int64 { return int64(r) / 8 * quicData / frame }

// slower is the lower of two rates, of which 0 is unlimited.
func slower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// on is how long bytes take at a rate in bytes per second.
func on(bytes, rate int64) time.Duration {
	if rate == 0 {
		return 0
	}
	// Split, so that no product leaves 64 bits.
	return time.Duration(bytes/rate*perSecond + int64(float64(bytes%rate)/float64(rate)*float64(perSecond)))
}

// windowPackets is about what Reno keeps in flight where one packet in 1/p is
// lost at random, times √p: √(3/2) (Mathis et al. 1997) for Reno's halving, and
// more for quic-go's gentler backoff by 0.7, √((1+0.7)/(2·(1-0.7))).
const windowPackets = 1.68

// most is the number of connections that a link grows to by itself.
const most = 64

// access is what the access links leave to a path, in bytes per second.
func (n *network) access(from, to int) int64 {
	return slower(goodput(n.plan.Nodes[from].RateUp), goodput(n.plan.Nodes[to].RateDown))
}

// path is what a bulk transfer gets of a path: its rate in bytes per second (0:
// unlimited), as losses leave it to so many connections; 0 are as many as they
// ask for.
func (n *network) path(from, to, connections int) int64 {
	rate := n.access(from, to)
	loss, rtt := float64(n.plan.Paths[from][to].MeanLoss()), n.rtt(from, to)
	if loss <= 0 || loss >= 1 || rtt <= 0 {
		return rate
	}
	window := windowPackets / math.Sqrt(loss) * quicData * float64(cmp.Or(connections, most))
	return slower(rate, max(1, int64(window/rtt.Seconds())))
}

// warmUp is by how much longer than its rate a new connection takes for so
// many bytes: its window doubles with every round trip, and until it holds what
// the path does, every window is followed by a wait.
func warmUp(bytes, rate int64, rtt time.Duration) time.Duration {
	var wait time.Duration
	window := int64(firstWindow)
	for sent := window; sent < bytes; sent += window {
		busy := on(window, rate)
		if rate != 0 && busy >= rtt {
			break
		}
		wait += rtt - busy
		window *= 2
	}
	return wait
}

// chunk returns the bytes of a chunk of the vector and of a piece of it, with
// their headers, when so many ranks reduce.
func (n *network) chunk(ranks int) (chunk, piece int64) {
	_, values := allreduce.Chunk(n.length, ranks, 0)
	most := allreduce.DefaultPieceValues(n.length, ranks, n.block, n.near)
	for p := range allreduce.Pieces(values, most) {
		lo, hi := allreduce.Piece(values, most, p)
		chunk += n.piece(hi - lo)
	}
	return chunk, n.piece(min(values, most))
}

// piece is the bytes of a piece of so many values, with its header.
func (n *network) piece(values int) int64 {
	bytes := allreduce.HeaderLen + n.encoded(values)
	if n.coded {
		bytes -= n.saved(values)
	}
	return bytes
}

// encoded is the bytes of so many values in the all-reduce's codes.
func (n *network) encoded(values int) int64 {
	return int64(allreduce.Header{Count: uint32(values), Block: uint32(n.block), Bits: uint8(n.bits)}.PlainLen())
}

// outcome is the bytes of the outcome of a reduction.
func (n *network) outcome() int64 { return n.encoded(n.length) }

// state is the bytes of the outer state.
func (n *network) state() int64 { return stateValue * int64(n.length) }

// sent is what every rank sends in a reduction.
func (n *network) sent(ranks int) int64 {
	chunk, _ := n.chunk(ranks)
	return 2 * int64(ranks-1) * chunk
}

// reduction returns when each of the ranks holds the outcome. ranks are the
// participants' positions in the plan, in the order of the ring; begin is when
// each begins; cold says whether rank i has to connect to rank j first.
func (n *network) reduction(ranks []int, begin []time.Duration, cold func(i, j int) bool) []time.Duration {
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
	extra := n.costs.Reduce + time.Duration(n.costs.ReduceByte*float64(int64(len(ranks))*n.sent(len(ranks))))
	for i := range ranks {
		end[i] += extra
	}
	return end
}

// carry is how long a path takes for so many bytes of a reduction.
func (n *network) carry(from, to int, bytes int64) time.Duration {
	rate := n.reducePath(from, to)
	return on(bytes, rate) + n.stalls(from, to, bytes, rate, n.connections)
}

// reducePath is the rate of a path in a reduction.
func (n *network) reducePath(from, to int) int64 {
	return n.share(n.path(from, to, n.connections))
}

func (n *network) share(rate int64) int64 {
	if e := n.costs.Efficiency; e > 0 && rate > 0 {
		rate = max(1, int64(float64(rate)*e))
	}
	return rate
}

// order returns the nodes in the order of their ring: by one-way delays, as a
// real run orders them.
func (n *network) order(nodes []int) ([]int, error) {
	cost := make([][]float64, len(nodes))
	for i, from := range nodes {
		for _, to := range nodes {
			cost[i] = append(cost[i], n.delay(from, to).Seconds())
		}
	}
	tour, err := allreduce.OrderRing(cost, allreduce.Sum)
	if err != nil {
		return nil, fmt.Errorf("ordering the ring: %w", err)
	}
	ordered := make([]int, len(nodes))
	for k, i := range tour.Order {
		ordered[k] = nodes[i]
	}
	return ordered, nil
}

// setUp is how long rank i needs, from the word to reduce, before its first
// bytes to rank j get on their way as fast as later ones.
func (n *network) setUp(i, j int, bytes, rate int64, cold bool) time.Duration {
	if !cold {
		return 0
	}
	if n.sways(i, j) {
		bytes = min(bytes, jitterWindow) // further waits come with every transfer
	}
	return n.rtt(i, j) + n.costs.Dial + warmUp(bytes, rate, n.rtt(i, j))
}

// ring follows the first and the last piece of every chunk around the ring. A
// rank sends on a piece when it has it whole and its link is free.
func (n *network) ring(ranks []int, begin []time.Duration, cold func(i, j int) bool, end []time.Duration) {
	type span struct{ first, last time.Duration }
	size := len(ranks)
	chunk, piece := n.chunk(size)
	have, next := make([]span, size), make([]span, size)
	chunks, pieces, free := make([]time.Duration, size), make([]time.Duration, size), make([]time.Duration, size)
	hops := make([]time.Duration, size)
	for i, from := range ranks {
		to := ranks[(i+1)%size]
		rate := n.reducePath(from, to)
		chunks[i], pieces[i], hops[i] = n.carry(from, to, chunk), on(piece, rate), n.hop(from, to, chunk)
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

// direct has every rank send each chunk to its owner and every owner the mean
// to all. A rank's link carries its chunks for all owners side by side; the
// pieces of the mean follow behind them.
func (n *network) direct(ranks []int, begin []time.Duration, cold func(i, j int) bool, end []time.Duration) {
	size := len(ranks)
	chunk, piece := n.chunk(size)
	others := int64(size - 1)
	busy := func(i, j int, bytes int64) time.Duration {
		// A path is shared by all others at the sender and at the receiver, and
		// has the losses of this pair.
		return max(on(others*bytes, n.share(n.access(i, j))), n.carry(i, j, bytes))
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
// these: connections to others close.
func (n *network) connected(nodes []int) map[[2]int]bool {
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
// has been asked.
func (n *network) fetchRequest(asker, donor int) time.Duration {
	return n.rtt(asker, donor) + n.delay(asker, donor) // the handshake goes first
}

// fetchOutcomes is the time from the donor's being asked until the asker has
// the outcomes of so many outer steps.
func (n *network) fetchOutcomes(donor, asker, steps int) time.Duration {
	bytes := int64(steps) * n.outcome()
	rate := n.path(donor, asker, 1)
	return warmUp(bytes, rate, n.rtt(donor, asker)) + on(bytes, rate) + n.stalls(donor, asker, bytes, rate, 1) +
		n.delay(donor, asker) + n.swell(donor, asker, bytes) + n.fetchCost(bytes)
}

func (n *network) fetchCost(bytes int64) time.Duration {
	return n.costs.Fetch + time.Duration(n.costs.FetchByte*float64(bytes))
}

// A state is fetched in stretches of this many bytes, before compression, one
// after the other from each donor. A state of one stretch has one donor.
const stretch = 1 << 20

// fetchState is the time from the first donor's being asked until the asker has
// the whole state, of all donors: first a header, then stretches, each asked
// for when the one before is there. The others are connected to first.
func (n *network) fetchState(donors []int, asker int) time.Duration {
	bytes := n.state()
	stretches := (bytes + stretch - 1) / stretch
	if stretches == 1 {
		donors = donors[:1]
	}
	wire := func(b int64) int64 { return b / 100 * compressedPercent }
	share := goodput(n.plan.Nodes[asker].RateDown) / int64(len(donors))
	// Whoever is free takes the next stretch.
	free, done := make([]time.Duration, len(donors)), time.Duration(0)
	for k, d := range donors {
		free[k] = n.delay(donors[0], asker)
		if k > 0 {
			free[k] += n.rtt(asker, d)
		}
		free[k] += warmUp(wire(min(bytes, stretch)), slower(n.path(d, asker, 1), share), n.rtt(d, asker))
	}
	for left := bytes; left > 0; left -= stretch {
		k := 0
		for j := range free {
			if free[j] < free[k] {
				k = j
			}
		}
		d := donors[k]
		bytes, rate := wire(min(left, stretch)), slower(n.path(d, asker, 1), share)
		free[k] += n.rtt(d, asker) + on(bytes, rate) + n.stalls(d, asker, bytes, rate, 1) + n.swell(d, asker, bytes)
		done = max(done, free[k])
	}
	return done + n.fetchCost(bytes)
}

// hello is how long after its start a worker is heard of: a handshake, then
// its first message.
func (n *network) hello(worker, coordinator int) time.Duration {
	return n.rtt(worker, coordinator) + n.oneWay(worker, coordinator) + n.costs.Join
}

// recovery is when a packet that was sent at a time, and lost because its path
// was cut, arrives after the path is open again: QUIC probes after a time-out
// that doubles with each probe (RFC 9002, section 6.2), of twice the one-way
// delays and 25 ms at first.
func (n *network) recovery(from, to int, sent, open time.Duration) time.Duration {
	const maxAckDelay = 25 * time.Millisecond
	probe := max(n.rtt(from, to)+maxAckDelay, time.Millisecond)
	at := sent + probe
	for at < open {
		probe *= 2
		at += probe
	}
	return at + n.oneWay(from, to)
}
