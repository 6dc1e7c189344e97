package words

import (
	"strings"
	"testing"

	"testbed/policy"
)

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"runs/a-1.yaml": "runs/a-1.yaml", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
	} {
		if got := Quote(word); got != want {
			t.Errorf("Quote(%q) = %s, want %s", word, got, want)
		}
	}
}

// TestBecause says why a worker went, by every rule that evicts.
func TestBecause(t *testing.T) {
	for want, r := range map[string]policy.Reason{
		"its control connection ended, 1,200 µs after its last heartbeat":                                              {Rule: policy.RuleConnection, Silent: 1200},
		"it told the coordinator that it gives up, 300 µs after its last heartbeat":                                    {Rule: policy.RuleGaveUp, Silent: 300},
		"its fetches of the outer state failed 5 times in a row":                                                       {Rule: policy.RuleFetchFailed, Misses: 5, Limit: 5},
		"it took part in 3 failed reductions of the round":                                                             {Rule: policy.RuleReduceFailed, Misses: 3, Limit: 3},
		"the reduction had stalled for 5,000 µs, and reductions with the worker had failed 3 times":                    {Rule: policy.RuleProgress, Stalled: 5000, Misses: 3, Limit: 3},
		"the reduction had stalled for 5,000 µs (w2 waited for w1), and reductions with the worker had failed 3 times": {Rule: policy.RuleProgress, Stalled: 5000, Misses: 3, Limit: 3, Lost: new(policy.ID(2)), Peer: new(policy.ID(1))},
		"the reduction had stalled for 5,000 µs, and the worker had been silent for 4,000 µs":                          {Rule: policy.RuleProgress, Stalled: 5000, Silent: 4000},
		"it waited 5,000 µs for a quorum, and restart 3 of at most 3 follows":                                          {Rule: policy.RuleQuorumTimeout, Stalled: 5000, Misses: 3, Limit: 3},
		"it waited 5,000 µs for a quorum, and no restart is left (policy.torchft.restarts: 0)":                         {Rule: policy.RuleQuorumTimeout, Stalled: 5000, Misses: 1},
	} {
		if got := Because(&r); got != want {
			t.Errorf("%s: %q, want %q", r.Rule, got, want)
		}
	}
}

func TestWorkers(t *testing.T) {
	ids := func(from, to policy.ID) (list []policy.ID) {
		for id := from; id <= to; id++ {
			list = append(list, id)
		}
		return list
	}
	for want, got := range map[string][]policy.ID{
		"–":                              nil,
		"w0 w1 w2 w3":                    ids(0, 3),
		"w0–w8":                          ids(0, 8),
		"w0–w11 w13 w15–w63":             append(append(ids(0, 11), 13), ids(15, 63)...),
		"w1 w3 w5 w7 w9 w11 w13 w15 w17": {1, 3, 5, 7, 9, 11, 13, 15, 17},
	} {
		if text := Workers(got); text != want {
			t.Errorf("Workers(%v) = %q, want %q", got, text, want)
		}
		if text := Named(got); strings.ReplaceAll(text, ", ", " ") != want {
			t.Errorf("Named(%v) = %q", got, text)
		}
	}
}

func TestPolicy(t *testing.T) {
	for spec, want := range map[string]string{"baseline": "the baseline", "straggler": "the straggler policy", "straggler:k=5": "policy straggler:k=5"} {
		if got := Policy(spec); got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}
