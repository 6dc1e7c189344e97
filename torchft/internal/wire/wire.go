// Package wire is the encoding of torchft's messages: those of torchft.proto,
// their conversion to the quorum's types, and the codec with which one encoded
// answer serves all waiting callers.
package wire

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec "proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"testbed/torchft"
)

// The services and their methods.
const (
	LighthouseService  = "torchft.LighthouseService"
	LighthouseQuorum   = "/" + LighthouseService + "/Quorum"
	Heartbeat          = "/" + LighthouseService + "/Heartbeat"
	ManagerService     = "torchft.ManagerService"
	ManagerQuorum      = "/" + ManagerService + "/Quorum"
	CheckpointMetadata = "/" + ManagerService + "/CheckpointMetadata"
	ShouldCommit       = "/" + ManagerService + "/ShouldCommit"
	Kill               = "/" + ManagerService + "/Kill"
)

// Encoded is a message in encoded form, which nobody changes any more.
type Encoded []byte

// Encode encodes a message.
func Encode(m proto.Message) (Encoded, error) { return proto.Marshal(m) }

// Codec writes messages as gRPC's own does, and Encoded as it is: a quorum of a
// thousand groups goes to a thousand callers, and is encoded once.
type Codec struct{}

// Name is the name of gRPC's own codec, and so of the content type.
func (Codec) Name() string { return "proto" }

// Marshal encodes a proto.Message or passes an Encoded on.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(Encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(e)}, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

// Unmarshal decodes a proto.Message. It drops unknown fields, so that they take
// no memory.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decoding a message: %T is not a protobuf message", v)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data.Materialize(), m)
}

// Core converts the member to the quorum's type.
func (x *QuorumMember) Core() torchft.Member {
	return torchft.Member{
		ReplicaID: x.GetReplicaId(), Address: x.GetAddress(), StoreAddress: x.GetStoreAddress(),
		Step: x.GetStep(), WorldSize: x.GetWorldSize(), ShrinkOnly: x.GetShrinkOnly(),
		Data: x.GetData(), CommitFailures: x.GetCommitFailures(),
	}
}

// NewMember converts a member to its message.
func NewMember(m *torchft.Member) *QuorumMember {
	return &QuorumMember{
		ReplicaId: m.ReplicaID, Address: m.Address, StoreAddress: m.StoreAddress,
		Step: m.Step, WorldSize: m.WorldSize, ShrinkOnly: m.ShrinkOnly,
		Data: m.Data, CommitFailures: m.CommitFailures,
	}
}

// Core converts the quorum to the manager's type.
func (x *Quorum) Core() torchft.Quorum {
	q := torchft.Quorum{ID: x.GetQuorumId(), Participants: make([]torchft.Member, 0, len(x.GetParticipants()))}
	for _, p := range x.GetParticipants() {
		q.Participants = append(q.Participants, p.Core())
	}
	return q
}

// NewQuorum converts a quorum, issued at this time, to its message.
func NewQuorum(q *torchft.Quorum, created time.Time) *Quorum {
	out := &Quorum{QuorumId: q.ID, Created: timestamppb.New(created), Participants: make([]*QuorumMember, 0, len(q.Participants))}
	for i := range q.Participants {
		out.Participants = append(out.Participants, NewMember(&q.Participants[i]))
	}
	return out
}

// NewResults converts a rank's results to their message.
func NewResults(r *torchft.Results) *ManagerQuorumResponse {
	out := &ManagerQuorumResponse{
		QuorumId:                 r.QuorumID,
		RecoverSrcManagerAddress: r.RecoverSrcManagerAddress,
		RecoverSrcReplicaRank:    wide(r.RecoverSrcReplicaRank),
		StoreAddress:             r.StoreAddress,
		MaxStep:                  r.MaxStep,
		MaxReplicaRank:           wide(r.MaxReplicaRank),
		MaxWorldSize:             int64(r.MaxWorldSize),
		ReplicaRank:              int64(r.ReplicaRank),
		ReplicaWorldSize:         int64(r.ReplicaWorldSize),
		Heal:                     r.Heal,
		CommitFailures:           r.CommitFailures,
		ReplicaIds:               r.ReplicaIDs,
	}
	for _, dst := range r.RecoverDstReplicaRanks {
		out.RecoverDstReplicaRanks = append(out.RecoverDstReplicaRanks, int64(dst))
	}
	return out
}

func wide(n *int) *int64 {
	if n == nil {
		return nil
	}
	w := int64(*n)
	return &w
}

// Rank converts a group rank. An impossible rank becomes -1.
func Rank(n int64) int {
	if n < 0 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}
