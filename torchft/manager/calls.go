package manager

import (
	"context"
	"fmt"
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
	rank := wire.Rank(r.GroupRank)
	commit, err := s.voting.Wait(ctx, s.ctx, errEnding, rank, func() error {
		return s.step(torchft.Vote{GroupRank: rank, Commit: r.ShouldCommit})
	}, func() { s.step(torchft.VoteCancel{GroupRank: rank}) })
	if err != nil {
		return nil, err
	}
	return &wire.ShouldCommitResponse{ShouldCommit: commit}, nil
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

// killTimeout limits the connection to a manager that is to be killed.
const killTimeout = 10 * time.Second

// Kill ends the process of the manager at an address. A killed manager does not
// answer: the end of the connection shows that it worked.
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
