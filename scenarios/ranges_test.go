package scenarios_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/scenarios"
)

const many = `seed: 1
workers:
%s
inner_steps: 2
target_outer_steps: 3
horizon: 5000000
heartbeat_period: 100000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10000
state_bytes: 100
`

func TestWorkersAsRanges(t *testing.T) {
	for written, want := range map[string]string{
		"  - {ids: 0-3, inner_step_mean: 1000}":                                             "0:1000 1:1000 2:1000 3:1000",
		"  - {inner_step_mean: 1000, ids: \"0-1,5\"}\n  - {id: 2, inner_step_mean: 7}":      "0:1000 1:1000 5:1000 2:7",
		"  - {ids: [0, 2-3], inner_step_mean: 1}\n  - {ids: 9, inner_step_mean: 2}":         "0:1 2:1 3:1 9:2",
		"  - {ids: 0 - 1, inner_step_mean: 1, join_at: 5}\n  - {id: 4, inner_step_mean: 2}": "0:1 1:1 4:2",
	} {
		s, err := scenarios.Parse("crowd.yaml", fmt.Appendf(nil, many, written))
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		var got []string
		for _, w := range s.Workers {
			got = append(got, fmt.Sprintf("%d:%d", w.ID, w.InnerStepMean))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", written, got, want)
		}
	}
	for written, want := range map[string]string{
		"  - {ids: 3-1, inner_step_mean: 1}":                                                  `bad.yaml:3: workers[0].ids: "3-1" ends before it begins; write 1-3`,
		"  - {ids: a-b, inner_step_mean: 1}":                                                  `bad.yaml:3: workers[0].ids: "a-b" is not a range of ids; write a range such as 0-999, several ranges such as 0-9,20-29, or a list of ids and ranges`,
		"  - {ids: 0-100000, inner_step_mean: 1}":                                             "bad.yaml:3: workers[0].ids names more than the 100000 workers that are supported",
		"  - {id: 1, ids: 0-3, inner_step_mean: 1}":                                           "bad.yaml:3: workers[0].ids is given together with id: keep ids or id",
		"  - {ids: 0-3, inner_step_mean: 1}\n  - {id: 2, inner_step_mean: 1}":                 "bad.yaml:4: workers[4].id: worker 2 is already workers[2]; give each worker an id of its own",
		"  - {ids: 0-3, inner_step_mean: 1}\n  - {inner_step_mean: 1}":                        "bad.yaml:4: workers[4].id is missing: add it",
		"  - {ids: 0-3, inner_step_mean: 1}\n  - {id: 9, inner_step_maen: 1}":                 "bad.yaml:4: workers[4].inner_step_maen: unknown field; did you mean inner_step_mean?",
		"  - {ids: {}, inner_step_mean: 1}":                                                   "bad.yaml:3: workers[0].ids has an entry that is neither an id nor a range: write a range such as 0-999, several ranges such as 0-9,20-29, or a list of ids and ranges",
		"  - {ids: 99999999999999999999-2, inner_step_mean: 1}":                               `bad.yaml:3: workers[0].ids: "99999999999999999999-2" is not a range of ids; write a range such as 0-999, several ranges such as 0-9,20-29, or a list of ids and ranges`,
		"  - {ids: 0-99998, inner_step_mean: 1}\n  - {ids: 99999-100000, inner_step_mean: 1}": "bad.yaml:4: workers[1].ids names more than the 100000 workers that are supported",
	} {
		if _, err := scenarios.Parse("bad.yaml", fmt.Appendf(nil, many, written)); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", written, err, want)
		}
	}
}

// TestIDsAsRanges of classes and injects.
func TestIDsAsRanges(t *testing.T) {
	text := fmt.Sprintf(many, "  - {ids: 0-9, inner_step_mean: 1000}") + `injects:
  - {op: Partition, ids: "0-2,5", at: 100}
work:
  classes: [{name: slow, ids: [4-6, 9], factor: 2}]
`
	s, err := scenarios.Parse("crowd.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Injects[0].IDs; !slices.Equal(got, []policy.ID{0, 1, 2, 5}) {
		t.Errorf("the inject is of %v", got)
	}
	if got := s.Work.Classes[0].IDs; !slices.Equal(got, []policy.ID{4, 5, 6, 9}) {
		t.Errorf("the class has %v", got)
	}
}

// TestAHundredThousandWorkers take a file of ten lines, and the copy of it that a record
// keeps reads back as it is.
func TestAHundredThousandWorkers(t *testing.T) {
	s, err := scenarios.Parse("crowd.yaml", fmt.Appendf(nil, many, "  - {ids: 0-49999, inner_step_mean: 1000}\n  - {ids: 50000-99998, inner_step_mean: 2000}\n  - {id: 99999, inner_step_mean: 3000}"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 10_000 {
		t.Errorf("its text has %d bytes", len(text))
	}
	again, err := scenarios.Parse("crowd.json", text)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Workers) != 100_000 || !slices.Equal(again.Workers, s.Workers) {
		t.Errorf("%d workers, and %d read back", len(s.Workers), len(again.Workers))
	}
}

// TestParametersOfLargeModels can be planned: a billion and more.
func TestParametersOfLargeModels(t *testing.T) {
	s, err := scenarios.Parse("large.yaml", fmt.Appendf(nil, many+"real: {parameters: 1100000000}\n", "  - {ids: 0-3, inner_step_mean: 1000}"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve("")
	if err != nil || r.Parameters != 1_100_000_000 {
		t.Errorf("%d parameters, %v", r.Parameters, err)
	}
}
