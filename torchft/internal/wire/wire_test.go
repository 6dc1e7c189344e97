package wire_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"testbed/internal/testenv"
	"testbed/torchft"
	"testbed/torchft/internal/wire"
)

// TestGeneratedCodeIsOfThisFile: torchft.pb.go says what torchft.proto says.
func TestGeneratedCodeIsOfThisFile(t *testing.T) {
	if _, err := exec.LookPath("protoc"); err != nil {
		testenv.Need(t, errors.New("no protoc is installed (apt-get install protobuf-compiler libprotobuf-dev)"))
	}
	out := filepath.Join(t.TempDir(), "set")
	if text, err := exec.Command("protoc", "--descriptor_set_out="+out, "torchft.proto").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	if generated := protodesc.ToFileDescriptorProto(wire.File_torchft_proto); !proto.Equal(generated, set.File[0]) {
		t.Error("torchft.pb.go is of another torchft.proto; generate it again as the proto file says")
	}
}

// TestNumbersAreTorchfts: bytes written by hand from torchft's table of fields.
func TestNumbersAreTorchfts(t *testing.T) {
	member := "\x0a\x01r\x12\x01a\x1a\x01s\x20\x05\x28\x02\x30\x01\x3a\x01d\x40\x03"
	want := torchft.Member{ReplicaID: "r", Address: "a", StoreAddress: "s", Step: 5, WorldSize: 2, ShrinkOnly: true, Data: "d", CommitFailures: 3}
	var m wire.QuorumMember
	if err := proto.Unmarshal([]byte(member), &m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, m.Core()); diff != "" {
		t.Errorf("member: %s", diff)
	}
	three, zero := 3, 0
	results := wire.NewResults(&torchft.Results{
		QuorumID: 1, RecoverSrcManagerAddress: "m", RecoverSrcReplicaRank: &three, RecoverDstReplicaRanks: []int{1, 2}, StoreAddress: "s",
		MaxStep: 6, MaxReplicaRank: &zero, MaxWorldSize: 8, ReplicaRank: 9, ReplicaWorldSize: 10, Heal: true, CommitFailures: 12, ReplicaIDs: []string{"x", "y"},
	})
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(results)
	if want := "\x08\x01\x12\x01m\x18\x03\x22\x02\x01\x02\x2a\x01s\x30\x06\x38\x00\x40\x08\x48\x09\x50\x0a\x58\x01\x60\x0c\x6a\x01x\x6a\x01y"; err != nil || string(data) != want {
		t.Errorf("results are written as %q, want %q (%v)", data, want, err)
	}
}

// TestEncodedOnce: an Encoded is written as the message that it was made of.
func TestEncodedOnce(t *testing.T) {
	q := &torchft.Quorum{ID: 3, Participants: []torchft.Member{{ReplicaID: "a", Step: 1}, {ReplicaID: "b"}}}
	message := &wire.LighthouseQuorumResponse{Quorum: wire.NewQuorum(q, time.Unix(5, 6))}
	encoded, err := wire.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	var codec wire.Codec
	for _, v := range []any{encoded, message} {
		data, err := codec.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got wire.LighthouseQuorumResponse
		if err := codec.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*q, got.Quorum.Core()); diff != "" || !got.Quorum.Created.AsTime().Equal(time.Unix(5, 6)) {
			t.Errorf("%T: %s", v, diff)
		}
	}
	if err := codec.Unmarshal(nil, 5); err == nil {
		t.Error("5 was decoded into")
	}
}

func TestRank(t *testing.T) {
	for n, want := range map[int64]int{0: 0, 7: 7, math.MaxInt32: math.MaxInt32, -1: -1, math.MinInt64: -1, 1 << 31: -1, math.MaxInt64: -1} {
		if got := wire.Rank(n); got != want {
			t.Errorf("rank %d is %d, want %d", n, got, want)
		}
	}
}

// FuzzDecode: whatever bytes come, a message is refused or means the same when it
// is written and read again, and takes no more memory than its bytes allow.
func FuzzDecode(f *testing.F) {
	q := wire.NewQuorum(&torchft.Quorum{ID: 1, Participants: []torchft.Member{{ReplicaID: "a", Address: "b", Step: -1, WorldSize: 1 << 60}}}, time.Unix(1, 2))
	for _, m := range []proto.Message{
		&wire.LighthouseQuorumRequest{Requester: q.Participants[0]}, &wire.LighthouseQuorumResponse{Quorum: q},
		&wire.ManagerQuorumRequest{GroupRank: -1, CheckpointMetadata: "x", InitSync: true}, &wire.KillRequest{Msg: "m"},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-1])
	}
	f.Add([]byte("\x0a\xff\xff\xff\xff\x0f"))
	f.Add(bytes.Repeat([]byte("\x0a\x00"), 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		var codec wire.Codec
		in := mem.BufferSlice{mem.SliceBuffer(data)}
		var request wire.LighthouseQuorumRequest
		if codec.Unmarshal(in, &request) == nil && request.Requester != nil {
			m := request.Requester.Core()
			if again := wire.NewMember(&m); !proto.Equal(again, request.Requester) {
				t.Errorf("%v became %v", request.Requester, again)
			}
			if n := len(m.ReplicaID) + len(m.Address) + len(m.StoreAddress) + len(m.Data); n > len(data) {
				t.Errorf("%d bytes of strings came of %d bytes", n, len(data))
			}
			if !strings.HasPrefix(strings.ToValidUTF8(m.ReplicaID, "?"), m.ReplicaID) {
				t.Errorf("replica id %q is not UTF-8", m.ReplicaID)
			}
		}
		var response wire.LighthouseQuorumResponse
		if codec.Unmarshal(in, &response) == nil {
			core := response.Quorum.Core()
			for rank := range min(len(core.Participants), 2) {
				if r, err := core.Results(core.Participants[rank].ReplicaID, rank, true); err == nil {
					wire.NewResults(r)
				}
			}
		}
		var rank wire.ManagerQuorumRequest
		if codec.Unmarshal(in, &rank) == nil && int64(wire.Rank(rank.GroupRank)) != rank.GroupRank && wire.Rank(rank.GroupRank) != -1 {
			t.Errorf("rank %d became %d", rank.GroupRank, wire.Rank(rank.GroupRank))
		}
	})
}
