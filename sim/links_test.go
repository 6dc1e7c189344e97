package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/allreduce"
	"testbed/allreduce/codec"
	"testbed/allreduce/entropy"
	"testbed/allreduce/ringorder"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"

	"testbed/policy/worker"
)

const ms = time.Millisecond

// alike is a network of the coordinator and workers on links that are all
// alike.
func alike(t testing.TB, workers int, rate shaping.Rate, oneWay time.Duration) *links {
	t.Helper()
	names := []string{"coordinator", "w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"}[:workers+1]
	spec := shaping.Spec{}
	spec.Default.RateUp, spec.Default.RateDown = &rate, &rate
	plan, err := shaping.NewPlan(spec, names, oneWay, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &links{plan: plan, parameters: 1_000_000, lengths: []int{1_000_000}, length: 1_000_000, format: allreduce.DefaultFormat, tunedCounts: map[steadyPath]int{}}
}

// ranksOf are all workers.
func ranksOf(n *links) []int {
	ranks := make([]int, len(n.plan.Nodes)-1)
	for i := range ranks {
		ranks[i] = i + 1
	}
	return ranks
}

func warm(int, int) bool { return false }

// took is how long all ranks need that begin together.
func (n *links) took(cold func(i, j int) bool) time.Duration {
	ranks := ranksOf(n)
	return slices.Max(n.reduce(ranks, make([]time.Duration, len(ranks)), cold))
}

func near(got, want, within time.Duration) bool { return got >= want-within && got <= want+within }

// TestRingByHand: where chunks are shorter than a hop, every step takes a hop
// and a piece; where they are longer, links never rest and only the last hop
// shows.
func TestRingByHand(t *testing.T) {
	for _, c := range []struct {
		name   string
		oneWay time.Duration
	}{{"short chunks", 100 * ms}, {"long chunks", ms}, {"no delay", 0}} {
		n := alike(t, 4, 200e6, c.oneWay)
		chunk, piece := n.chunk(4)
		// 250,000 codes, 245 scales, 16 headers; 16,384 codes, 16 scales, 1 header.
		if chunk != 250_000+4*245+16*52 || piece != 16_384+4*16+52 {
			t.Fatalf("chunk of %d bytes, piece of %d", chunk, piece)
		}
		rate := goodput(200e6) // 200 Mbit/s less headers: 1420 of 1494 bytes
		if rate != 25_000_000*1420/1494 {
			t.Fatalf("goodput %d", rate)
		}
		long, short := rate.serialisation(chunk), rate.serialisation(piece)
		want := 5*max(long, short+c.oneWay) + long + c.oneWay
		if got := n.took(warm); !near(got, want, time.Microsecond) {
			t.Errorf("%s: the ring takes %v, want %v", c.name, got, want)
		}
	}
}

// TestColdRing waits for a handshake, and for its windows to grow.
func TestColdRing(t *testing.T) {
	n := alike(t, 2, 0, 10*ms) // unlimited: windows are all that holds data up
	cold := func(int, int) bool { return true }
	chunk, _ := n.chunk(2) // 502 kB: after windows of 46, 93, 186 kB come 371
	if initialWindow*7 >= chunk || initialWindow*15 < chunk {
		t.Fatalf("chunk of %d bytes, first window of %d", chunk, initialWindow)
	}
	if got, want := n.took(cold), n.took(warm)+20*ms+3*20*ms; got != want {
		t.Errorf("cold ring %v, want %v", got, want)
	}
	if got := n.took(warm); got != 2*10*ms {
		t.Errorf("two hops of 10 ms take %v", got)
	}
}

// TestDirectByHand: two hops, and each access link carries three chunks twice.
func TestDirectByHand(t *testing.T) {
	n := alike(t, 4, 200e6, 100*ms)
	n.algorithm = allreduce.Direct
	chunk, piece := n.chunk(4)
	rate := goodput(200e6)
	// The mean of the last piece leaves when the last codes have come.
	want := rate.serialisation(3*chunk) + 100*ms + rate.serialisation(3*piece) + 100*ms
	if got := n.took(warm); !near(got, want, time.Microsecond) {
		t.Errorf("direct takes %v, want %v", got, want)
	}
	near0 := alike(t, 4, 200e6, 0)
	near0.algorithm = allreduce.Direct
	if got, want := near0.took(warm), 2*rate.serialisation(3*chunk); !near(got, want, time.Microsecond) {
		t.Errorf("without delay direct takes %v, want %v", got, want)
	}
	if ring := alike(t, 4, 200e6, 100*ms).took(warm); ring <= n.took(warm) {
		t.Errorf("over 100 ms hops the ring takes %v and direct %v", ring, n.took(warm))
	}
}

// TestRingInOrder: by delays, workers of two regions are neighbours of their
// own.
func TestRingInOrder(t *testing.T) {
	n := alike(t, 4, 0, ms)
	for _, pair := range [][2]int{{1, 2}, {1, 4}, {3, 2}, {3, 4}} { // w0 and w2 here, w1 and w3 there
		n.plan.Paths[pair[0]][pair[1]].OneWayDelay = shaping.Duration(100 * ms)
		n.plan.Paths[pair[1]][pair[0]].OneWayDelay = shaping.Duration(100 * ms)
	}
	naive := n.took(warm)
	ids := []policy.ID{0, 1, 2, 3}
	n.ways = ringorder.Ways{Workers: ids, Delays: n.plan.Delays([]string{"w0", "w1", "w2", "w3"})}
	var ordered []int
	for _, id := range n.inOrder(ids) {
		ordered = append(ordered, int(id)+1)
	}
	got := slices.Max(n.reduce(ordered, make([]time.Duration, 4), warm))
	if naive != 600*ms || got != 3*(100+1)*ms {
		t.Errorf("in order %v the ring takes %v, naively %v", ordered, got, naive)
	}
}

// TestFetchByHand: a handshake, a request, and what was missed; or of the whole
// state a header, and what requests of a mebibyte ask for by itself.
func TestFetchByHand(t *testing.T) {
	n := alike(t, 4, 8e6, 5*ms) // the first window covers the path
	rate := goodput(8e6)
	got := n.fetchRequest(1, 2) + n.fetchOutcomes(2, 1, n.outcomes(0, 2))
	if want := 20*ms + rate.serialisation(n.outcomes(0, 2)); got != want {
		t.Errorf("two outcomes take %v, want %v", got, want)
	}
	n.parameters = 3 * worker.RequestBytes / stateValue
	wire := byteCount(worker.RequestBytes) / 100 * compressedPercent
	got = n.fetchRequest(1, 2) + n.fetchState([]int{2}, 1, false)
	if want := 20*ms + 3*(10*ms+rate.serialisation(wire)); !near(got, want, time.Microsecond) {
		t.Errorf("three requests take %v, want %v", got, want)
	}
	three := n.fetchRequest(1, 2) + n.fetchState([]int{2, 3, 4}, 1, false)
	if want := 20*ms + 10*ms + 10*ms + (rate / 3).serialisation(wire); !near(three, want, time.Microsecond) {
		t.Errorf("with two helpers, who share the downlink, it takes %v, want %v", three, want)
	}
	n.costs.Fetch, n.costs.FetchByte = 7*ms, 10
	if more := n.fetchRequest(1, 2) + n.fetchState([]int{2}, 1, false) - got; more != 7*ms+time.Duration(10*n.state()) {
		t.Errorf("costs add %v", more)
	}
}

// TestSlowestLinkCounts: one slow access link slows the whole ring.
func TestSlowestLinkCounts(t *testing.T) {
	n := alike(t, 4, 200e6, 0)
	whole := n.took(warm)
	n.plan.Nodes[2].RateUp = 20e6
	if got := n.took(warm); got < 8*whole || got > 11*whole {
		t.Errorf("with a link of a tenth the ring takes %v, without %v", got, whole)
	}
}

// TestAPathsRateCounts as that of an access link would, for the path alone.
func TestAPathsRateCounts(t *testing.T) {
	n, slow := alike(t, 4, 200e6, 0), alike(t, 4, 200e6, 0)
	n.plan.Paths[2][3].Rate, slow.plan.Nodes[2].RateUp = 20e6, 20e6
	if got, want := n.took(warm), slow.took(warm); got != want {
		t.Errorf("with a path of a tenth the ring takes %v, with such a link %v", got, want)
	}
	if got, want := n.path(3, 2, 1), goodput(200e6); got != want {
		t.Errorf("the way back carries %d bytes/s, want %d", got, want)
	}
}

func TestLosses(t *testing.T) {
	n := alike(t, 2, 100e6, 50*ms)
	n.plan.Paths[1][2].Loss = 0.01
	// 16.8 packets a round trip.
	if got := n.path(1, 2, 1); got < 230_000 || got > 245_000 {
		t.Errorf("1 %% of losses leave %d bytes/s", got)
	}
	if got := n.path(1, 2, 4); got != 4*n.path(1, 2, 1) && got < 900_000 {
		t.Errorf("four connections carry %d bytes/s, one %d", got, n.path(1, 2, 1))
	}
	if got, want := n.path(1, 2, 64), goodput(100e6); got != want {
		t.Errorf("64 connections carry %d bytes/s, the link %d", got, want)
	}
}

// TestRecovery finds the first probe after the path is open: 45, 135 and 315 ms
// after the packet that was lost.
func TestRecovery(t *testing.T) {
	n := alike(t, 2, 0, 10*ms)
	for open, want := range map[time.Duration]time.Duration{0: 45 * ms, 45 * ms: 45 * ms, 46 * ms: 135 * ms, 136 * ms: 315 * ms} {
		if got := n.recovery(1, 2, 0, open); got != want+10*ms {
			t.Errorf("open after %v: arrives after %v, want %v", open, got, want+10*ms)
		}
	}
}

// TestMoreTakesLonger: more bytes, more delay, a lower rate, a later start or a
// cold connection never shorten a transfer.
func TestMoreTakesLonger(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 7).Draw(t, "ranks")
		draw := func() *links {
			names := []string{"coordinator", "w0", "w1", "w2", "w3", "w4", "w5", "w6"}[:size+1]
			plan, err := shaping.NewPlan(shaping.Spec{}, names, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			return &links{
				plan: plan, format: allreduce.Format{Bits: rapid.SampledFrom([]int{4, 8}).Draw(t, "bits"), Block: 1024},
				length:    rapid.IntRange(1, 2_000_000).Draw(t, "length"),
				algorithm: rapid.SampledFrom([]allreduce.Algorithm{allreduce.Ring, allreduce.Direct}).Draw(t, "algorithm"),
			}
		}
		n := draw()
		for i := range n.plan.Nodes {
			n.plan.Nodes[i].RateUp = shaping.Rate(rapid.Int64Range(1e6, 1e9).Draw(t, "up"))
			n.plan.Nodes[i].RateDown = shaping.Rate(rapid.Int64Range(1e6, 1e9).Draw(t, "down"))
			for j := range n.plan.Nodes {
				n.plan.Paths[i][j].OneWayDelay = shaping.Duration(rapid.Int64Range(0, int64(100*ms)).Draw(t, "delay"))
			}
		}
		ranks := make([]int, size)
		begin := make([]time.Duration, size)
		for i := range ranks {
			ranks[i] = i + 1
			begin[i] = time.Duration(rapid.Int64Range(0, int64(50*ms)).Draw(t, "begin"))
		}
		coldOne := rapid.IntRange(1, size).Draw(t, "cold")
		cold := func(i, _ int) bool { return i == coldOne }
		all := func(cold func(i, j int) bool) time.Duration { return slices.Max(n.reduce(ranks, begin, cold)) }
		before, fetch := all(warm), n.fetchState([]int{1}, 2, false)
		if got := all(cold); got < before {
			t.Fatalf("a cold connection shortens %v to %v", before, got)
		}
		i, j := 1, 2
		switch rapid.SampledFrom([]string{"length", "delay", "rate", "begin"}).Draw(t, "more") {
		case "length":
			// Larger pieces may not fill the links as well or as badly; a longer
			// vector of pieces as large takes longer.
			if n.length < 64*1024*size {
				return
			}
			n.length *= 2
		case "delay":
			n.plan.Paths[i][j].OneWayDelay += shaping.Duration(rapid.Int64Range(0, int64(100*ms)).Draw(t, "by"))
		case "rate":
			n.plan.Nodes[i].RateUp = n.plan.Nodes[i].RateUp / 2
		case "begin":
			begin[i-1] += 10 * ms
		}
		if got := all(warm); got < before-time.Microsecond {
			t.Fatalf("%v became %v", before, got)
		}
		if got := n.fetchState([]int{1}, 2, false); got < fetch-time.Microsecond {
			t.Fatalf("the fetch of %v became %v", fetch, got)
		}
	})
}

// regions is alike with workers in groups, and paths of 100 ms between these.
func regional(t *testing.T, rate shaping.Rate, groupOf ...int) *links {
	n := alike(t, len(groupOf), rate, 0)
	n.algorithm, n.groupOf = allreduce.Hierarchical, append([]int{-1}, groupOf...)
	for i, a := range groupOf {
		for j, b := range groupOf {
			if a != b {
				n.plan.Paths[i+1][j+1].OneWayDelay = shaping.Duration(100 * ms)
			}
		}
	}
	return n
}

// TestHierarchicalByHand: every rank sends a chunk to the other in its group,
// its group's sum of a chunk to the other group, and each on the way back. The
// way between groups is long, so that the link rests while the sums are on it.
func TestHierarchicalByHand(t *testing.T) {
	n := regional(t, 200e6, 0, 0, 1, 1)
	chunk, piece := n.chunk(4)
	rate := goodput(200e6)
	// The far chunk and its group's sums take turns on the link. The last sum goes
	// 100 ms, comes back as the mean in 100 ms, and is told to the other.
	want := rate.serialisation(2*chunk) + 200*ms + rate.serialisation(3*piece)
	if got := n.took(warm); !near(got, want, 4*rate.serialisation(piece)) {
		t.Errorf("two groups of two take %v, want %v", got, want)
	}
	if one := regional(t, 200e6, 0, 1, 2, 3); !near(one.took(warm), rate.serialisation(3*chunk)+200*ms+rate.serialisation(3*piece), 4*rate.serialisation(piece)) {
		t.Errorf("groups of one take %v", one.took(warm))
	}
}

// TestOneGroupIsDirect, but for the order in which pieces take turns.
func TestOneGroupIsDirect(t *testing.T) {
	for _, rate := range []shaping.Rate{20e6, 200e6} {
		for _, oneWay := range []time.Duration{0, 5 * ms, 100 * ms} {
			n := alike(t, 5, rate, oneWay)
			n.algorithm = allreduce.Direct
			direct := n.took(warm)
			n.algorithm, n.groupOf = allreduce.Hierarchical, make([]int, 6)
			if got := n.took(warm); !near(got, direct, direct/50) {
				t.Errorf("at %v and %v one group takes %v, direct %v", rate, oneWay, got, direct)
			}
		}
	}
}

// TestCodedBytes compares the shares that entropy coding saves with what it
// saves of normal values.
func TestCodedBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var coder entropy.Coder
	for _, c := range []struct{ values, bits, block int }{
		{16_384, 8, 1024}, {4096, 8, 1024}, {16_384, 8, 64}, {16_384, 8, 4096}, {16_384, 4, 1024}, {16_384, 4, 64}, {16_384, 4, 4096},
		{131_072, 8, 1024}, {131_072, 8, 4096}, {131_072, 4, 1024},
	} {
		n := &links{format: allreduce.Format{Bits: c.bits, Block: c.block}, coded: true}
		values := make([]float32, c.values)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		quantiser := codec.Codec{Format: n.format}
		codes := make([]byte, n.format.EncodedLen(c.values))
		quantiser.Quantise(codes, values, nil)
		codes = codes[n.format.ScalesLen(c.values):]
		short, _ := coder.Encode(nil, codes)
		plain, want := float64(len(codes)), float64(len(short))
		if got := plain - float64(n.saved(c.values)); math.Abs(got-want) > 0.02*plain {
			t.Errorf("%+v: %.3f of the codes are left, predicted %.3f", c, want/plain, got/plain)
		}
	}
}

// TestSendingWhatARecordSays: with half of the bytes a link is busy half of the
// time, and with all of them nothing changes.
func TestSendingWhatARecordSays(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(scenarios.Baseline)
	if err != nil {
		t.Fatal(err)
	}
	times := NewTimes(r, Costs{})
	ids := []policy.ID{0, 1, 2, 3}
	plain, bytes := times.Reduction(ids, ids), times.Sent(4)
	if same := times.Sending(4, bytes).Reduction(ids, ids); same != plain {
		t.Errorf("with all bytes it takes %v, not %v", same, plain)
	}
	one, half, quarter := times.Sending(4, bytes).Sent(4), times.Sending(4, bytes/2).Reduction(ids, ids), times.Sending(4, bytes/4).Reduction(ids, ids)
	// What a byte takes is what its links take, however many there are.
	if a, b := (plain - half).Seconds(), 2*(half-quarter).Seconds(); one != bytes || half >= plain || a < 0.7*b || a > 1.4*b {
		t.Errorf("all take %v, half %v, a quarter %v", plain, half, quarter)
	}
}
