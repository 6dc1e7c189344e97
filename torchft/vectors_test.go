package torchft_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"testbed/policy"
	"testbed/torchft"
)

const ms = policy.Time(1000)

// life is a lighthouse with what it has decided.
type life struct {
	t testing.TB
	*torchft.Lighthouse
	reason *torchft.Reason // of the last action
	issued []torchft.Quorum
}

func newLife(t testing.TB, cfg torchft.Config) *life {
	t.Helper()
	l, err := torchft.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &life{t: t, Lighthouse: l}
}

// at plays events at a time in milliseconds.
func (l *life) at(t int, events ...torchft.Event) {
	for _, e := range events {
		for _, a := range l.Step(policy.Time(t)*ms, e) {
			l.reason = a.Why()
			if i, ok := a.(*torchft.Issue); ok {
				l.issued = append(l.issued, i.Quorum)
			}
		}
	}
}

// got is the last quorum as the vectors have it.
func (l *life) got() any {
	q, _ := l.Last()
	return []any{float64(q.ID), ids(q)}
}

func ids(q torchft.Quorum) any {
	names := []any{}
	for _, m := range q.Participants {
		names = append(names, m.ReplicaID)
	}
	return names
}

func ask(names ...string) (all []torchft.Event) {
	for _, n := range names {
		all = append(all, torchft.Request{Member: torchft.Member{ReplicaID: n}})
	}
	return all
}

func askAt(step int64, names ...string) (all []torchft.Event) {
	for _, n := range names {
		all = append(all, torchft.Request{Member: torchft.Member{ReplicaID: n, Step: step}})
	}
	return all
}

func beat(names ...string) (all []torchft.Event) {
	for _, n := range names {
		all = append(all, torchft.Heartbeat{ReplicaID: n})
	}
	return all
}

var tick = []torchft.Event{torchft.Tick{}}

// joined has all replicas live before the first asks, so that their first
// quorum is of all of them.
func (l *life) joined(at int, step int64, names ...string) {
	l.at(at, beat(names...)...)
	l.at(at, askAt(step, names...)...)
}

// vectors plays each story of testdata/vectors.json and returns what came of it,
// in the file's form.
var vectors = map[string]func(t testing.TB) any{
	"first": func(t testing.TB) any {
		l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: 1000 * ms, HeartbeatTimeout: 5000 * ms})
		l.joined(0, 0, "a", "b", "c", "d")
		return map[string]any{"got": l.got()}
	},
	"straggler_wait": func(t testing.TB) any {
		l := straggler(t)
		l.at(1499, tick...)
		return l.because()
	},
	"straggler_dropped": func(t testing.TB) any {
		l := straggler(t)
		at := 501
		for ; len(l.issued) == 1; at++ {
			l.at(at, tick...)
		}
		return map[string]any{"t": float64(at - 1), "got": l.got()}
	},
	"straggler_asks_alone": func(t testing.TB) any {
		l := straggler(t)
		l.at(1500, tick...)
		l.at(1600, ask("d")...)
		return l.because()
	},
	"dead_before_hb_timeout": func(t testing.TB) any {
		l := dead(t)
		l.at(4999, tick...)
		return l.because()
	},
	"dead_at_5000": func(t testing.TB) any {
		l := dead(t)
		l.at(5000, tick...)
		return map[string]any{"got": l.got()}
	},
	"two_lighthouses_min3": func(t testing.TB) any {
		reasons := map[string]any{}
		for name, replicas := range map[string][]string{"A": {"a", "b"}, "B": {"c", "d"}} {
			l := newLife(t, torchft.Config{MinReplicas: 3, JoinTimeout: 100 * ms, HeartbeatTimeout: 5000 * ms})
			l.joined(0, 0, replicas...)
			l.at(1000, tick...)
			reasons[name] = l.because()["reason"]
		}
		return reasons
	},
	"overlap_join100": func(t testing.TB) any {
		l := overlap(t, 100)
		l.at(1100, tick...)
		l.at(1200, tick...)
		q, _ := l.Last()
		r, err := q.Results("c", 0, true)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]any{"at_1200": ids(q), "max_step": float64(r.MaxStep), "lost_from": 50.}
	},
	"fast_ignores_min": func(t testing.TB) any {
		// Only shrink_only gets below min_replicas; then a alone goes on, with the
		// id that it was left with.
		l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: 100 * ms, HeartbeatTimeout: 5000 * ms})
		l.joined(0, 0, "a", "b")
		l.at(5000, beat("a", "c")...)
		l.at(5001, torchft.Request{Member: torchft.Member{ReplicaID: "a", ShrinkOnly: true}})
		l.at(5001, ask("c")...)
		left, _ := l.Last()
		l.at(5100, torchft.Cancel{ReplicaID: "c"})
		l.at(5200, ask("a")...)
		if len(l.issued) != 3 || l.reason.Rule != torchft.RuleFastQuorum || l.reason.Ready != 1 {
			t.Errorf("%d quorums, the last because of %v", len(l.issued), l.reason)
		}
		q, _ := l.Last()
		return map[string]any{"got": []any{float64(q.ID - left.ID + 1), ids(q)}}
	},
	"shrink_only": func(t testing.TB) any {
		l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: 1000 * ms, HeartbeatTimeout: 5000 * ms})
		l.joined(0, 0, "a", "b")
		l.at(100, ask("j")...)
		l.at(200, torchft.Request{Member: torchft.Member{ReplicaID: "a", ShrinkOnly: true}})
		l.at(300, ask("b")...)
		got := ids(l.issued[1])
		l.at(400, ask("a", "b")...)
		if joined := ids(l.issued[2]); !reflect.DeepEqual(joined, []any{"a", "b", "j"}) {
			t.Errorf("j still waits: the quorum after is of %v", joined)
		}
		return map[string]any{"got": got, "waiting": []any{"j"}}
	},
	"commit_failure_bump": func(t testing.TB) any {
		l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: 1000 * ms, HeartbeatTimeout: 5000 * ms})
		l.joined(0, 0, "a", "b")
		l.at(100, ask("a")...)
		l.at(100, torchft.Request{Member: torchft.Member{ReplicaID: "b", CommitFailures: 1}})
		return map[string]any{"before": float64(l.issued[0].ID), "after": float64(l.issued[1].ID)}
	},
	"recover_g0_a":   results(recovery, "a", 0),
	"recover_g0_c":   results(recovery, "c", 0),
	"recover_g0_d":   results(recovery, "d", 0),
	"recover_g1_b":   results(recovery, "b", 1),
	"recover_g1_c":   results(recovery, "c", 1),
	"init_sync_g0_a": results(begin, "a", 0),
	"init_sync_g0_b": results(begin, "b", 0),
	"init_sync_g1_a": results(begin, "a", 1),
	"init_sync_g1_b": results(begin, "b", 1),
	"restart_id_reuse": func(t testing.TB) any {
		cfg := torchft.Config{MinReplicas: 2, JoinTimeout: 1000 * ms, HeartbeatTimeout: 5000 * ms}
		before, after := newLife(t, cfg), newLife(t, cfg)
		before.joined(0, 0, "a", "b", "c")
		after.joined(2000, 1, "a", "b")
		return map[string]any{"before": before.got(), "after": after.got()}
	},
}

// because is a reason as the vectors have it.
func (l *life) because() map[string]any { return map[string]any{"reason": string(l.reason.Rule)} }

// straggler is a lighthouse where d of the last quorum lives and does not ask,
// while the others do since 500 ms.
func straggler(t testing.TB) *life {
	l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: 1000 * ms, HeartbeatTimeout: 5000 * ms})
	l.joined(0, 0, "a", "b", "c", "d")
	l.at(500, ask("a", "b", "c")...)
	return l
}

// dead is a lighthouse that has not heard of c since the last quorum, at 0.
func dead(t testing.TB) *life {
	l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: 60_000 * ms, HeartbeatTimeout: 5000 * ms})
	l.joined(0, 0, "a", "b", "c")
	l.at(1000, ask("a", "b")...)
	return l
}

// overlap is a lighthouse of which a and b, busy with a step, wait for nothing,
// while c, d and e ask for their first.
func overlap(t testing.TB, joinTimeout policy.Time) *life {
	l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: joinTimeout * ms, HeartbeatTimeout: 5000 * ms})
	l.joined(0, 49, "a", "b")
	l.at(900, beat("a", "b", "c", "d", "e")...)
	l.at(1000, ask("c", "d", "e")...)
	return l
}

// recovery and begin are the quorums of the vectors recover and init_sync.
var (
	recovery = torchft.Quorum{Participants: []torchft.Member{
		{ReplicaID: "a", StoreAddress: "a", Step: 5}, {ReplicaID: "b", StoreAddress: "b", Step: 5},
		{ReplicaID: "c", StoreAddress: "c", Step: 3}, {ReplicaID: "d", StoreAddress: "d"},
	}}
	begin = torchft.Quorum{Participants: []torchft.Member{
		{ReplicaID: "a", StoreAddress: "a"}, {ReplicaID: "b", StoreAddress: "b"}, {ReplicaID: "c", StoreAddress: "c"},
	}}
)

func results(q torchft.Quorum, replicaID string, groupRank int) func(t testing.TB) any {
	return func(t testing.TB) any {
		r, err := q.Results(replicaID, groupRank, true)
		if err != nil {
			t.Fatal(err)
		}
		dst := []any{}
		for _, d := range r.RecoverDstReplicaRanks {
			dst = append(dst, float64(d))
		}
		return map[string]any{
			"replica_rank": float64(r.ReplicaRank), "replica_world": float64(r.ReplicaWorldSize),
			"max_step": float64(r.MaxStep), "max_rank": orNull(r.MaxReplicaRank), "max_world": float64(r.MaxWorldSize),
			"store_of": r.StoreAddress, "heal": r.Heal, "src": orNull(r.RecoverSrcReplicaRank), "dst": dst,
		}
	}
}

func orNull(n *int) any {
	if n == nil {
		return nil
	}
	return float64(*n)
}

// TestVectors holds the package against vectors from an independent model of
// torchft's lighthouse.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) != len(vectors) {
		t.Errorf("%d vectors, but stories for %d", len(want), len(vectors))
	}
	for name, w := range want {
		t.Run(name, func(t *testing.T) {
			play := vectors[name]
			if play == nil {
				t.Fatal("there is no story for it")
			}
			if got := play(t); !reflect.DeepEqual(got, w) {
				t.Errorf("got  %v\nwant %v", got, w)
			}
		})
	}
}
