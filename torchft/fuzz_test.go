package torchft_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/torchft"
)

// feed takes numbers from a fuzzer's bytes.
type feed struct{ data []byte }

func (f *feed) byte() (b byte) {
	if len(f.data) > 0 {
		b, f.data = f.data[0], f.data[1:]
	}
	return b
}

// number is mostly small, and sometimes as extreme as there are.
func (f *feed) number() int64 {
	switch b := f.byte(); b {
	case 255:
		return math.MaxInt64
	case 254:
		return math.MinInt64
	default:
		return int64(int8(b))
	}
}

// FuzzLighthouse: no events, in whatever order and with whatever times, make the
// lighthouse panic, or issue a quorum that no rank can use.
func FuzzLighthouse(f *testing.F) {
	f.Add([]byte{1, 5, 9, 0, 1, 1, 'a', 0, 0, 0, 1, 1, 'b', 0, 0, 0, 3, 9})
	f.Add([]byte{2, 0, 9, 1, 1, 255, 'a', 254, 1, 255, 3, 254, 2, 1, 'a', 3, 255, 0, 255, 'b'})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &feed{data}
		l, err := torchft.New(torchft.Config{
			MinReplicas: int(in.number()), JoinTimeout: policy.Time(in.number()),
			HeartbeatTimeout: policy.Time(in.number()), Compat: in.byte()%2 == 1,
		})
		if err != nil {
			return
		}
		now := policy.Time(0)
		for len(in.data) > 0 {
			do := in.byte()
			now += policy.Time(in.number())
			id := string(rune(in.byte()))
			e := torchft.Event(torchft.Tick{})
			switch do % 4 {
			case 0:
				e = torchft.Heartbeat{ReplicaID: id}
			case 1:
				e = torchft.Request{Member: torchft.Member{ReplicaID: id, Step: in.number(), ShrinkOnly: in.byte()%2 == 1, CommitFailures: in.number()}}
			case 2:
				e = torchft.Cancel{ReplicaID: id}
			}
			for _, a := range l.Step(now, e) {
				i, ok := a.(*torchft.Issue)
				if !ok {
					continue
				}
				for _, m := range i.Quorum.Participants {
					if _, err := i.Quorum.Results(m.ReplicaID, int(max(in.number(), 0)), true); err != nil {
						t.Fatal(err)
					}
				}
			}
			l.Next()
		}
	})
}

// FuzzManager: no calls of ranks make a manager panic, and each is answered at
// most once.
func FuzzManager(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 4, 0, 1})
	f.Add([]byte{2, 1, 1, 0, 0, 5, 255, 1, 0, 0, 254, 3, 1, 3, 1, 5, 0, 5, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &feed{data}
		m, err := torchft.NewManager(torchft.ManagerConfig{ReplicaID: "a", WorldSize: int(in.byte()), QuorumRetries: int(in.number()), Compat: in.byte()%2 == 1})
		if err != nil {
			return
		}
		calls, answers, votes, decisions := 0, 0, 0, 0
		for len(in.data) > 0 {
			var e torchft.ManagerEvent
			do, groupRank := in.byte(), int(in.number())
			switch do % 6 {
			case 0:
				e = torchft.RankRequest{GroupRank: groupRank, Step: in.number(), InitSync: true, CommitFailures: in.number(), Timeout: policy.Time(in.number())}
				calls++
			case 1:
				e = torchft.RankCancel{GroupRank: groupRank}
			case 2:
				e = torchft.Issued{Call: groupRank, Quorum: torchft.Quorum{ID: in.number(), Participants: []torchft.Member{{ReplicaID: "a", Step: in.number()}, {ReplicaID: "b", Step: in.number()}}[:in.byte()%3]}}
			case 3:
				e = torchft.Failed{Call: groupRank, TimedOut: in.byte()%2 == 1}
			case 4:
				e = torchft.Vote{GroupRank: groupRank, Commit: in.byte()%2 == 1}
				votes++
			case 5:
				e = torchft.VoteCancel{GroupRank: groupRank}
			}
			for _, a := range m.Step(policy.Time(in.number()), e) {
				switch a := a.(type) {
				case *torchft.Answer:
					answers++
					if (a.Results == nil) == (a.Err == nil) {
						t.Fatalf("%+v", a)
					}
				case *torchft.Decide:
					decisions++
				}
			}
		}
		if answers > calls || decisions > votes {
			t.Fatalf("%d answers to %d calls, %d decisions on %d votes", answers, calls, decisions, votes)
		}
	})
}

// TestMemoryIsBounded: the lighthouse remembers so many ids and no more. While
// all of them live, others are refused; then the one silent for longest goes.
func TestMemoryIsBounded(t *testing.T) {
	for _, compat := range []bool{false, true} {
		l, err := torchft.New(torchft.Config{MinReplicas: math.MaxInt, HeartbeatTimeout: 100_000, Compat: compat})
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		add := func(now policy.Time, id string, e torchft.Event) {
			for _, a := range l.Step(now, e) {
				if r, ok := a.(*torchft.Refuse); ok {
					refused++
					if r.Rule != torchft.RuleTooManyReplicas || r.ReplicaID != id || r.Healthy != torchft.MaxReplicas {
						t.Fatalf("%+v", r)
					}
				}
			}
		}
		for i := range 2 * torchft.MaxReplicas {
			id := fmt.Sprint("early", i)
			add(policy.Time(i), id, torchft.Heartbeat{ReplicaID: id})
		}
		if refused != torchft.MaxReplicas || l.Known() != torchft.MaxReplicas {
			t.Fatalf("%d refused, %d known", refused, l.Known())
		}
		// One that is known lives on, however old it is, and one that waits.
		add(50_000, "early1", torchft.Heartbeat{ReplicaID: "early1"})
		add(50_001, "early2", torchft.Request{Member: torchft.Member{ReplicaID: "early2"}})
		for i := range 2 * torchft.MaxReplicas {
			id := fmt.Sprint("late", i)
			add(1_000_000+200_000*policy.Time(i), id, torchft.Heartbeat{ReplicaID: id})
		}
		if refused != torchft.MaxReplicas || l.Known() != torchft.MaxReplicas {
			t.Fatalf("%d refused, %d known", refused, l.Known())
		}
		if out := l.Step(0, torchft.Tick{}); len(out) != 1 || out[0].Why().Asking != 1 {
			t.Fatalf("%+v: early2 waits and is forgotten", out)
		}
	}
}

// TestForgottenReplicasComeBack to the quorum that they were in.
func TestForgottenReplicasComeBack(t *testing.T) {
	l := newLife(t, torchft.Config{MinReplicas: 2, JoinTimeout: 100 * ms, HeartbeatTimeout: 1000 * ms})
	l.joined(0, 0, "a", "b")
	for i := range torchft.MaxReplicas {
		l.at(1000, beat(fmt.Sprint("flood", i))...)
	}
	l.at(2000, ask("b", "a")...)
	if l.reason.Rule != torchft.RuleFastQuorum || len(l.issued) != 2 || l.issued[1].ID != 1 {
		t.Errorf("%+v because of %v", l.issued, l.reason)
	}
}

// TestTimeDoesNotGoBack: b's heartbeat counts as of 100 ms, and so b lives still.
func TestTimeDoesNotGoBack(t *testing.T) {
	l := newLife(t, torchft.Config{MinReplicas: 1, JoinTimeout: 100 * ms, HeartbeatTimeout: 50 * ms})
	l.at(100, beat("a")...)
	l.at(20, beat("b")...)
	l.at(110, ask("a")...)
	if l.reason.Healthy != 2 {
		t.Error(l.reason)
	}
}

func TestMembersAreBounded(t *testing.T) {
	l, err := torchft.New(torchft.Config{MinReplicas: 1, HeartbeatTimeout: 10})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", torchft.MaxMemberBytes+1)
	for _, e := range []torchft.Event{
		torchft.Heartbeat{ReplicaID: long},
		torchft.Request{Member: torchft.Member{ReplicaID: "a", Data: long}},
		torchft.Request{Member: torchft.Member{ReplicaID: "a", Address: long[:torchft.MaxMemberBytes]}},
	} {
		out := l.Step(0, e)
		if r, ok := out[0].(*torchft.Refuse); len(out) != 1 || !ok || r.Rule != torchft.RuleTooLarge || len(r.ReplicaID) > torchft.MaxMemberBytes {
			t.Errorf("%.40q", fmt.Sprint(e))
		}
	}
	if l.Known() != 0 {
		t.Errorf("%d known", l.Known())
	}
}
