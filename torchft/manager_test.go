package torchft_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/torchft"
)

// groupOf is a manager of a group of two ranks.
func groupOf(t testing.TB, retries int, compat bool) *torchft.Manager {
	t.Helper()
	m, err := torchft.NewManager(torchft.ManagerConfig{ReplicaID: "b", Address: "addr-b", StoreAddress: "store-b", WorldSize: 2, QuorumRetries: retries, Compat: compat})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// transcript plays events, one each millisecond, and writes down what follows.
func transcript(m *torchft.Manager, events ...torchft.ManagerEvent) string {
	var lines []string
	for i, e := range events {
		line := fmt.Sprintf("%s:", strings.TrimPrefix(reflect.TypeOf(e).String(), "torchft."))
		for _, a := range m.Step(policy.Time(i)*ms, e) {
			switch a := a.(type) {
			case *torchft.Ask:
				line += fmt.Sprintf(" ask %d.%d at %d step %d failures %d", a.Call, a.Retry, a.At/ms, a.Member.Step, a.Member.CommitFailures)
			case *torchft.Answer:
				if a.Err != nil {
					line += fmt.Sprintf(" %d:%v", a.GroupRank, a.Err)
				} else {
					line += fmt.Sprintf(" %d:rank %d of %d heal=%t from %q", a.GroupRank, a.Results.ReplicaRank, a.Results.ReplicaWorldSize, a.Results.Heal, a.Results.RecoverSrcManagerAddress)
				}
			case *torchft.GiveUp:
				line += fmt.Sprintf(" give up %d after %d", a.Call, a.Tries)
			case *torchft.Decide:
				line += fmt.Sprintf(" commit=%t against %v", a.Commit, a.Against)
			case *torchft.RefuseRank:
				line += fmt.Sprintf(" refuse: %v", a.Err)
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestManager(t *testing.T) {
	four := torchft.Quorum{ID: 3, Participants: []torchft.Member{
		{ReplicaID: "a", Address: "addr-a", Step: 7}, {ReplicaID: "b", Address: "addr-b", Step: 5},
		{ReplicaID: "c", Address: "addr-c", Step: 7}, {ReplicaID: "d", Address: "addr-d", Step: 5},
	}}
	request := func(groupRank int, step int64) torchft.ManagerEvent {
		return torchft.RankRequest{GroupRank: groupRank, Step: step, CommitFailures: step - 4, Timeout: 900 * ms, CheckpointMetadata: fmt.Sprint("meta", groupRank)}
	}
	vote := func(groupRank int, commit bool) torchft.ManagerEvent {
		return torchft.Vote{GroupRank: groupRank, Commit: commit}
	}
	for name, c := range map[string]struct {
		retries int
		compat  bool
		events  []torchft.ManagerEvent
		want    string
	}{
		"the last rank speaks for the group, and the ranks heal from different groups": {
			events: []torchft.ManagerEvent{request(1, 4), request(0, 5), torchft.Issued{Call: 1, Quorum: four}},
			want: `RankRequest:
RankRequest: ask 1.0 at 1 step 5 failures 1
Issued: 0:rank 1 of 4 heal=true from "addr-a" 1:rank 1 of 4 heal=true from "addr-c"`,
		},
		"a rank that asks twice counts once": {
			events: []torchft.ManagerEvent{request(1, 5), request(1, 5), request(0, 5)},
			want:   "RankRequest:\nRankRequest:\nRankRequest: ask 1.0 at 2 step 5 failures 1",
		},
		"a request goes with its call": {
			events: []torchft.ManagerEvent{request(1, 5), torchft.RankCancel{GroupRank: 1}, request(0, 5), request(1, 5)},
			want:   "RankRequest:\nRankCancel:\nRankRequest:\nRankRequest: ask 1.0 at 3 step 5 failures 1",
		},
		"torchft keeps a request whose call has gone": {
			compat: true,
			events: []torchft.ManagerEvent{request(1, 5), torchft.RankCancel{GroupRank: 1}, request(0, 5)},
			want:   "RankRequest:\nRankCancel:\nRankRequest: ask 1.0 at 2 step 5 failures 1",
		},
		"an answer is for whoever waits, and takes a new request with it": {
			events: []torchft.ManagerEvent{request(1, 5), request(0, 5), request(0, 5), torchft.Issued{Call: 1}, request(1, 5), request(0, 5)},
			want: `RankRequest:
RankRequest: ask 1.0 at 1 step 5 failures 1
RankRequest:
Issued: 0:results of quorum 0: replica "b" does not take part 1:results of quorum 0: replica "b" does not take part
RankRequest:
RankRequest: ask 2.0 at 5 step 5 failures 1`,
		},
		"in torchft a new request stays when an old one is answered": {
			compat: true,
			events: []torchft.ManagerEvent{request(1, 5), request(0, 5), request(0, 5), torchft.Issued{Call: 1}, request(1, 5)},
			want: `RankRequest:
RankRequest: ask 1.0 at 1 step 5 failures 1
RankRequest:
Issued: 0:results of quorum 0: replica "b" does not take part 1:results of quorum 0: replica "b" does not take part
RankRequest: ask 2.0 at 4 step 5 failures 1`,
		},
		"a quorum without the group": {
			events: []torchft.ManagerEvent{request(1, 5), request(0, 5), torchft.Issued{Call: 1, Quorum: torchft.Quorum{ID: 9}}},
			want: `RankRequest:
RankRequest: ask 1.0 at 1 step 5 failures 1
Issued: 0:results of quorum 9: replica "b" does not take part 1:results of quorum 9: replica "b" does not take part`,
		},
		"without retries one failure is the end, and nobody is answered": {
			events: []torchft.ManagerEvent{request(1, 5), request(0, 5), torchft.Failed{Call: 1}, request(0, 5), request(1, 5), torchft.Failed{Call: 1}},
			want: `RankRequest:
RankRequest: ask 1.0 at 1 step 5 failures 1
Failed: give up 1 after 1
RankRequest:
RankRequest: ask 2.0 at 4 step 5 failures 1
Failed:`,
		},
		"errors wait for their share of the time-out, time-outs do not": {
			retries: 2,
			events:  []torchft.ManagerEvent{request(1, 5), request(0, 5), torchft.Failed{Call: 1}, torchft.Failed{Call: 1, TimedOut: true}, torchft.Failed{Call: 1}},
			want: `RankRequest:
RankRequest: ask 1.0 at 1 step 5 failures 1
Failed: ask 1.1 at 302 step 5 failures 1
Failed: ask 1.2 at 103 step 5 failures 1
Failed: give up 1 after 3`,
		},
		"a group commits if no rank is against it": {
			events: []torchft.ManagerEvent{vote(0, true), vote(1, true), vote(1, true), vote(0, false)},
			want:   "Vote:\nVote: commit=true against []\nVote:\nVote: commit=false against [0]",
		},
		"a vote against a step stays": {
			events: []torchft.ManagerEvent{vote(0, false), vote(0, true), vote(1, true), vote(0, true), vote(1, true)},
			want:   "Vote:\nVote:\nVote: commit=false against [0]\nVote:\nVote: commit=true against []",
		},
		"a vote goes with its call, but not that it was against": {
			events: []torchft.ManagerEvent{vote(0, false), torchft.VoteCancel{GroupRank: 0}, vote(1, true), vote(0, true)},
			want:   "Vote:\nVoteCancel:\nVote:\nVote: commit=false against [0]",
		},
		"torchft keeps a vote whose call has gone": {
			compat: true,
			events: []torchft.ManagerEvent{vote(0, true), torchft.VoteCancel{GroupRank: 0}, vote(1, true)},
			want:   "Vote:\nVoteCancel:\nVote: commit=true against []",
		},
		"who is no rank of the group": {
			events: []torchft.ManagerEvent{request(2, 0), vote(-1, true), torchft.RankCancel{GroupRank: 2}, torchft.VoteCancel{GroupRank: -1}, torchft.Failed{}},
			want: `RankRequest: refuse: group rank 2 is not below the world size of 2
Vote: refuse: group rank -1 is not below the world size of 2
RankCancel:
VoteCancel:
Failed:`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := transcript(groupOf(t, c.retries, c.compat), c.events...); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestCheckpointMetadata(t *testing.T) {
	m := groupOf(t, 0, false)
	m.Step(0, torchft.RankRequest{GroupRank: 1, CheckpointMetadata: "http://1"})
	if got, err := m.CheckpointMetadata(1); got != "http://1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, groupRank := range []int{-1, 0, 2} {
		if _, err := m.CheckpointMetadata(groupRank); err == nil {
			t.Errorf("metadata of rank %d", groupRank)
		}
	}
	for _, a := range m.Step(0, torchft.RankRequest{GroupRank: 0, CheckpointMetadata: strings.Repeat("x", torchft.MaxMemberBytes+1)}) {
		if _, ok := a.(*torchft.RefuseRank); !ok {
			t.Errorf("%T of metadata that is too long", a)
		}
	}
	if _, err := m.CheckpointMetadata(0); err == nil {
		t.Error("metadata that was refused is there")
	}
}
