package node

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"testbed/internal/memnet"
	"testbed/internal/testscenario"
	"testbed/node/identity"
	"testbed/node/state"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping"
)

// workerSettings are those of a process of a scenario's worker.
func workerSettings(t testing.TB, s *scenarios.Scenario, id policy.ID, incarnation int) WorkerSettings {
	t.Helper()
	r := testscenario.Resolve(t, s, "")
	w, ok := r.Worker(id)
	if !ok {
		t.Fatalf("there is no worker %d", id)
	}
	return NewWorkerSettings(r, w, incarnation)
}

func TestMain(m *testing.M) {
	initialPacket = memnet.PacketSize // see there
	state.ChunkValues = 256
	goleak.VerifyTestMain(m)
}

func loopback(t *testing.T) net.PacketConn {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func parse(t *testing.T, text string) *scenarios.Scenario {
	t.Helper()
	s, err := scenarios.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const threeWorkers = `
seed: 1
inner_steps: 2
target_outer_steps: 3
horizon: 1000000
heartbeat_period: 1000
heartbeat_miss_threshold: 200
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
workers:
  - {id: 0, inner_step_mean: 1000}
  - {id: 1, inner_step_mean: 1000}
  - {id: 2, inner_step_mean: 1000, join_at: 3000}
real: {time_scale: 50, parameters: 10007}
`

// cluster is a whole run in this process, over loopback.
type cluster struct {
	t        *testing.T
	scenario *scenarios.Scenario
	wg       sync.WaitGroup
	mu       sync.Mutex
	events   []record.Event
	commands map[policy.ID]chan Command
	onEvent  func(record.Event)
}

// play runs the scenario to its end and returns its summary and record.
func play(t *testing.T, s *scenarios.Scenario, policyName string, onEvent func(*cluster, record.Event)) (record.Summary, []record.Event) {
	t.Helper()
	c := &cluster{t: t, scenario: s, commands: map[policy.ID]chan Command{}}
	c.onEvent = func(e record.Event) {
		if onEvent != nil {
			onEvent(c, e)
		}
	}
	authority, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	control := loopback(t)
	addr := netip.MustParseAddrPort(control.LocalAddr().String())
	credentials, err := authority.Issue(policy.CoordinatorNode)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := credentials.TLS()
	if err != nil {
		t.Fatal(err)
	}
	c.wg.Go(func() {
		err := RunCoordinator(ctx, CoordinatorConfig{
			CoordinatorSettings: NewCoordinatorSettings(testscenario.Resolve(t, s, policyName)), Links: "none", Conn: control, TLS: tlsConfig,
			Log: slog.New(slog.DiscardHandler), Report: c.report,
		})
		if err != nil {
			t.Errorf("coordinator: %v", err)
		}
	})
	for _, w := range s.Workers {
		credentials, err := authority.Issue(w.ID.Node())
		if err != nil {
			t.Fatal(err)
		}
		tlsConfig, err := credentials.TLS()
		if err != nil {
			t.Fatal(err)
		}
		commands := make(chan Command, 4)
		c.commands[w.ID] = commands
		sockets := []net.PacketConn{loopback(t), loopback(t), loopback(t)}
		c.wg.Go(func() {
			err := RunWorker(ctx, WorkerConfig{
				WorkerSettings: workerSettings(t, s, w.ID, 0), Coordinator: addr, Control: sockets[0], Ring: sockets[1], Fetch: sockets[2],
				TLS: tlsConfig, Commands: commands, Log: slog.New(slog.DiscardHandler), Report: c.report,
			})
			if err != nil {
				t.Errorf("worker %d: %v", w.ID, err)
			}
		})
		if w.JoinAt == s.FirstJoin() {
			commands <- Command{Op: OpJoin}
		}
	}
	c.wg.Wait()
	sum := record.NewSummarizer(s.Setup())
	for _, e := range c.events {
		sum.Add(&e)
	}
	return sum.Summary(), c.events
}

func (c *cluster) report(r Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := r.Event
	if e == nil {
		return
	}
	c.events = append(c.events, *e)
	if e.Type == record.RunStart {
		for _, w := range c.scenario.Workers {
			if w.JoinAt > c.scenario.FirstJoin() {
				time.AfterFunc(c.scenario.RealDuration(w.JoinAt), func() { c.commands[w.ID] <- Command{Op: OpJoin} })
			}
		}
	}
	c.onEvent(*e)
}

func TestRunOverLoopback(t *testing.T) {
	for _, name := range scenarios.PolicyNames {
		t.Run(name, func(t *testing.T) {
			sum, events := play(t, parse(t, threeWorkers), name, nil)
			if !sum.Complete || sum.OuterSteps != 3 || sum.BitIdentical == nil || !*sum.BitIdentical {
				t.Errorf("complete %v, %d outer steps, bit-identical %v", sum.Complete, sum.OuterSteps, sum.BitIdentical)
			}
			if sum.JoinerStall <= 0 {
				t.Error("the joiner fetched the outer state in no time")
			}
			var losses []float64
			for _, e := range events {
				if e.Type == record.State {
					losses = append(losses, *e.Loss)
				}
			}
			if len(losses) != 3 || losses[2] >= losses[0] {
				t.Errorf("losses after the outer steps %v: want three, falling", losses)
			}
			checkReductions(t, events)
		})
	}
}

// checkReductions holds what each worker recorded of its reductions against
// what the coordinator heard of them.
func checkReductions(t *testing.T, events []record.Event) {
	t.Helper()
	for _, all := range events {
		if all.Type != record.ReduceDone {
			continue
		}
		var sent, received int64
		var longest policy.Time
		for _, e := range events {
			if e.Type == record.Reduced && e.Epoch == all.Epoch {
				sent, received, longest = sent+e.BytesSent, received+e.BytesReceived, max(longest, e.Duration)
				// Who begins late finds all waiting, and who ends last has no all-gather left:
				// either may take no time in whole microseconds.
				if e.ReduceScatter < 0 || e.ReduceScatter > e.Duration || e.Round != all.Round {
					t.Errorf("%s: round %d, reduce-scatter %d of %d µs", e.Node, e.Round, e.ReduceScatter, e.Duration)
				}
			}
		}
		if sent != all.BytesSent || received != sent || sent == 0 || longest != all.Duration {
			t.Errorf("round %d: the workers sent %d bytes, received %d and took %d µs; the coordinator has %d and %d µs",
				all.Round, sent, received, longest, all.BytesSent, all.Duration)
		}
	}
}

// TestSidelinedCatchesUp slows a worker for two rounds: it is sidelined, gets
// the outer steps that it missed, and is back.
func TestSidelinedCatchesUp(t *testing.T) {
	for name, reduce := range map[string]string{
		"usual":      "",
		"fewer bits": "real:\n  all_reduce: {algorithm: direct, bits: 4, entropy: on, error_feedback: true, connections: 2}\n  ",
		"groups":     "real:\n  links: {groups: {a: {nodes: [w0, w2]}, b: {nodes: [w1]}}}\n  all_reduce: {algorithm: hierarchical, error_feedback: true}\n  ",
	} {
		t.Run(name, func(t *testing.T) {
			sidelinedCatchesUp(t, strings.Replace(threeWorkers, "real: {time_scale: 50, parameters: 10007}", cmp.Or(reduce, "real:\n  ")+"time_scale: 50\n  parameters: 10007\n", 1))
		})
	}
}

func sidelinedCatchesUp(t *testing.T, text string) {
	s := parse(t, text)
	s.Workers[2].JoinAt = 0
	s.TargetOuterSteps = 5
	straggler(s).Quorum = 0.5
	s.Real.MinSlack = shaping.Duration(300 * time.Millisecond) // who is not slow is not late
	sum, events := play(t, s, scenarios.Straggler, func(c *cluster, e record.Event) {
		switch {
		case e.Type == record.OuterStep && e.Round == 1:
			c.commands[2] <- Command{Op: OpSlow, At: e.T, Factor: 16}
		case e.Type == record.RoundClose && e.Round == 2:
			c.commands[2] <- Command{Op: OpRestore, At: e.T}
		}
	})
	if !sum.Complete || !*sum.BitIdentical || len(sum.Evicted) > 0 {
		t.Errorf("complete %v, bit-identical %v, evicted %v", sum.Complete, *sum.BitIdentical, sum.Evicted)
	}
	if len(sum.Sidelined) == 0 || len(sum.Rejoined) == 0 || sum.Sidelined[0].ID != 2 || sum.Rejoined[0].ID != 2 {
		t.Errorf("sidelined %v, rejoined %v", sum.Sidelined, sum.Rejoined)
	}
	last := sum.Rounds[len(sum.Rounds)-1]
	if !slices.Contains(last.Participants, 2) {
		t.Errorf("the last round had %v", last.Participants)
	}
	if !slices.ContainsFunc(events, func(e record.Event) bool { return e.Type == record.FetchDone && e.Node == "w2" }) {
		t.Error("w2 fetched nothing")
	}
}

func TestLeave(t *testing.T) {
	s := parse(t, threeWorkers)
	s.Workers[2].JoinAt = 0
	sum, _ := play(t, s, scenarios.Baseline, func(c *cluster, e record.Event) {
		if e.Type == record.OuterStep && e.Round == 1 {
			c.commands[1] <- Command{Op: OpLeave}
		}
	})
	if !sum.Complete || len(sum.Evicted) != 1 || sum.Evicted[0].Reason != policy.RuleLeave {
		t.Errorf("complete %v, evicted %v", sum.Complete, sum.Evicted)
	}
}

// TestStrangersAreRefused dials the coordinator with a certificate of another
// run, and with that of another worker.
func TestStrangersAreRefused(t *testing.T) {
	ours, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	issue := func(a *identity.Authority, name string) identity.Credentials {
		c, err := a.Issue(name)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	coordinator := issue(ours, policy.CoordinatorNode)
	stranger := issue(theirs, "w0")
	stranger.CA = coordinator.CA // it trusts us; we must not trust it
	for name, credentials := range map[string]identity.Credentials{"of another run": stranger, "of another worker": issue(ours, "w1")} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			control := loopback(t)
			serverTLS, err := coordinator.TLS()
			if err != nil {
				t.Fatal(err)
			}
			clientTLS, err := credentials.TLS()
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				done <- RunCoordinator(ctx, CoordinatorConfig{
					CoordinatorSettings: NewCoordinatorSettings(testscenario.Resolve(t, parse(t, threeWorkers), scenarios.Baseline)), Conn: control, TLS: serverTLS,
					Log: slog.New(slog.DiscardHandler), Report: func(r Report) {
						if r.Event != nil {
							t.Errorf("the stranger caused %+v", r.Event)
						}
					},
				})
			}()
			commands := make(chan Command, 1)
			commands <- Command{Op: OpJoin}
			err = RunWorker(ctx, WorkerConfig{
				WorkerSettings: workerSettings(t, parse(t, threeWorkers), 0, 0), Coordinator: netip.MustParseAddrPort(control.LocalAddr().String()),
				Control: loopback(t), Ring: loopback(t), Fetch: loopback(t), TLS: clientTLS, Commands: commands,
				Log: slog.New(slog.DiscardHandler), Report: func(Report) {},
			})
			if err == nil {
				t.Error("the coordinator took the stranger in")
			}
			cancel()
			<-done
		})
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"type":"hello","protocol":1,"id":3,"ring":"10.0.0.5:7001","fetch":"10.0.0.5:7002"}`))
	f.Add([]byte(`{"type":"reduce","round":2,"epoch":7,"peers":[{"id":0,"addr":"10.0.0.2:7001"}]}`))
	f.Add([]byte(`{"type":"heartbeat","epoch":3,"bytes":1500,"peer":1}`))
	f.Add([]byte(`{"type":"fetch","outer_steps":2,"peers":[{"id":0,"addr":"10.0.0.2:7002"},{"id":1,"addr":"[::1]:7002"}]}`))
	f.Add([]byte(`{"type":"start","round":-1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseMessage(line)
		if err != nil {
			return
		}
		if m.ID < 0 || m.Round < 0 || m.Epoch < 0 || m.OuterSteps < 0 || len(m.Peers) > maxRing {
			t.Errorf("%q was accepted as %+v", line, m)
		}
	})
}

// straggler is the parameters of the straggler policy, to be changed in place.
func straggler(s *scenarios.Scenario) *policy.Straggler {
	return s.Policy.Parameters[scenarios.Straggler].(*policy.Straggler)
}
