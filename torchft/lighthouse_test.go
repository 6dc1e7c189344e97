package torchft_test

import (
	"reflect"
	"testing"

	"testbed/torchft"
)

// TestOverlap: with a join timeout above the others' step, newcomers wait for
// them, take the fast path with them and heal from them.
func TestOverlap(t *testing.T) {
	l := overlap(t, 10_000)
	l.at(3000, beat("a", "b", "c", "d", "e")...)
	l.at(6000, askAt(50, "a", "b")...)
	if want := []any{2., []any{"a", "b", "c", "d", "e"}}; !reflect.DeepEqual(l.got(), want) || l.reason.Rule != torchft.RuleFastQuorum {
		t.Fatalf("%v because of %v, want %v", l.got(), l.reason, want)
	}
	q, _ := l.Last()
	for i, want := range map[string]int{"c": 0, "d": 1, "e": 0} {
		r, err := q.Results(i, 0, true)
		if err != nil || r.MaxStep != 50 || !r.Heal || *r.RecoverSrcReplicaRank != want {
			t.Errorf("%s: %+v, %v; want it to heal from replica %d", i, r, err, want)
		}
	}
}

// TestGhost: b gives its call up and lives on. In torchft it is in the next
// quorum, whose collectives wait for it in vain.
func TestGhost(t *testing.T) {
	for compat, want := range map[bool][]any{true: {"a", "b", "c"}, false: {"a", "c"}} {
		l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: 1000 * ms, HeartbeatTimeout: 5000 * ms, Compat: compat})
		l.at(0, beat("a", "b", "c")...)
		l.at(0, ask("a", "b")...)
		l.at(500, torchft.Cancel{ReplicaID: "b"})
		l.at(600, ask("c")...)
		l.at(1000, tick...)
		if q, _ := l.Last(); !reflect.DeepEqual(ids(q), any(want)) {
			t.Errorf("compat %t: %v, want %v", compat, ids(q), want)
		}
	}
}

// TestEmptyQuorum: j wants nobody to come in, and nobody who was in is there.
// torchft issues a quorum of nobody with a new id, and another at every tick.
func TestEmptyQuorum(t *testing.T) {
	for compat, want := range map[bool]int{true: 1 + 4, false: 1} {
		l := newLife(t, torchft.Config{MinReplicas: 1, JoinTimeout: 100 * ms, HeartbeatTimeout: 5000 * ms, Compat: compat})
		l.at(0, ask("a")...)
		l.at(6000, torchft.Request{Member: torchft.Member{ReplicaID: "j", ShrinkOnly: true}})
		for range 3 {
			l.at(6100, tick...)
		}
		q, _ := l.Last()
		if len(l.issued) != want || compat && (q.ID != 2 || len(q.Participants) != 0) || !compat && l.reason.Rule != torchft.RuleEmptyQuorum {
			t.Errorf("compat %t: %d quorums, the last %+v because of %v", compat, len(l.issued), q, l.reason)
		}
	}
}

func TestReasonsCanBeRead(t *testing.T) {
	l := straggler(t)
	want := "the lighthouse waits for live replicas that do not ask yet (join_timeout, min_replicas=2) [3/3 participants healthy][4 healthy heartbeating][shrink_only=false]"
	if got := l.reason.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBadConfigs(t *testing.T) {
	for _, cfg := range []torchft.Config{
		{HeartbeatTimeout: 1}, {MinReplicas: 1}, {MinReplicas: 1, HeartbeatTimeout: 1, JoinTimeout: -1},
	} {
		if _, err := torchft.New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	for _, cfg := range []torchft.ManagerConfig{{}, {WorldSize: 1, QuorumRetries: -1}} {
		if _, err := torchft.NewManager(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
