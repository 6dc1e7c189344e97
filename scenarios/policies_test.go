package scenarios_test

import (
	"fmt"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/scenarios"
)

// TestSpecifications: parameters come from the default, then from the file, then
// from the specification; what is wrong in one is named, with the mend.
func TestSpecifications(t *testing.T) {
	s := parse(t, strings.Replace(valid, "policy:", "policy:\n  backup: {b: 2}", 1))
	for spec, want := range map[string]string{
		"baseline":                   "[]",
		"backup":                     "[{b 2}]",
		"backup:b=3":                 "[{b 3}]",
		"sample":                     "[{fraction 0.5}]",
		"quorum:join_timeout=7":      "[{min_replicas 1} {join_timeout 7}]",
		"deadline:quorum=1:factor=2": "[{after 0} {factor 2} {quorum 1}]",
		"straggler:k=5:sideline_limit=0:finish_steps=true": "[{quorum 0.75} {k 5} {window 32} {min_history 1} {min_slack 1} {sideline_limit 0} {finish_steps true}]",
	} {
		p, err := s.Policy.Named(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		got := []string{}
		for _, param := range policy.Parameters(p) {
			got = append(got, fmt.Sprintf("{%s %v}", param.Name, param.Default))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s has the parameters %s, want %s", spec, got, want)
		}
	}
	for spec, want := range map[string]string{
		"":                    `policy: "" is not a policy; choose one of `,
		"backups":             `policy: "backups" is not a policy; choose one of baseline, `,
		"backup:":             `policy: "" has no value in "backup:"; write NAME:parameter=value`,
		"backup:b":            `policy: "b" has no value in "backup:b"; write NAME:parameter=value`,
		"backup:b=1:b=1":      `policy: b is given twice in "backup:b=1:b=1": keep one`,
		"backup:b=-1":         `policy.backup.b is -1: it must not be negative`,
		"backup:b=many":       `policy.backup.b: "many" is not a whole number`,
		"backup:k=1":          `policy.backup.k is not a field; did you mean policy.`,
		"straggler:history=1": `policy.straggler.history is not a field; did you mean policy.`,
	} {
		if _, err := s.Policy.Named(spec); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", spec, err, want)
		}
	}
}

// TestPoliciesAreFields of a file and of a setting, like any other.
func TestPoliciesAreFields(t *testing.T) {
	s := parse(t, valid)
	set, err := scenarios.NewSetting("policy.backup.b", "4")
	if err != nil {
		t.Fatal(err)
	}
	with, err := s.With(set)
	if err != nil {
		t.Fatal(err)
	}
	text, err := with.Text()
	if err != nil {
		t.Fatal(err)
	}
	back := parse(t, string(text))
	for what, c := range map[string]struct {
		s    *scenarios.Scenario
		want int
	}{"as it was": {s, 1}, "set": {with, 4}, "written and read": {back, 4}} {
		if p, err := c.s.Policy.Named("backup"); err != nil || p.(*policy.Backup).B != c.want {
			t.Errorf("%s: %+v, %v, want b %d", what, p, err, c.want)
		}
	}
	if _, err := scenarios.Parse("x.yaml", []byte(strings.Replace(valid, "policy:", "policy:\n  backup: {b: -2}", 1))); err == nil || !strings.Contains(err.Error(), "policy.backup.b is -2: it must not be negative") {
		t.Errorf("a parameter out of range: %v", err)
	}
}
