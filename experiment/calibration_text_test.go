package experiment_test

import (
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/stats"
)

// TestCalibrationEndsWithThreeLines: what the machine adds, the error on held-out runs,
// and the command that uses the calibration; all else is details.
func TestCalibrationEndsWithThreeLines(t *testing.T) {
	c := &calibrate.Calibration{Untold: []calibrate.Untold{{Cost: "join", Why: "no worker joined late"}}}
	c.Costs.Step.Value, c.Costs.Message.Value, c.Costs.Reduce.Value = 0.5, 1.25, 4
	c.HeldOut = &stats.Estimate{N: 5, Median: 0.021, Interval: &stats.Interval{Low: 0.01, High: 0.05, Level: 0.9375}}
	var out strings.Builder
	if err := experiment.WriteCalibration(&out, c, []string{"dir/calibration.json"}, false, false); err != nil {
		t.Fatal(err)
	}
	const want = `calibration: dir/calibration.json
this machine adds 7 ms to a round: 0.5 ms to an inner step, 2 × 1.25 ms to messages, 4 ms to a reduction (values that the runs do not determine: 1, listed by -v)
error on held-out runs: 2.1 % (median of 5 runs; 93.8 % interval: 1.0 to 5.0 %)
use the calibration: testbed simulate SCENARIO --policy straggler --network links --calibration dir/calibration.json
`
	if out.String() != want {
		t.Errorf("it prints\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := experiment.WriteCalibration(&out, c, []string{"dir/calibration.json"}, true, false); err != nil || !strings.HasSuffix(out.String(), " --network links --calibration auto\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	c.HeldOut = nil
	out.Reset()
	if err := experiment.WriteCalibration(&out, c, []string{"x"}, false, true); err != nil || !strings.Contains(out.String(), "held-out runs: unknown") || !strings.HasPrefix(out.String(), "what the machine adds") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
