package torchft_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"testbed/policy"
	"testbed/torchft"
)

// session is a recorded life of torchft's lighthouse.
type session struct {
	Config struct {
		MinReplicas      int `json:"min_replicas"`
		JoinTimeout      int `json:"join_timeout_ms"`
		HeartbeatTimeout int `json:"heartbeat_timeout_ms"`
		Tick             int `json:"quorum_tick_ms"`
	}
	Events []struct {
		T              float64 `json:"t_ms"`
		Op, ID         string
		Step           int64
		CommitFailures int64 `json:"commit_failures"`
		ShrinkOnly     bool  `json:"shrink_only"`
	}
	Quorums []recorded
}

type recorded struct {
	T       float64 `json:"t_ms"`
	ID      int64   `json:"quorum_id"`
	Members []string
}

func (s *session) play(t testing.TB) (got []recorded) {
	l, err := torchft.New(torchft.Config{
		MinReplicas: s.Config.MinReplicas, JoinTimeout: policy.Time(s.Config.JoinTimeout) * ms,
		HeartbeatTimeout: policy.Time(s.Config.HeartbeatTimeout) * ms, Compat: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	step := func(now policy.Time, e torchft.Event) {
		for _, a := range l.Step(now, e) {
			if i, ok := a.(*torchft.Issue); ok {
				r := recorded{T: float64(now) / float64(ms), ID: i.Quorum.ID}
				for _, m := range i.Quorum.Participants {
					r.Members = append(r.Members, fmt.Sprintf("%s@%d", m.ReplicaID, m.Step))
				}
				got = append(got, r)
			}
		}
	}
	period := policy.Time(s.Config.Tick) * ms
	next := period
	for _, e := range s.Events {
		now := policy.Time(e.T * float64(ms))
		for ; next < now; next += period {
			step(next, torchft.Tick{})
		}
		if e.Op == "beat" {
			step(now, torchft.Heartbeat{ReplicaID: e.ID})
		} else {
			step(now, torchft.Request{Member: torchft.Member{ReplicaID: e.ID, Step: e.Step, CommitFailures: e.CommitFailures, ShrinkOnly: e.ShrinkOnly}})
		}
	}
	// What was recorded after the last event came with time.
	for end := policy.Time(s.Quorums[len(s.Quorums)-1].T*float64(ms)) + period; next <= end; next += period {
		step(next, torchft.Tick{})
	}
	return got
}

// latency is within what a client noted a quorum's time after it was issued, in
// milliseconds: those of ticks lie up to 2.6 ms after a multiple of the tick.
const latency = 3

// TestSessions: in virtual time the recorded events give the recorded quorums,
// at their times but for a tick: a wait that ends at a tick exactly may have
// begun just after it.
func TestSessions(t *testing.T) {
	names, err := filepath.Glob("testdata/sessions/*.json")
	if err != nil || len(names) == 0 {
		t.Fatal("no sessions", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var s session
			if err := json.Unmarshal(data, &s); err != nil {
				t.Fatal(err)
			}
			got := s.play(t)
			for i := range max(len(got), len(s.Quorums)) {
				if i >= len(got) || i >= len(s.Quorums) {
					t.Fatalf("%d quorums, recorded were %d", len(got), len(s.Quorums))
				}
				g, w := got[i], s.Quorums[i]
				if off := w.T - g.T; g.ID != w.ID || !slices.Equal(g.Members, w.Members) || off < -float64(s.Config.Tick) || off > float64(s.Config.Tick)+latency {
					t.Fatalf("quorum %d is %v, recorded was %v", i, g, w)
				}
			}
		})
	}
}
