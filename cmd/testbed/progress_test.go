package main

import (
	"testing"

	"testbed/policy"
)

// TestAbortWords: a line about an aborted all-reduce gives the reason in words.
func TestAbortWords(t *testing.T) {
	for want, why := range map[string]*policy.Reason{
		"no reason recorded":       nil,
		"a participant is gone":    {Rule: policy.RuleLost},
		"it had stalled":           {Rule: policy.RuleProgress},
		"the rule was split_brain": {Rule: policy.RuleSplitBrain},
	} {
		if got := abortWords(why); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
