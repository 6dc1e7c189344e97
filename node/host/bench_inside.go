//go:build linux

package host

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"testbed/allreduce/quicring"
	"testbed/bench"
	"testbed/node/identity"
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// benchmark is a benchmark of the all-reduce, as the sandbox's init sees it.
type benchmark struct {
	*inside
	workers []*child // by rank
	rivals  []*contest
	// The reduction under way, and how many ranks have yet to answer.
	current bench.Reduction
	waiting int
	all     []bench.Reduction
	naive   []float64 // seconds in the naive order, where that is not measured
}

// contest is a rival and what was measured of it.
type contest struct {
	rival
	result       bench.Rival
	seconds, cpu []float64
}

// nodeInterface is every node's interface, as package kernel names it.
const nodeInterface = "eth0"

// leadTime is how long before a common start all are told of it.
const leadTime = 50 * time.Millisecond

// runBench is the inner half of Bench.
func (i *inside) runBench() error {
	b := &benchmark{inside: i}
	i.onReport, i.onEnd = b.report, b.workerEnded
	if err := i.bringUp(); err != nil {
		return err
	}
	if err := b.startWorkers(); err != nil {
		return err
	}
	b.startRivals()
	began, machine, waited := time.Now(), readMachineTime(), b.waits()
	if err := b.measure(); err != nil {
		return err
	}
	var m fidelity.Measurements
	took := time.Since(began)
	readMachineTime().since(machine, took, &m)
	for k, d := range b.waits() {
		m.CPUWait = max(m.CPUWait, float64(d-waited[k])/float64(took))
	}
	if err := b.endAll(); err != nil {
		return err
	}
	result, err := b.conclude(m)
	if err != nil {
		return err
	}
	i.tell(note{Benched: result})
	return nil
}

func (b *benchmark) startWorkers() error {
	authority, err := identity.NewAuthority()
	if err != nil {
		return err
	}
	s := b.Bench.Settings
	var peers []quicring.Peer
	var names []string
	for rank := range s.Workers {
		name := rankName(rank)
		names = append(names, name)
		peers = append(peers, quicring.Peer{Name: name, Addr: netip.AddrPortFrom(b.addr(name), ringPort)})
	}
	near := b.plan.Near(names)
	for rank, peer := range peers {
		credentials, err := authority.Issue(peer.Name)
		if err != nil {
			return err
		}
		c, err := b.start(peer.Name, b.ns(peer.Name), spec{Bench: &benchSpec{
			Settings: s, Rank: rank, Peers: peers, Near: near, Credentials: credentials, Timeout: b.Bench.Timeout,
		}}, workerEnv(s.Workers))
		if err != nil {
			return err
		}
		b.workers = append(b.workers, c)
	}
	return b.awaitFor(startupPatience+b.preparation(), "the workers", func() bool {
		for _, c := range b.workers {
			if !c.ready {
				return false
			}
		}
		return true
	})
}

// preparation is ample time for making the vectors, or for checking a result.
func (b *benchmark) preparation() time.Duration {
	s := b.Bench.Settings
	return time.Duration(s.Workers) * time.Duration(s.Elements) * time.Microsecond
}

// measure has the ring and its rivals take turns.
func (b *benchmark) measure() error {
	s := b.Bench.Settings
	epoch := uint64(0)
	for k := range s.Warmup + s.Repeat {
		warm := k < s.Warmup
		var ring []int
		if o := b.Bench.Ordered; o != nil {
			ring = o.Ring
			epoch++
			r, err := b.reduce(epoch, nil)
			if err != nil {
				return err
			}
			if !warm {
				b.naive = append(b.naive, r.Seconds())
			}
		}
		epoch++
		r, err := b.reduce(epoch, ring)
		if err != nil {
			return err
		}
		if !warm {
			b.all = append(b.all, r)
		}
		what := fmt.Sprintf("reduction %d of %d", k-s.Warmup+1, s.Repeat)
		if warm {
			what = fmt.Sprintf("warm-up %d of %d", k+1, s.Warmup)
		}
		line := fmt.Sprintf("%s: %.4g s", what, r.Seconds())
		for _, c := range b.rivals {
			if c.result.Problem != "" {
				continue
			}
			seconds, cpu, err := c.once(b)
			if err != nil {
				c.fail(b, err)
				continue
			}
			line += fmt.Sprintf("; %s %.4g s", c.result.Name, seconds)
			if !warm {
				c.seconds, c.cpu = append(c.seconds, seconds), append(c.cpu, cpu)
			}
		}
		b.tell(note{Stage: line})
	}
	return nil
}

// reduce has all workers reduce once, in a ring of that order, and then check
// what they got.
func (b *benchmark) reduce(epoch uint64, ring []int) (bench.Reduction, error) {
	n := len(b.workers)
	b.current = bench.Reduction{Reduced: make([]bench.Reduced, n), Checked: make([]bench.Checked, n)}
	cpu, err := b.routerCPU()
	if err != nil {
		return bench.Reduction{}, err
	}
	if err := b.order(bench.Order{Reduce: true, Epoch: epoch, Start: bench.Monotonic() + leadTime, Ring: ring}, b.Bench.Timeout); err != nil {
		return bench.Reduction{}, err
	}
	after, err := b.routerCPU()
	if err != nil {
		return bench.Reduction{}, err
	}
	b.current.RouterCPU = after - cpu
	err = b.order(bench.Order{}, b.preparation())
	return b.current, err
}

// order gives all workers an order and waits for the answers.
func (b *benchmark) order(o bench.Order, patience time.Duration) error {
	b.waiting = len(b.workers)
	for _, c := range b.workers {
		if err := c.words.Encode(o); err != nil {
			return b.failure(c)
		}
	}
	return b.awaitFor(startupPatience+patience, "the workers", func() bool { return b.waiting == 0 })
}

func (b *benchmark) report(c *child, r nodeReport) {
	if r.Bench == nil {
		return
	}
	c.ready = c.ready || r.Bench.Ready
	for rank, worker := range b.workers {
		switch {
		case worker != c:
		case r.Bench.Reduced != nil:
			b.current.Reduced[rank] = *r.Bench.Reduced
			b.waiting--
		case r.Bench.Checked != nil:
			b.current.Checked[rank] = *r.Bench.Checked
			b.waiting--
		}
	}
}

func (b *benchmark) workerEnded(c *child, _ string) error {
	if b.closing {
		return nil
	}
	return b.failure(c)
}

// routerCPU is what the router has taken so far, 0 where there is none.
func (b *benchmark) routerCPU() (time.Duration, error) {
	stats, err := b.countRouted()
	if stats == nil {
		return 0, err
	}
	return stats.CPU, nil
}

// countRouted asks the router for its count; it is nil where there is none.
func (b *benchmark) countRouted() (*userlink.Stats, error) {
	router := b.nodes[routerName]
	if router == nil {
		return nil, nil
	}
	b.routed = nil
	if err := router.words.Encode(routerWord{}); err != nil {
		return nil, fmt.Errorf("asking the router for its count: %w", err)
	}
	err := b.await("the router's count", func() bool { return b.routed != nil })
	return b.routed, err
}

// waits is how long each worker has waited for a processor so far.
func (b *benchmark) waits() (all []time.Duration) {
	for _, c := range b.workers {
		all = append(all, runnableWait(c.process.Pid()))
	}
	return all
}

// endAll ends the rivals, the workers and the router.
func (b *benchmark) endAll() error {
	b.closing = true
	for _, r := range b.rivals {
		r.stop()
	}
	for _, c := range b.workers {
		c.wordsTo.Close()
	}
	for _, c := range b.workers {
		if err := b.await(c.name+" to end", func() bool { return c.ended }); err != nil {
			return err
		}
	}
	return b.takeDown()
}

func (b *benchmark) conclude(m fidelity.Measurements) (*bench.Ring, error) {
	links := b.Bench.Network
	links.Backend = string(b.backend)
	r := bench.NewRing(b.Bench.Settings, links, b.all)
	r.Machine = bench.ThisMachine()
	if o := b.Bench.Ordered; o != nil {
		r.Gained(*o, b.naive)
	}
	counts, err := b.net.Counters()
	if err != nil {
		return nil, err
	}
	m.UnplannedDrops = netemExcess(b.plan, counts)
	if router := b.routed; router != nil {
		m.RouterLatenessP50, m.RouterLatenessP99, m.RouterPackets = router.LatenessP50, router.LatenessP99, router.Packets
		m.UnplannedDrops += unplanned(router)
	}
	r.Notes = append(r.Notes, fidelity.Judge(m).Reasons...)
	for _, c := range b.rivals {
		if c.result.Problem == "" {
			c.result.Measured(c.seconds, c.cpu, r.SecondsMedian)
		}
		r.Against = append(r.Against, c.result)
	}
	return r, nil
}

// benchSpec has a process be a rank of a benchmark.
type benchSpec struct {
	Settings    bench.Settings
	Rank        int
	Peers       []quicring.Peer
	Near        bool
	Credentials identity.Credentials
	Timeout     time.Duration
}

// runBenchWorker is the process of a rank.
func runBenchWorker(s *benchSpec, log *slog.Logger, report func(nodeReport)) error {
	tlsConfig, err := s.Credentials.TLS()
	if err != nil {
		return err
	}
	conn, err := listen(s.Peers[s.Rank].Addr.Addr(), ringPort)
	if err != nil {
		return err
	}
	orders := make(chan bench.Order)
	go func() {
		defer close(orders)
		words := json.NewDecoder(os.NewFile(wordsFD, "orders"))
		for {
			var o bench.Order
			if words.Decode(&o) != nil {
				return // the end of the file
			}
			orders <- o
		}
	}()
	return bench.RunWorker(context.Background(), bench.WorkerConfig{
		Settings: s.Settings, Rank: s.Rank, Peers: s.Peers, Near: s.Near, Timeout: s.Timeout,
		Conn: conn, TLS: tlsConfig, Log: log, Interface: nodeInterface, Orders: orders,
		Report: func(r bench.Report) { report(nodeReport{Bench: &r}) },
	})
}
