package record_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

// TestTheSummaryOfAnOldRunStays: the events that a run of commit 8295e8e has left come to
// the summary that it has left, and are written to the same bytes. The run was killed and
// resumed, and has a crash, a late joiner and a straggler.
func TestTheSummaryOfAnOldRunStays(t *testing.T) {
	const dir = record.Dir("testdata/eventful")
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(dir.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	file, err := os.Open(dir.Path(record.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	events, err := record.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(read(record.EventsFile)), write(t, events...)); diff != "" {
		t.Errorf("the events are written otherwise (-then +now):\n%s", diff)
	}

	s, err := scenarios.Parse("eventful.yaml", read("scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sum := record.NewSummarizer(s.Setup())
	for _, e := range events {
		sum.Add(&e)
	}
	var then record.Summary
	if err := json.Unmarshal(read(record.SummaryFile), &then); err != nil {
		t.Fatal(err)
	}
	then.Dir, then.Fidelity = "", fidelity.Verdict{Reasons: []string{}} // are not in the events
	then.WorldName = record.Real                                        // is younger
	if diff := cmp.Diff(then, sum.Summary()); diff != "" {
		t.Errorf("the summary is another one (-then +now):\n%s", diff)
	}
}
