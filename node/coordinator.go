// Package node has the programs inside the nodes of the network: the worker,
// the coordinator and the control protocol between them. It does not depend on
// the world it is in, and starts no process.
package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce/ringorder"
	"testbed/node/identity"
	"testbed/node/outcomes"
	"testbed/policy"

	"testbed/record"
)

// endPatience limits how long the coordinator waits for the last messages of
// the workers after the last outer step, and of a worker that it has evicted.
const endPatience = 10 * time.Second

// gatherPatience is how long the coordinator waits for each further worker at
// the start of a run, before it begins without the rest. A handshake takes no
// longer, even with many at once on a slow machine.
const gatherPatience = 10 * time.Second

// CoordinatorConfig is the configuration of a coordinator.
type CoordinatorConfig struct {
	CoordinatorSettings
	Links   string         // the link backend, for the record
	Ways    ringorder.Ways // by which rings are ordered
	Conn    net.PacketConn // where it listens; the coordinator closes it
	TLS     *tls.Config
	Tracing Tracing
	Log     *slog.Logger
	// Unreachable delivers addresses at which no process received packets of Conn.
	// Nil: the network never reports any.
	Unreachable <-chan netip.AddrPort
	// Dead delivers workers whose processes have ended before the run began: the
	// coordinator does not wait for them. Nil: there are none.
	Dead <-chan policy.ID
	// Report is called with the record of the run, from one goroutine.
	Report func(Report)
	// Run names the run in its journal.
	Run string
	// Clock is a clock that nobody sets, and that continues when another
	// coordinator takes over: all coordinators of a run read the same clock. Nil:
	// this process's own.
	Clock func() time.Duration
	// Journal stores the coordinator's inputs. With the journal of a coordinator
	// that has died, and its credentials and address, this one takes its place.
	// Nil: it cannot be replaced.
	Journal Journal
	// Reported is the number of the last event that was reported before.
	Reported int
	// Forgets means that the former coordinator's memory is lost, except for what
	// torchft's lighthouse keeps.
	Forgets bool
	// Resume is set if the workers have died too.
	Resume *Resume
}

// RunCoordinator plays the coordinator of one run until the policy machine
// finishes it, the horizon is reached, or ctx ends. It returns an error if it
// could not do its work. An incomplete run is not an error.
func RunCoordinator(ctx context.Context, cfg CoordinatorConfig) (err error) {
	machine, err := policy.NewCoordinator(cfg.Policy)
	if err != nil {
		return err
	}
	defer func() {
		if failed := machine.Close(); failed != nil {
			err = failed // all other errors follow from it
		}
	}()
	if cfg.Clock == nil {
		begun := time.Now()
		cfg.Clock = func() time.Duration { return time.Since(begun) }
	}
	transport := &quic.Transport{Conn: cfg.Conn}
	if transport.StatelessResetKey, err = resetKey(cfg.TLS); err != nil {
		return err
	}
	defer func() {
		transport.Close()
		cfg.Conn.Close()
	}()
	quicConfig := controlQUIC(cfg.Tracing, cfg.Scale, cfg.Patience)
	if cfg.HeedUnreachable {
		// Silent workers are pinged. If no process listens any more, the network
		// reports it.
		quicConfig.KeepAlivePeriod = max(time.Millisecond, cfg.ClockDuration(cfg.Policy.HeartbeatPeriod))
	} else {
		cfg.Unreachable = nil
	}
	listener, err := transport.Listen(identity.For(cfg.TLS, controlALPN, ""), quicConfig)
	if err != nil {
		return fmt.Errorf("listening for workers on %s: %w", cfg.Conn.LocalAddr(), err)
	}
	defer listener.Close()
	c := &coordinator{
		cfg: cfg, grouping: cfg.Policy.Grouping, machine: machine,
		reception: newReception(cfg.Workers, patient(helloPatience, cfg.Patience, cfg.Scale), cfg.Log), workers: map[policy.ID]*remote{}, dead: map[policy.ID]bool{}, outcomes: outcomes.New(cfg.Policy.Grouping, !cfg.Learns),
		t: cfg.FirstJoin(), timer: time.NewTimer(time.Hour),
	}
	defer c.timer.Stop()
	if err := c.recover(); err != nil {
		return err
	}
	defer close(c.reception.quit)
	go c.reception.accept(ctx, listener)
	cfg.Report(Report{Ready: true})
	return c.run(ctx)
}

// coordinator carries out the decisions of the policy machine. Everything
// belongs to one goroutine, except for the reception's part.
type coordinator struct {
	cfg       CoordinatorConfig
	grouping  *policy.Grouping
	machine   policy.Coordinator
	reception reception
	workers   map[policy.ID]*remote
	outcomes  *outcomes.Book

	t     policy.Time // of the running input
	began time.Time   // scenario time starts here, at the first join
	timer *time.Timer // for the machine
	// looked is when the coordinator last saw that it was running. Until reads it
	// judges nobody, because it was not.
	looked, reads time.Time
	// gather runs since the last arrival of a worker, before the start.
	gather *time.Timer
	dead   map[policy.ID]bool // workers that were to start the run
	absent []policy.ID        // the same, as of the start

	replaying      bool    // the inputs come from the journal
	pending        []entry // decided while replaying, and not compared yet
	failed         error   // reason why it cannot go on
	started        bool
	halted         bool // all nodes had died, and the coordinator waits for their workers
	done, complete bool
	reported       int          // events so far
	ring           *record.Ring // the last ring ordered
}

// remote is a worker that has said hello.
type remote struct {
	id policy.ID
	// incarnation and rejoins are from its hello.
	incarnation, rejoins int

	session *session
	ring    netip.AddrPort
	fetch   netip.AddrPort
	joined  bool // the machine has been told
	back    bool // has come back since all nodes died
	gone    bool // evicted: nothing more is expected from it
}

// patient converts a real time, at least the plan's patience, to the machine's
// clock.
func (c *coordinator) patient(d time.Duration) time.Duration {
	return patient(d, c.cfg.Patience, c.cfg.Scale)
}

// now is the scenario time. It stands still until the run begins, and while it
// waits for workers to come back.
func (c *coordinator) now() policy.Time {
	if !c.started || c.halted {
		return c.t
	}
	elapsed := time.Since(c.began)
	return max(c.t, c.cfg.FirstJoin()+c.cfg.ClockTime(elapsed))
}

// realTime is the real time of a scenario time.
func (c *coordinator) realTime(t policy.Time) time.Time {
	return c.began.Add(c.cfg.ClockDuration(t - c.cfg.FirstJoin()))
}

func (c *coordinator) run(ctx context.Context) error {
	c.gather = time.NewTimer(c.patient(gatherPatience))
	defer c.gather.Stop()
	if c.started || len(c.workers) == 0 {
		c.gather.Stop()
	}
	var horizon <-chan time.Time
	look := time.NewTicker(c.glance())
	defer look.Stop()
	c.looked = time.Now()
	defer c.hangUp()
	for !c.done {
		// Messages that have arrived come before a timer: a delayed coordinator must
		// not call a worker late whose message is in its inbox.
		var err error
		select {
		case r := <-c.reception.inbox:
			if err := c.receive(r); err != nil {
				return err
			}
			continue
		default:
		}
		if c.started && !c.halted && horizon == nil {
			horizon = time.After(time.Until(c.realTime(c.cfg.Horizon)))
		}
		select {
		case r := <-c.reception.inbox:
			err = c.receive(r)
		case addr := <-c.cfg.Unreachable:
			for _, r := range c.workers {
				if l := r.session.current(); l != nil && l.conn.RemoteAddr().String() == addr.String() {
					err = c.take(entry{T: c.now(), What: unreachable, ID: r.id})
				}
			}
		case id := <-c.cfg.Dead:
			c.dead[id] = true
			if !c.started && len(c.workers) > 0 {
				c.gather.Reset(c.gatherPatience())
			}
		case <-look.C:
			c.look()
		case <-c.timer.C:
			if c.look(); time.Now().Before(c.reads) {
				c.timer.Reset(time.Until(c.reads))
				continue
			}
			err = c.take(entry{T: c.now(), What: timerFired})
		case <-c.gather.C:
			err = c.take(entry{T: c.now(), What: waitedOut, BeganAt: new(c.cfg.Clock())})
		case <-horizon:
			err = c.take(entry{T: c.now(), What: horizonCame})
		case <-ctx.Done():
			err = fmt.Errorf("coordinating the run: %w", context.Cause(ctx))
		}
		if err != nil {
			return err
		}
	}
	return c.awaitFinalStates(ctx)
}

// glance is the time between two looks at the clock.
func (c *coordinator) glance() time.Duration {
	return max(c.cfg.ClockDuration(c.cfg.Policy.HeartbeatPeriod)/4, 5*time.Millisecond)
}

// readTime is the longest time from a socket to the inbox.
const readTime = 50 * time.Millisecond

// look finds out whether the coordinator was not running: stopped, frozen, or
// without a processor. Then it reads everything that has arrived, and waits for
// a sign of life from every worker. Until then, silence is due to its own
// absence.
func (c *coordinator) look() {
	now := time.Now()
	if away := now.Sub(c.looked); away > 2*c.glance() {
		c.reads = now.Add(readTime + c.cfg.ClockDuration(c.cfg.Policy.HeartbeatPeriod))
		c.cfg.Log.Warn("the coordinator was not running: it evicts no worker for silence until every worker has sent a message again", "stood_still", away.Round(time.Millisecond))
	}
	c.looked = now
}

// awaitFinalStates ends the run for the workers. It waits a while for the
// hashes of their final states.
func (c *coordinator) awaitFinalStates(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(c.workers)) {
		c.finish(id)
	}
	timeout := time.After(c.patient(endPatience))
	for c.complete && c.outcomes.Waits() || len(c.apart()) > 0 {
		select {
		case r := <-c.reception.inbox:
			if err := c.receive(r); err != nil {
				return err
			}
		case <-timeout:
			waited := c.patient(endPatience)
			if missing := c.apart(); len(missing) > 0 {
				c.cfg.Log.Warn("these workers did not reconnect before the end of the run", "workers", nodes(missing), "waited", waited)
			}
			if missing := c.outcomes.Missing(); len(missing) > 0 {
				c.cfg.Log.Warn("these workers did not report the hash of their final state", "workers", nodes(missing), "waited", waited)
			}
			c.compareStates(nil)
			return nil
		case <-ctx.Done():
			return fmt.Errorf("coordinating the run: %w", context.Cause(ctx))
		}
	}
	return nil
}

// finish tells a worker that the run is over.
func (c *coordinator) finish(id policy.ID) {
	c.send(id, message{Type: msgFinish, OuterSteps: c.machine.OuterSteps(), Complete: c.complete})
}

// apart lists the workers that do not know that the run is over and have still
// to come back.
func (c *coordinator) apart() (all []policy.ID) {
	for id, r := range c.workers {
		if !r.gone && r.session.current() == nil {
			all = append(all, id)
		}
	}
	return all
}

// nodes are the names of workers, sorted, for a log.
func nodes(ids []policy.ID) string {
	var names []string
	for _, id := range slices.Sorted(slices.Values(ids)) {
		names = append(names, id.Node())
	}
	return strings.Join(names, " ")
}

// hangUp gives every worker the time to receive the last message before the
// connections close.
func (c *coordinator) hangUp() {
	deadline := time.Now().Add(c.patient(time.Second))
	for _, r := range c.workers {
		if l := r.session.current(); l != nil {
			l.hangUp(time.Until(deadline))
		}
	}
	for _, r := range c.workers {
		l := r.session.current()
		if r.gone || l == nil {
			continue
		}
		select {
		case <-l.conn.Context().Done():
		case <-time.After(time.Until(deadline)):
		}
	}
}
