//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/bench"
	"testbed/allreduce/quicring"
	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/node/identity"
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// benchmark is a benchmark of the all-reduce, in the sandbox's init.
type benchmark struct {
	spec    ringSpec
	s       *network.Supervisor
	hosts   *cluster.Hosts
	network *network.Network
	workers []*network.Child // by rank
	ending  bool             // the workers' end is expected
	rivals  []*contest
	tcp     []string // the rivals' congestion controls
	vectors *vectors // for programs of rivals; nil: none
	ports   int      // that rivals have taken
	notes   []string // for the result
	// The reduction under way, and the number of ranks that have still to answer.
	current bench.Reduction
	waiting int
	all     []bench.Reduction
	naive   []float64 // seconds in the naive order, if it is not the measured one
}

// inWords writes a duration in seconds for people, without an exponent.
func inWords(seconds float64) string {
	if seconds < 1e-3 {
		return fmt.Sprintf("%.4g ms", 1e3*seconds)
	}
	return fmt.Sprintf("%.4g s", seconds)
}

// leadTime is how long before a common start all are told of it.
const leadTime = 50 * time.Millisecond

// RunRing is Run in the sandbox.
func RunRing(s *network.Supervisor, spec json.RawMessage) (err error) {
	b := &benchmark{s: s}
	if err := json.Unmarshal(spec, &b.spec); err != nil {
		return fmt.Errorf("internal error: parsing the sandbox's job, a benchmark: %w", err)
	}
	if b.hosts, err = cluster.Connect(s, b.spec.Layout); err != nil {
		return err
	}
	if b.network, err = s.BringUp(b.spec.Plan, 1, b.spec.Backend, nil); err != nil {
		return err
	}
	if err := b.startWorkers(); err != nil {
		return err
	}
	if err := b.startRivals(); err != nil {
		return err
	}
	began, waited := time.Now(), b.waits()
	watch := monitor.NewWatch(b.network, b.network.Kernel.Nodes())
	b.hosts.OnSample = watch.Remote
	if err := b.measure(); err != nil {
		return err
	}
	took, m := time.Since(began), watch.Stop()
	for k, d := range b.waits() {
		m.CPUWait = max(m.CPUWait, float64(d-waited[k])/float64(took))
	}
	router, err := b.endAll()
	if err != nil {
		return err
	}
	watch.Conclude(router, &m)
	m.CPUWait = max(m.CPUWait, watch.Waited())
	result, err := b.conclude(m, router)
	if err != nil {
		return err
	}
	return s.Hand(result)
}

func (b *benchmark) startWorkers() error {
	authority, err := identity.NewAuthority()
	if err != nil {
		return err
	}
	s := b.spec.Settings
	var peers []quicring.Peer
	for _, name := range b.spec.Nodes {
		peers = append(peers, quicring.Peer{Name: name, Addr: netip.AddrPortFrom(b.network.Addr(name), ringPort)})
	}
	shortPaths := b.network.Plan.ShortPaths(b.spec.Nodes, allreduce.ShortRTT)
	for rank, peer := range peers {
		credentials, err := authority.Issue(peer.Name)
		if err != nil {
			return err
		}
		c, err := b.network.StartNode(network.ChildSpec{
			Name: peer.Name, Kind: KindRank, Env: network.WorkerEnv(s.Workers),
			Spec: rankSpec{
				Settings: s, Rank: rank, Peers: peers, ShortPaths: shortPaths, Credentials: credentials, Timeout: b.spec.Timeout, Patience: b.network.Plan.Patience(),
			},
			OnData: func(data json.RawMessage) error { return b.answered(rank, data) },
			OnEnd: func(c *network.Child, _ string) error {
				if b.ending {
					return nil
				}
				return c.Err()
			},
		})
		if err != nil {
			return err
		}
		b.workers = append(b.workers, c)
	}
	return b.s.AwaitAll(network.StartupPatience+b.preparation(), "the workers to start", func() (missing []string) {
		for _, c := range b.workers {
			if !c.Ready {
				missing = append(missing, c.Name)
			}
		}
		return missing
	})
}

// preparation is enough time for making the vectors, or for checking a result.
func (b *benchmark) preparation() time.Duration {
	s := b.spec.Settings
	return time.Duration(s.Workers) * time.Duration(s.Elements) * time.Microsecond
}

// measure lets the ring and its rivals take turns.
func (b *benchmark) measure() error {
	s := b.spec.Settings
	epoch := uint64(0)
	for k := range s.Warmup + s.Repeat {
		warm := k < s.Warmup
		var ring []int
		if o := b.spec.Ordered; o != nil {
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
		b.s.Tell("%s: %s", what, inWords(r.Seconds()))
		for _, c := range b.rivals {
			if c.result.Problem != "" {
				continue
			}
			if seconds, ok := c.turn(b, warm); ok {
				b.s.Tell("%s: %s: %s", what, c.result.Label(), inWords(seconds))
			}
		}
	}
	return nil
}

// reduce lets all workers reduce once, in a ring of that order, and then check
// their results.
func (b *benchmark) reduce(epoch uint64, ring []int) (bench.Reduction, error) {
	n := len(b.workers)
	b.current = bench.Reduction{Reduced: make([]bench.Reduced, n), Checked: make([]bench.Checked, n)}
	cpu, ahead, err := b.count()
	if err != nil {
		return bench.Reduction{}, err
	}
	o := bench.Order{Reduce: true, Epoch: epoch, Start: bench.Monotonic() + leadTime, Ring: ring}
	if err := b.order(o, ahead, b.spec.Timeout); err != nil {
		return bench.Reduction{}, err
	}
	after, _, err := b.count()
	if err != nil {
		return bench.Reduction{}, err
	}
	b.current.RouterCPU = after - cpu
	err = b.order(bench.Order{}, nil, b.preparation())
	return b.current, err
}

// order gives all workers an order and waits for the answers. ahead has the
// lead of each host's clock over this host's, if there are several.
func (b *benchmark) order(o bench.Order, ahead []time.Duration, patience time.Duration) error {
	b.waiting = len(b.workers)
	for _, c := range b.workers {
		theirs := o
		if ahead != nil {
			theirs.Start += ahead[b.hosts.Of(b.network.Plan.Index(c.Name))]
		}
		if err := c.Send(theirs); err != nil {
			return c.Err()
		}
	}
	return b.s.Await(network.StartupPatience+patience, "the workers to finish a reduction and its check", func() bool { return b.waiting == 0 })
}

// answered handles an answer of a rank.
func (b *benchmark) answered(rank int, data json.RawMessage) error {
	var r bench.Report
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("internal error: parsing the answer of %s: %w", b.spec.Nodes[rank], err)
	}
	switch {
	case r.Reduced != nil:
		b.current.Reduced[rank] = *r.Reduced
		b.waiting--
	case r.Checked != nil:
		b.current.Checked[rank] = *r.Checked
		b.waiting--
	}
	return nil
}

// count returns the CPU time of the routers so far, 0 without a router, and the
// lead of each host's clock over this host's, nil with one host.
func (b *benchmark) count() (cpu time.Duration, ahead []time.Duration, err error) {
	count, err := b.network.Count()
	if count == nil {
		return 0, nil, err
	}
	if b.hosts.Several() {
		hosts := b.hosts.Names()
		ahead = make([]time.Duration, len(hosts))
		for _, u := range count.Underlay {
			if u.From == hosts[0] {
				ahead[slices.Index(hosts, u.To)] = u.Offset
			}
		}
	}
	return count.CPU, ahead, nil
}

// waits is how long each worker has waited for a processor so far. It is 0 for
// a worker on another host, which reports it itself.
func (b *benchmark) waits() (all []time.Duration) {
	for _, c := range b.workers {
		var d time.Duration
		if c.Process != nil {
			d = monitor.RunnableWait(c.Process.Pid())
		}
		all = append(all, d)
	}
	return all
}

// endAll ends the rivals, the workers and the router, whose count it returns.
func (b *benchmark) endAll() (*userlink.Stats, error) {
	b.ending = true
	b.stopRivals()
	for _, c := range b.workers {
		c.CloseCommands()
	}
	for _, c := range b.workers {
		if err := b.s.Await(network.StartupPatience, "the process of "+c.Name+" to end", func() bool { return c.Ended }); err != nil {
			return nil, err
		}
	}
	return b.network.TakeDown()
}

func (b *benchmark) conclude(m fidelity.Measurements, router *userlink.Stats) (*bench.Ring, error) {
	links := b.spec.Links
	links.Backend = string(b.network.Backend)
	if b.hosts.Several() {
		for k, name := range b.hosts.Names() {
			links.Hosts = append(links.Hosts, bench.Host{Name: name, Nodes: b.hosts.Nodes(b.network.Plan, k)})
		}
	}
	links.TCP = strings.Join(b.tcp, ",")
	r := bench.NewRing(b.spec.Settings, links, b.all)
	r.Machine = bench.ThisMachine().WithKernels()
	if o := b.spec.Ordered; o != nil {
		r.Gained(*o, b.naive)
	}
	counts, err := b.network.Kernel.Counters()
	if err != nil {
		return nil, err
	}
	m.UnplannedDrops = monitor.NetemExcess(b.spec.Plan, counts)
	r.BusyLink, r.BusyShare = m.BusyLink, m.BusyShare
	monitor.EnterRouter(router, &m)
	r.Notes = append(append(r.Notes, fidelity.Judge(m).Reasons...), b.notes...)
	for _, c := range b.rivals {
		if c.result.Problem == "" {
			c.result.Measured(c.seconds, c.cpu, r.SecondsMedian)
		}
		r.Against = append(r.Against, c.result)
	}
	return r, nil
}
