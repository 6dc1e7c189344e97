package sim

import (
	"slices"
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/shaping"
	"testbed/train"
)

// uploaded simulates four equal workers on slow links, whose uploads last longer
// than their inner steps.
func uploaded(t *testing.T, u train.UploadSpec, change func(*scenarios.Scenario)) record.Summary {
	t.Helper()
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	rate := shaping.Rate(20e6)
	s.Real.Links.Default.RateUp, s.Real.Links.Default.RateDown = &rate, &rate
	s.TargetOuterSteps, s.Real.Upload = 8, u
	if change != nil {
		change(s)
	}
	r, err := s.Resolve(scenarios.Baseline)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := RunLinks(r, Costs{}, nil)
	if err != nil || !sum.Complete {
		t.Fatalf("complete %v, %v", sum.Complete, err)
	}
	return sum
}

// TestUploadsCompete: a reduction beside an upload is longer, and one for which the
// upload waits is not, but then the upload is.
func TestUploadsCompete(t *testing.T) {
	none := uploaded(t, train.UploadSpec{}, nil)
	compete := uploaded(t, train.UploadSpec{Every: 2}, nil)
	yield := uploaded(t, train.UploadSpec{Every: 2, Yields: true}, nil)
	if none.Uploads != nil || len(compete.Uploads) == 0 || len(yield.Uploads) == 0 {
		t.Fatalf("uploads: %v, %v and %v", none.Uploads, compete.Uploads, yield.Uploads)
	}
	for k, r := range none.Rounds[1:] {
		beside, alone := compete.Rounds[k+1].Reduce, yield.Rounds[k+1].Reduce
		if alone != r.Reduce || beside < r.Reduce || beside > 5*r.Reduce/2 {
			t.Errorf("the reduction of round %d takes %d, %d beside an upload and %d with one that waits", r.Round, r.Reduce, beside, alone)
		}
	}
	if compete.WallClock <= none.WallClock || yield.WallClock != none.WallClock {
		t.Errorf("the run takes %d, %d with uploads and %d with some that wait", none.WallClock, compete.WallClock, yield.WallClock)
	}
	first := func(s record.Summary) record.Upload { return s.Uploads[0] }
	if c, y := first(compete), first(yield); c.Round != 2 || c.ID != 0 || c.Start != compete.Rounds[1].End || c.Bytes == 0 || y.End-y.Start <= c.End-c.Start {
		t.Errorf("uploads %+v, and of the ones that wait %+v", c, y)
	}
}

// TestUploadOfTheDead: what a worker has not sent when it dies the store lacks, and
// the next upload is of another.
func TestUploadOfTheDead(t *testing.T) {
	alone := uploaded(t, train.UploadSpec{Every: 2}, nil).Uploads[0]
	dies := uploaded(t, train.UploadSpec{Every: 2}, func(s *scenarios.Scenario) {
		s.Injects = append(s.Injects, faults.Inject{Op: faults.Crash, ID: &s.Workers[0].ID, At: (alone.Start + alone.End) / 2})
	})
	if len(dies.Uploads) == 0 || dies.Uploads[0].ID != 1 || dies.Uploads[0].Round < 4 {
		t.Errorf("%+v", dies.Uploads)
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		name       string
		end        policy.Time // of the transfer alone
		full, half []policy.Time
		ends       []policy.Time
		then       policy.Time // the end of the transfer
	}{
		{"long", 2000, []policy.Time{200, 190}, []policy.Time{300, 280}, []policy.Time{300, 280}, 2100},
		{"short", 150, []policy.Time{200, 200}, []policy.Time{300, 300}, []policy.Time{250, 250}, 200},
		{"over", 100, []policy.Time{200}, []policy.Time{300}, []policy.Time{200}, 100},
		{"no difference", 1000, []policy.Time{100}, []policy.Time{100}, []policy.Time{100}, 1000},
	} {
		transfer := sharedTransfer{c.end}
		if ends := transfer.share(100, c.full, c.half); !slices.Equal(ends, c.ends) || transfer.end != c.then {
			t.Errorf("%s: the reduction ends at %v and the transfer at %d, want %v and %d", c.name, ends, transfer.end, c.ends, c.then)
		}
	}
	transfer := sharedTransfer{500}
	if transfer.yield(100, []policy.Time{150, 180}); transfer.end != 580 {
		t.Errorf("a transfer that yields for 80 ends at %d, want 580", transfer.end)
	}
}
