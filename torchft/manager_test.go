package torchft_test

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"testbed/internal/transcript"
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

// managerEvents are of every kind that transcripts have. Of a rank that requests, the steps
// up to the fourth were committed, and none since.
var managerEvents = []any{
	torchft.RankRequest{Timeout: 900 * ms}, torchft.RankCancel{}, torchft.Issued{}, torchft.Failed{}, torchft.Vote{}, torchft.VoteCancel{},
}

// TestManager plays what happens to the manager of a group of two ranks, b, one thing
// each millisecond, and what it does about it. First may stand what it is like:
//
//	manager quorum_retries=2 compat
//
// A quorum that was issued has members with their steps: "issued call=1 quorum=3 a:7 b:5".
func TestManager(t *testing.T) {
	transcript.Run(t, "testdata/manager/*.txt", func(t *testing.T) func(string) ([]string, error) {
		cfg := torchft.ManagerConfig{}
		var m *torchft.Manager
		now := policy.Time(0)
		return func(line string) (seen []string, err error) {
			if fields, is := strings.CutPrefix(line, "manager "); is && m == nil {
				read, err := transcript.Read("manager_config "+fields, cfg)
				if err == nil {
					cfg = read[0].(torchft.ManagerConfig)
				}
				return nil, err
			}
			if m == nil {
				m = groupOf(t, cfg.QuorumRetries, cfg.Compat)
			}
			line, quorum, err := withoutQuorum(line)
			if err != nil {
				return nil, err
			}
			read, err := transcript.Read(line, managerEvents...)
			if err != nil {
				return nil, err
			}
			if len(read) != 1 {
				return nil, errors.New("one thing happens each millisecond")
			}
			e := read[0].(torchft.ManagerEvent)
			switch r := e.(type) {
			case torchft.Issued:
				r.Quorum = quorum
				e = r
			case torchft.RankRequest:
				r.CommitFailures, r.CheckpointMetadata = r.Step-4, fmt.Sprint("meta", r.GroupRank)
				e = r
			}
			for _, a := range m.Step(now, e) {
				seen = append(seen, done(a))
			}
			now += ms
			return seen, nil
		}
	})
}

// withoutQuorum takes a quorum out of a line.
func withoutQuorum(line string) (rest string, q torchft.Quorum, err error) {
	line, quorum, _ := strings.Cut(line, " quorum=")
	for k, word := range strings.Fields(quorum) {
		name, step, _ := strings.Cut(word, ":")
		number, err := strconv.ParseInt(cmp.Or(step, name), 10, 64)
		if err != nil {
			return "", q, err
		}
		if k == 0 {
			q.ID = number
		} else {
			q.Participants = append(q.Participants, torchft.Member{ReplicaID: name, Address: "addr-" + name, Step: number})
		}
	}
	return line, q, nil
}

// done writes an action as one would say it.
func done(a torchft.ManagerAction) string {
	switch a := a.(type) {
	case *torchft.Ask:
		return fmt.Sprintf("ask, call %d, retry %d, at %d: step %d, %d failed commits", a.Call, a.Retry, a.At/ms, a.Member.Step, a.Member.CommitFailures)
	case *torchft.Answer:
		if a.Err != nil {
			return fmt.Sprintf("answer rank %d: %v", a.GroupRank, a.Err)
		}
		return fmt.Sprintf("answer rank %d: replica %d of %d, heal %t, from %q", a.GroupRank, a.Results.ReplicaRank, a.Results.ReplicaWorldSize, a.Results.Heal, a.Results.RecoverSrcManagerAddress)
	case *torchft.GiveUp:
		return fmt.Sprintf("give call %d up after %d tries", a.Call, a.Tries)
	case *torchft.Decide:
		return fmt.Sprintf("commit %t, against it %v", a.Commit, a.Against)
	case *torchft.RefuseRank:
		return fmt.Sprintf("refuse: %v", a.Err)
	}
	return fmt.Sprintf("%T", a)
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
