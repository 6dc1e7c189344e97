package torchft_test

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/torchft"
)

// restored is a lighthouse that goes on from quorum 7 of a, b and c.
func restored(t *testing.T) *torchft.Lighthouse {
	t.Helper()
	l, err := torchft.New(torchft.Config{MinReplicas: 1, JoinTimeout: 100 * ms, HeartbeatTimeout: 5000 * ms})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Restore(torchft.Quorum{ID: 7, Participants: members("a", "b", "c")}); err != nil {
		t.Fatal(err)
	}
	return l
}

func members(ids ...string) (m []torchft.Member) {
	for _, id := range ids {
		m = append(m, torchft.Member{ReplicaID: id})
	}
	return m
}

// issued is the quorum that follows from an event, or nil.
func issued(actions []torchft.Action) *torchft.Issue {
	for _, a := range actions {
		if i, ok := a.(*torchft.Issue); ok {
			return i
		}
	}
	return nil
}

func asks(id string) torchft.Request { return torchft.Request{Member: torchft.Member{ReplicaID: id}} }

// TestRestoreKeepsTheQuorum: the same replicas go on with the same id, so that
// nobody configures a process group anew.
func TestRestoreKeepsTheQuorum(t *testing.T) {
	l := restored(t)
	if got := issued(append(l.Step(0, asks("a")), l.Step(1, asks("b"))...)); got != nil {
		t.Fatalf("without c there is already %v", got)
	}
	got := issued(l.Step(2, asks("c")))
	if got == nil || got.Quorum.ID != 7 || got.Rule != torchft.RuleFastQuorum {
		t.Fatalf("all of the last quorum ask, and get %v", got)
	}
}

// TestRestoreAwaitsTheOthers: who asks first does not begin alone, although
// min_replicas would let it, until the others are silent for too long.
func TestRestoreAwaitsTheOthers(t *testing.T) {
	l := restored(t)
	if got := issued(l.Step(0, asks("a"))); got != nil {
		t.Fatalf("a begins alone: %v", got)
	}
	if got := issued(l.Step(4999*ms, torchft.Tick{})); got != nil {
		t.Fatalf("a begins alone after 4,999 ms: %v", got)
	}
	l.Step(5000*ms-1, torchft.Heartbeat{ReplicaID: "a"})
	got := issued(l.Step(5000*ms, torchft.Tick{}))
	if got == nil || got.Quorum.ID != 8 || len(got.Quorum.Participants) != 1 {
		t.Fatalf("when b and c are dead, a gets %v", got)
	}
}

// TestRestoredGoesOnAsBefore: one that has just issued a quorum, and one that is
// restored from it, do the same with whatever comes.
func TestRestoredGoesOnAsBefore(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		ids := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(t, "replicas")]
		cfg.MinReplicas = len(ids)
		first, err := torchft.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			first.Step(0, asks(id))
		}
		last, ok := first.Last()
		second, err := torchft.New(cfg)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if err := second.Restore(last); err != nil {
			t.Fatal(err)
		}
		for i, s := range drawScript(t) {
			if a, b := first.Step(s.At, s.E), second.Step(s.At, s.E); len(a)+len(b) > 0 && !reflect.DeepEqual(a, b) {
				t.Fatalf("event %d %+v: %+v, restored: %+v", i, s, a, b)
			}
		}
	})
}

func TestRestoreRefuses(t *testing.T) {
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{nil, "0 participants"},
		{[]string{"b", "a"}, "not in order"},
		{[]string{"a", "a"}, "not in order"},
		{make([]string, torchft.MaxReplicas+1), "participants"},
	} {
		l, err := torchft.New(torchft.Config{MinReplicas: 1, HeartbeatTimeout: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Restore(torchft.Quorum{ID: 1, Participants: members(c.ids...)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("restoring %.20v: %v, want %q", c.ids, err, c.want)
		}
		if _, known := l.Look(0); len(known) > 0 {
			t.Errorf("a refused quorum left %d replicas", len(known))
		}
	}
	if err := restored(t).Restore(torchft.Quorum{ID: 1, Participants: members("x")}); err == nil {
		t.Error("a lighthouse in use was restored")
	}
}

func TestLook(t *testing.T) {
	l := restored(t)
	l.Step(10, asks("b"))
	why, all := l.Look(5000 * ms)
	if len(all) != 3 || all[0].Healthy || !all[1].Healthy || !all[1].Asking || all[1].Heartbeat != 10 || all[2].Asking {
		t.Errorf("replicas are %+v", all)
	}
	if why.Rule != torchft.RuleValidQuorum || why.Ready != 1 || why.Healthy != 1 {
		t.Errorf("a tick would say %v", why)
	}
}
