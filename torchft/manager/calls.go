package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"testbed/torchft"
	"testbed/torchft/internal/wire"
	"testbed/torchft/port"
)

func (s *Server) checkpointMetadata(_ context.Context, r *wire.CheckpointMetadataRequest) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	metadata, err := s.core.CheckpointMetadata(wire.Rank(r.Rank))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "rank not found: %v", err)
	}
	return &wire.CheckpointMetadataResponse{CheckpointMetadata: metadata}, nil
}

// shouldCommit answers a rank when all of its group have voted.
func (s *Server) shouldCommit(ctx context.Context, r *wire.ShouldCommitRequest) (any, error) {
	v := &vote{wire.Rank(r.GroupRank), make(chan bool, 1)}
	s.mu.Lock()
	s.voting = append(s.voting, v)
	if err := s.step(torchft.Vote{GroupRank: v.groupRank, Commit: r.ShouldCommit}); err != nil {
		s.withdraw(v)
		s.mu.Unlock()
		return nil, err
	}
	s.mu.Unlock()
	var gone error
	select {
	case commit := <-v.decision:
		return &wire.ShouldCommitResponse{ShouldCommit: commit}, nil
	case <-ctx.Done():
		gone = ctx.Err()
	case <-s.ctx.Done():
		gone = errEnding
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.withdraw(v) {
		s.step(torchft.VoteCancel{GroupRank: v.groupRank})
		return nil, gone
	}
	return &wire.ShouldCommitResponse{ShouldCommit: <-v.decision}, nil // meanwhile
}

// withdraw removes a call from those that wait for the decision. It reports
// whether it waited.
func (s *Server) withdraw(v *vote) bool {
	i := slices.Index(s.voting, v)
	if i >= 0 {
		s.voting = slices.Delete(s.voting, i, i+1)
	}
	return i >= 0
}

// kill ends the process, and answers nothing.
func (s *Server) kill(ctx context.Context, right port.KillRight, r *wire.KillRequest) (any, error) {
	if err := right.CheckCall(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	s.cfg.Exit(r.Msg)
	<-s.ctx.Done() // if that takes a moment
	return nil, errEnding
}

// killTimeout is how long the connection to a manager that is to be killed may
// take.
const killTimeout = 10 * time.Second

// Kill ends the process of the manager at an address. A manager that is killed
// does not answer: that the connection ends is what shows it.
func Kill(ctx context.Context, address, why, token string) error {
	conn, err := port.Dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(port.WithToken(ctx, token), killTimeout)
	defer cancel()
	if err := port.Ready(ctx, conn); err != nil {
		return err
	}
	err = conn.Invoke(ctx, wire.Kill, &wire.KillRequest{Msg: why}, &wire.KillResponse{})
	if err != nil && status.Code(err) != codes.Unavailable {
		return fmt.Errorf("calling Kill at %s: %w", address, err)
	}
	return nil
}
