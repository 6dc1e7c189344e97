package lighthouse

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"testbed/policy"
	"testbed/torchft"
	"testbed/torchft/internal/wire"
)

// TestSession plays a recorded life of torchft's lighthouse over gRPC: calls
// come when they came then, by a clock that the test sets, and every caller gets
// the quorum that was recorded.
func TestSession(t *testing.T) {
	data, err := os.ReadFile("../testdata/sessions/seed104.json")
	if err != nil {
		t.Fatal(err)
	}
	var session struct {
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
		Quorums []struct {
			T       float64 `json:"t_ms"`
			ID      int64   `json:"quorum_id"`
			Members []string
		}
	}
	if err := json.Unmarshal(data, &session); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, Config{
		Config: torchft.Config{
			MinReplicas: session.Config.MinReplicas, JoinTimeout: policy.Time(session.Config.JoinTimeout) * ms,
			HeartbeatTimeout: policy.Time(session.Config.HeartbeatTimeout) * ms, Compat: true,
		},
		Tick: 24 * time.Hour, // the test ticks
	})
	var now, looked atomic.Int64
	s.clock = func() policy.Time { // once for each event
		looked.Add(1)
		return policy.Time(now.Load())
	}
	c, _ := start(t, s)
	var answers []<-chan outcome
	period := int64(session.Config.Tick) * int64(ms)
	next := period
	tickTo := func(at int64) {
		for ; next < at; next += period {
			now.Store(next)
			s.mu.Lock()
			s.step(torchft.Tick{})
			s.mu.Unlock()
		}
		now.Store(at)
	}
	for _, e := range session.Events {
		tickTo(int64(e.T * float64(ms)))
		if e.Op == "beat" {
			if err := c.Invoke(t.Context(), wire.Heartbeat, &wire.LighthouseHeartbeatRequest{ReplicaId: e.ID}, &wire.LighthouseHeartbeatResponse{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		m := &wire.QuorumMember{ReplicaId: e.ID, Step: e.Step, CommitFailures: e.CommitFailures, ShrinkOnly: e.ShrinkOnly}
		before := looked.Load()
		answers = append(answers, ask(t.Context(), c, m))
		for end := time.Now().Add(patience); looked.Load() == before; time.Sleep(100 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatal("a request does not arrive")
			}
		}
		s.view() // waits until the event has been taken in
	}
	tickTo(int64(session.Quorums[len(session.Quorums)-1].T*float64(ms)) + 2*period)

	got := map[string]string{} // by when it was issued
	var order []string
	for _, answer := range answers {
		select {
		case o := <-answer:
			if o.err != nil {
				t.Fatal(o.err)
			}
			at := fmt.Sprintf("%020d", o.quorum.Created.AsTime().UnixNano())
			if got[at] == "" {
				order = append(order, at)
			}
			text := fmt.Sprint(o.quorum.QuorumId)
			for _, p := range o.quorum.Participants {
				text += fmt.Sprintf(" %s@%d", p.ReplicaId, p.Step)
			}
			got[at] = text
		case <-time.After(patience): // it waits for a quorum that never came
		}
	}
	slices.Sort(order)
	for i := range max(len(order), len(session.Quorums)) {
		if i >= len(order) || i >= len(session.Quorums) {
			t.Fatalf("%d quorums were answered, recorded were %d", len(order), len(session.Quorums))
		}
		q := session.Quorums[i]
		if want := fmt.Sprint(q.ID) + " " + strings.Join(q.Members, " "); got[order[i]] != want {
			t.Fatalf("quorum %d is %s, recorded was %s", i, got[order[i]], want)
		}
	}
}
