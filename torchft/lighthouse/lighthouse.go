// Package lighthouse serves a job's quorums to torchft's clients: it turns
// calls and time into events of torchft.Lighthouse, and its actions into
// answers.
//
//	calls ──► Step(event) ──► answers      one lock; no other state decides
//	ticks ──►             ──► journal, history
package lighthouse

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"testbed/policy"
	"testbed/torchft"

	"testbed/torchft/internal/wire"
	"testbed/torchft/port"
)

// Config are the parameters of a server. Zero values switch the server's own
// features off.
type Config struct {
	torchft.Config
	Tick time.Duration // time between two Ticks of the core; positive
	// Journal is the file in which the last quorum survives the lighthouse.
	Journal string
	// KillToken is the secret that allows a caller to kill a replica through the
	// dashboard. Without a token, killing is possible on loopback only.
	KillToken string
	// Wide, if it is not nil, is called with true when there is work for more than
	// one processor, as at the start. It is called with false when there has been
	// none for a second: between quorums, unless very many replicas send
	// heartbeats. The server's lock is held during the call.
	Wide func(bool)
}

// Validate reports a wrong parameter, if there is one.
func (c *Config) Validate() error {
	if c.Tick <= 0 {
		return fmt.Errorf("quorum_tick_ms is %d: it must be above 0", c.Tick.Milliseconds())
	}
	_, err := torchft.New(c.Config)
	return err
}

// Server is a lighthouse.
type Server struct {
	cfg   Config
	clock func() policy.Time // of the core

	mu      sync.Mutex
	core    *torchft.Lighthouse
	waiting port.Waiting[string, wire.Encoded] // for a quorum, by replica id
	issued  time.Time                          // the last quorum
	width   width
	history history
	journal *journal
	failed  chan error // reason why it cannot go on
}

// errEnding answers waiting calls when the server ends.
var errEnding = status.Error(codes.Unavailable, "the lighthouse is ending")

// New returns a lighthouse, which goes on from its journal if there is one.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	core, err := torchft.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, clock: clock(), core: core, failed: make(chan error, 1), width: width{wide: true}}
	s.waiting = port.NewWaiting[string, wire.Encoded](&s.mu)
	j, last, err := openJournal(cfg.Journal)
	if err != nil {
		return nil, err
	}
	s.journal = j
	if last != nil {
		q := last.quorum()
		if err := core.Restore(q); err != nil {
			j.end()
			return nil, fmt.Errorf("reading the journal %s: %w", cfg.Journal, err)
		}
		s.issued = last.Issued
		s.history.add(last.Issued, &torchft.Issue{Quorum: q, Reason: torchft.Reason{Rule: last.Rule}}, torchft.Quorum{})
	}
	return s, nil
}

// Serve answers on a listener, which it closes, until the context is done or the
// journal cannot be written. A server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.journal.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	page := Dashboard{View: s.view, Kill: s.kill, Right: port.KillRight{Token: s.cfg.KillToken, Loopback: port.Loopback(l)}}
	service := port.Service(wire.LighthouseService,
		port.Method("Quorum", func(call context.Context, r *wire.LighthouseQuorumRequest) (any, error) {
			return s.quorum(ctx, call, r)
		}),
		port.Prompt("Heartbeat", s.heartbeat),
	)
	var failure error
	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		failure = s.tick(ctx)
	})
	err := port.Serve(ctx, l, page.Handler(), service)
	cancel()
	running.Wait()
	if failure != nil {
		return failure
	}
	return err
}

// tick sends the core Ticks, until something ends the server.
func (s *Server) tick(ctx context.Context) error {
	t := time.NewTicker(s.cfg.Tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case <-t.C:
			s.mu.Lock()
			s.step(torchft.Tick{})
			s.look()
			s.mu.Unlock()
		}
	}
}

// clock returns a clock that starts now.
func clock() func() policy.Time {
	begun := time.Now()
	return func() policy.Time { return policy.Time(time.Since(begun).Microseconds()) }
}

// step gives the core an event and carries out its actions, with the lock held.
// It returns why the event was refused, if it was.
func (s *Server) step(e torchft.Event) (refused error) {
	before, _ := s.core.Last()
	for _, a := range s.core.Step(s.clock(), e) {
		switch a := a.(type) {
		case *torchft.Issue:
			s.issue(a, before)
		case *torchft.Refuse:
			refused = refusal(a)
		}
	}
	return refused
}

func refusal(r *torchft.Refuse) error {
	if r.Rule == torchft.RuleTooLarge {
		return status.Errorf(codes.InvalidArgument, "the strings of replica %.100q have more than %d bytes together", r.ReplicaID, torchft.MaxMemberBytes)
	}
	return status.Errorf(codes.ResourceExhausted, "replica %.100q is not admitted: %v", r.ReplicaID, r.Reason)
}

// issue stores a quorum and answers all waiting calls with the same bytes.
func (s *Server) issue(i *torchft.Issue, before torchft.Quorum) {
	now := time.Now()
	if i.Quorum.ID != before.ID {
		if err := s.journal.add(newEntry(now, i)); err != nil {
			// The callers keep waiting: a quorum that may be forgotten does not count.
			select {
			case s.failed <- err:
			default:
			}
			return
		}
	}
	s.issued = now
	s.history.add(now, i, before)
	answer, err := wire.Encode(&wire.LighthouseQuorumResponse{Quorum: wire.NewQuorum(&i.Quorum, now)})
	if err != nil {
		return // a string is not UTF-8: no decoder accepts one
	}
	for _, m := range i.Quorum.Participants {
		s.waiting.Answer(m.ReplicaID, answer)
	}
}

func (s *Server) heartbeat(r *wire.LighthouseHeartbeatRequest) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.width.beats++
	if err := s.step(torchft.Heartbeat{ReplicaID: r.GetReplicaId()}); err != nil {
		return nil, err
	}
	return wire.Encoded{}, nil
}

// quorum answers a replica with the first quorum that it is in.
func (s *Server) quorum(server, ctx context.Context, r *wire.LighthouseQuorumRequest) (any, error) {
	if r.Requester == nil {
		return nil, status.Error(codes.InvalidArgument, "missing requester")
	}
	id := r.Requester.GetReplicaId()
	return s.waiting.Wait(ctx, server, errEnding, id, func() error {
		s.width.needed = time.Now()
		s.widen(true)
		return s.step(torchft.Request{Member: r.Requester.Core()})
	}, func() { s.step(torchft.Cancel{ReplicaID: id}) })
}
