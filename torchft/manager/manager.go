// Package manager serves the ranks of a replica group: it turns their calls,
// and the lighthouse's answers, into events of torchft.Manager, and carries out
// its actions.
//
//	ranks ──Quorum, ShouldCommit──► quorum.Manager ──Ask──► lighthouse
//	                  heartbeats ───────────────────────►
package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"testbed/policy"
	"testbed/torchft"
	"testbed/torchft/internal/wire"
	"testbed/torchft/port"
)

// heartbeatTimeout ends a heartbeat that is not answered, as torchft's client
// does.
const heartbeatTimeout = 5 * time.Second

// Config are the parameters of a server. All except KillToken and Log are
// required.
type Config struct {
	torchft.ManagerConfig
	Lighthouse        string // its address, such as http://host:29510
	HeartbeatInterval time.Duration
	ConnectTimeout    time.Duration // of a connection to the lighthouse
	// KillToken is the secret that allows a caller to end the process. Without a
	// token, that is possible on loopback only.
	KillToken string
	// Exit ends the process, for the reason that a caller of Kill gave.
	Exit func(why string)
	// Log receives lines about events that no caller is answered about.
	Log func(line string)
}

// Validate reports a wrong parameter, if there is one.
func (c *Config) Validate() error {
	switch {
	case c.HeartbeatInterval <= 0:
		return fmt.Errorf("heartbeat_interval_ms is %d: it must be above 0", c.HeartbeatInterval.Milliseconds())
	case c.ConnectTimeout <= 0:
		return fmt.Errorf("connect_timeout_ms is %d: it must be above 0", c.ConnectTimeout.Milliseconds())
	}
	_, err := torchft.NewManager(c.ManagerConfig)
	return err
}

// Server is a manager.
type Server struct {
	cfg        Config
	begun      time.Time        // time 0 of the core
	heartbeats *grpc.ClientConn // for heartbeats, so that no quorum holds them up

	mu      sync.Mutex
	core    *torchft.Manager
	waiting port.Waiting[int, answer] // for a quorum, by group rank
	voting  port.Waiting[int, bool]   // for the group's decision, by group rank
	asks    *grpc.ClientConn          // of calls for quorums
	running sync.WaitGroup            // calls to the lighthouse
	ctx     context.Context           // of Serve
}

// answer is the answer to a call of a rank.
type answer struct {
	results *wire.ManagerQuorumResponse
	err     error
}

// errEnding answers waiting calls when the server ends.
var errEnding = status.Error(codes.Unavailable, "the manager is ending")

// New returns a manager that is connected to its lighthouse.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	core, err := torchft.NewManager(cfg.ManagerConfig)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = func(string) {}
	}
	s := &Server{cfg: cfg, begun: time.Now(), core: core}
	s.waiting, s.voting = port.NewWaiting[int, answer](&s.mu), port.NewWaiting[int, bool](&s.mu)
	if s.asks, err = connect(ctx, &cfg); err != nil {
		return nil, err
	}
	if s.heartbeats, err = port.Dial(cfg.Lighthouse); err != nil {
		_ = s.asks.Close()
		return nil, err
	}
	return s, nil
}

func connect(ctx context.Context, cfg *Config) (*grpc.ClientConn, error) {
	conn, err := port.Dial(cfg.Lighthouse)
	if err != nil {
		return nil, fmt.Errorf("connecting to the lighthouse: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	if err := port.Ready(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connecting to the lighthouse: %w", err)
	}
	return conn, nil
}

// Serve answers on a listener, which it closes, until the context is done. A
// server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	s.ctx = ctx
	s.running.Go(func() { s.beat(ctx) })
	defer func() {
		cancel()
		s.running.Wait()
		_ = s.asks.Close()
		_ = s.heartbeats.Close()
	}()
	right := port.KillRight{Token: s.cfg.KillToken, Loopback: port.Loopback(l)}
	return port.Serve(ctx, l, http.NotFoundHandler(), port.Service(wire.ManagerService,
		port.Method("Quorum", s.quorum),
		port.Method("CheckpointMetadata", s.checkpointMetadata),
		port.Method("ShouldCommit", s.shouldCommit),
		port.Method("Kill", func(call context.Context, r *wire.KillRequest) (any, error) { return s.kill(call, right, r) }),
	))
}

// beat sends the lighthouse the group's heartbeats.
func (s *Server) beat(ctx context.Context) {
	request := &wire.LighthouseHeartbeatRequest{ReplicaId: s.cfg.ReplicaID}
	for {
		call, cancel := context.WithTimeout(ctx, heartbeatTimeout)
		// The connection comes back by itself. A lost heartbeat does not matter.
		_ = s.heartbeats.Invoke(call, wire.Heartbeat, request, &wire.LighthouseHeartbeatResponse{})
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.cfg.HeartbeatInterval):
		}
	}
}

func (s *Server) now() policy.Time { return policy.Time(time.Since(s.begun).Microseconds()) }

// step gives the core an event and carries out its actions, with the lock held.
// It returns why the event was refused, if it was.
func (s *Server) step(e torchft.ManagerEvent) (refused error) {
	for _, a := range s.core.Step(s.now(), e) {
		switch a := a.(type) {
		case *torchft.Ask:
			s.running.Go(func() { s.ask(a) })
		case *torchft.Answer:
			s.answer(a)
		case *torchft.GiveUp:
			s.cfg.Log(withoutQuorum(a))
		case *torchft.Decide:
			s.voting.AnswerAll(a.Commit)
		case *torchft.RefuseRank:
			refused = status.Error(codes.InvalidArgument, a.Err.Error())
		}
	}
	return refused
}

func (s *Server) answer(a *torchft.Answer) {
	to := answer{}
	if a.Err != nil {
		to.err = status.Error(codes.NotFound, a.Err.Error())
	} else {
		to.results = wire.NewResults(a.Results)
	}
	s.waiting.Answer(a.GroupRank, to)
}

// withoutQuorum describes the end of all tries.
func withoutQuorum(g *torchft.GiveUp) string {
	last, how := "its only try", "failed"
	if g.Tries > 1 {
		last = fmt.Sprintf("the last of its %d tries", g.Tries)
	}
	if g.TimedOut {
		how = "timed out"
	}
	return fmt.Sprintf("the manager got no quorum, because %s %s: the ranks get no answer, and wait until their own time-outs", last, how)
}

// quorum answers a rank when its group takes part in a quorum.
func (s *Server) quorum(ctx context.Context, r *wire.ManagerQuorumRequest) (any, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, status.Error(codes.InvalidArgument, "missing timeout")
	}
	rank := wire.Rank(r.GroupRank)
	a, err := s.waiting.Wait(ctx, s.ctx, errEnding, rank, func() error {
		return s.step(torchft.RankRequest{
			GroupRank: rank, Step: r.Step, CheckpointMetadata: r.CheckpointMetadata, ShrinkOnly: r.ShrinkOnly,
			InitSync: r.InitSync, CommitFailures: r.CommitFailures, Timeout: policy.Time(time.Until(deadline).Microseconds()),
		})
	}, func() { s.step(torchft.RankCancel{GroupRank: rank}) })
	if err != nil {
		return nil, err
	}
	return a.results, a.err
}

// ask calls the lighthouse when it is time, and reports the result to the core.
func (s *Server) ask(a *torchft.Ask) {
	select {
	case <-s.ctx.Done():
		return
	case <-time.After(time.Duration(a.At-s.now()) * time.Microsecond):
	}
	q, timedOut, err := s.call(a)
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.cfg.Log(fmt.Sprintf("asking the lighthouse for a quorum, try %d: %v", a.Retry+1, err))
		s.step(torchft.Failed{Call: a.Call, TimedOut: timedOut})
		return
	}
	s.step(torchft.Issued{Call: a.Call, Quorum: q})
}

// call makes one try, over a new connection if it is not the first.
func (s *Server) call(a *torchft.Ask) (q torchft.Quorum, timedOut bool, err error) {
	s.mu.Lock()
	old := s.asks
	s.mu.Unlock()
	conn := old
	if a.Retry > 0 {
		fresh, err := connect(s.ctx, &s.cfg)
		if err != nil {
			return q, false, err
		}
		s.mu.Lock()
		conn, s.asks = fresh, fresh
		s.mu.Unlock()
		_ = old.Close()
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Duration(a.Timeout)*time.Microsecond)
	defer cancel()
	var response wire.LighthouseQuorumResponse
	err = conn.Invoke(ctx, wire.LighthouseQuorum, &wire.LighthouseQuorumRequest{Requester: wire.NewMember(&a.Member)}, &response)
	if err == nil && response.Quorum == nil {
		err = errors.New("the lighthouse's answer has no quorum")
	}
	// A lighthouse that sees the deadline first says CANCELLED.
	code := status.Code(err)
	return response.Quorum.Core(), code == codes.DeadlineExceeded || code == codes.Canceled, err
}
