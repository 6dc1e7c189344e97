package torchft_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/torchft"
)

// timed is an event with its time.
type timed struct {
	At policy.Time
	E  torchft.Event
}

func drawConfig(t *rapid.T) torchft.Config {
	return torchft.Config{
		MinReplicas:      rapid.IntRange(1, 4).Draw(t, "min_replicas"),
		JoinTimeout:      policy.Time(rapid.IntRange(0, 20).Draw(t, "join_timeout")),
		HeartbeatTimeout: policy.Time(rapid.IntRange(1, 30).Draw(t, "heartbeat_timeout")),
		Compat:           rapid.Bool().Draw(t, "compat"),
	}
}

func drawMember(t *rapid.T) torchft.Member {
	id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "id")
	return torchft.Member{
		ReplicaID: id, Address: "addr-" + id, StoreAddress: "store-" + id, WorldSize: 2,
		Step:           int64(rapid.IntRange(0, 3).Draw(t, "step")),
		ShrinkOnly:     rapid.IntRange(0, 9).Draw(t, "shrink_only") == 9,
		CommitFailures: int64(max(rapid.IntRange(-5, 2).Draw(t, "commit_failures"), 0)),
	}
}

func drawScript(t *rapid.T) (script []timed) {
	now := policy.Time(0)
	for range rapid.IntRange(1, 60).Draw(t, "events") {
		now += policy.Time(rapid.IntRange(0, 6).Draw(t, "passes"))
		m := drawMember(t)
		script = append(script, timed{now, rapid.SampledFrom([]torchft.Event{
			torchft.Request{Member: m}, torchft.Request{Member: m}, torchft.Heartbeat{ReplicaID: m.ReplicaID}, torchft.Cancel{ReplicaID: m.ReplicaID}, torchft.Tick{},
		}).Draw(t, "event")})
	}
	return script
}

// TestAgreesWithOracle: the lighthouse and a naive second one say the same to
// any events, with the same numbers.
func TestAgreesWithOracle(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		l, err := torchft.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		o := newOracle(cfg)
		var held torchft.Reason
		for i, s := range drawScript(t) {
			want := o.step(s.At, s.E)
			var issued *torchft.Quorum
			for _, a := range l.Step(s.At, s.E) {
				held = *a.Why()
				switch a := a.(type) {
				case *torchft.Issue:
					issued = &a.Quorum
				case *torchft.Refuse:
					t.Fatalf("event %d is refused: %v", i, a.Reason)
				}
			}
			if want == nil {
				if issued != nil {
					t.Fatalf("event %d %+v issues %+v", i, s, issued)
				}
				continue
			}
			if !reflect.DeepEqual(issued, want.quorum) || held != want.why {
				t.Fatalf("event %d %+v:\n%+v because of %v\nwant\n%+v because of %v", i, s, issued, held, want.quorum, want.why)
			}
		}
	})
}

// TestResultsAgreeWithOracle, and all ranks' results fit together: whoever heals
// is served by one that holds the state.
func TestResultsAgreeWithOracle(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.Custom(drawMember), 1, 5, func(m torchft.Member) string { return m.ReplicaID }).Draw(t, "members")
		slices.SortFunc(all, func(a, b torchft.Member) int { return int(a.ReplicaID[0]) - int(b.ReplicaID[0]) })
		q := torchft.Quorum{ID: 7, Participants: all}
		groupRank, initSync := rapid.IntRange(0, 9).Draw(t, "group_rank"), rapid.Bool().Draw(t, "init_sync")
		served, healed := map[int]int{}, map[int]int{}
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			got, err := q.Results(id, groupRank, initSync)
			want := oracleResults(q, id, groupRank, initSync)
			if !reflect.DeepEqual(got, want) || (err != nil) != (want == nil) {
				t.Fatalf("%s:\n%+v %v\nwant\n%+v", id, got, err, want)
			}
			if got == nil {
				continue
			}
			for _, dst := range got.RecoverDstReplicaRanks {
				served[dst] = got.ReplicaRank
			}
			if got.Heal {
				healed[got.ReplicaRank] = *got.RecoverSrcReplicaRank
			} else if got.MaxReplicaRank == nil {
				t.Fatalf("%s is behind and does not heal", id)
			}
		}
		if !reflect.DeepEqual(served, healed) {
			t.Fatalf("served %v, healed %v", served, healed)
		}
	})
}

// TestSameEventsSameActions, and a driver that ticks only when Next says so sees
// the quorums of one that ticks all the time.
func TestSameEventsSameActions(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		cfg.Compat = false
		script := drawScript(t)
		first, second := playAll(t, cfg, script, false), playAll(t, cfg, script, false)
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("%v\n%v", first, second)
		}
		if lazy := playAll(t, cfg, script, true); !reflect.DeepEqual(first, lazy) {
			t.Fatalf("ticks all the time:\n%v\nticks at Next:\n%v", first, lazy)
		}
	})
}

// playAll returns the quorums of a script, with their times. Ticks come at every
// microsecond, or at Next, until there is no further quorum at that time.
func playAll(t *rapid.T, cfg torchft.Config, script []timed, lazy bool) (got []string) {
	l, err := torchft.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	step := func(at policy.Time, e torchft.Event) (issued bool) {
		for _, a := range l.Step(at, e) {
			if i, ok := a.(*torchft.Issue); ok {
				issued = true
				got = append(got, fmt.Sprintf("%d: %+v %v", at, i.Quorum, i.Reason))
			}
		}
		return issued
	}
	now := policy.Time(0)
	for _, s := range append(script, timed{script[len(script)-1].At + 60, torchft.Tick{}}) {
		for now < s.At {
			at := now
			if lazy {
				next, ok := l.Next()
				if !ok || next >= s.At {
					break
				}
				at = max(at, next)
			}
			for step(at, torchft.Tick{}) {
			}
			if now = at + 1; lazy {
				now = at
				if next, ok := l.Next(); ok && next <= at {
					t.Fatalf("at %d the next tick is at %d, again", at, next)
				}
			}
		}
		now = s.At
		step(now, s.E)
	}
	return got
}

// TestNoQuorumBelowMinReplicas, unless somebody asks for shrink_only: that, and
// the fast path after it, look at the last quorum alone.
func TestNoQuorumBelowMinReplicas(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		l, err := torchft.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		shrunk := false
		for _, s := range drawScript(t) {
			if r, ok := s.E.(torchft.Request); ok {
				shrunk = shrunk || r.Member.ShrinkOnly
			}
			for _, a := range l.Step(s.At, s.E) {
				i, ok := a.(*torchft.Issue)
				if !ok {
					continue
				}
				n := len(i.Quorum.Participants)
				if !shrunk && n < cfg.MinReplicas || n == 0 && !cfg.Compat {
					t.Fatalf("a quorum of %d: %v", n, i.Reason)
				}
				if names := namesOf(i.Quorum.Participants); !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != n {
					t.Fatalf("participants %v", names)
				}
			}
		}
	})
}
