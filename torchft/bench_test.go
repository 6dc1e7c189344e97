package torchft_test

import (
	"fmt"
	"testing"

	"testbed/policy"
	"testbed/torchft"
)

// BenchmarkQuorum is one quorum of a thousand groups: ten heartbeats of each, a
// request of each, and what the quorum means for one of them.
func BenchmarkQuorum(b *testing.B) {
	const groups = 1000
	l, err := torchft.New(torchft.Config{MinReplicas: groups/2 + 1, JoinTimeout: 60_000 * ms, HeartbeatTimeout: 5000 * ms})
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, groups)
	for i := range names {
		names[i] = fmt.Sprintf("train_%d:0b7b4d9c-2b0f-4f7e-9d43-%012d", i*7919%groups, i)
	}
	now := policy.Time(0)
	heartbeats := func() {
		for range 10 {
			now += 100 * ms
			for _, id := range names {
				l.Step(now, torchft.Heartbeat{ReplicaID: id})
			}
		}
	}
	requests := func() {
		for i, id := range names {
			l.Step(now, torchft.Request{Member: torchft.Member{ReplicaID: id, Step: int64(i % 2)}})
		}
	}
	heartbeats()
	requests()
	q, _ := l.Last()
	if len(q.Participants) != groups {
		b.Fatalf("a quorum of %d", len(q.Participants))
	}
	b.Run("heartbeats", func(b *testing.B) {
		for b.Loop() {
			heartbeats()
		}
	})
	b.Run("requests", func(b *testing.B) {
		for b.Loop() {
			requests()
		}
	})
	b.Run("results", func(b *testing.B) {
		for b.Loop() {
			if _, err := q.Results(names[0], 0, true); err != nil {
				b.Fatal(err)
			}
		}
	})
}
