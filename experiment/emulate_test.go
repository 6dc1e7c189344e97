package experiment_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"testbed/estimate"
	"testbed/estimate/emulated"
	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

// emulation is of a run of four nodes, "played" by simulating it on its links.
func emulation(t *testing.T, f *fake) experiment.Emulation {
	t.Helper()
	o := experiment.Emulation{Seed: 7, Repeat: 2, Dir: filepath.Join(t.TempDir(), "runs")}
	o.Run = estimate.Run{Inputs: estimate.Defaults(), Further: estimate.DefaultFurther()}
	o.Run.NumNodes, o.Run.BandwidthMbps = 4, 1000
	if f != nil {
		f.simulator = links(t)
		o.Real = f.play
	}
	return o
}

func TestEmulate(t *testing.T) {
	f := &fake{}
	o := emulation(t, f)
	o.Calibration = &calibrate.Calibration{}
	o.Calibration.Costs.Efficiency.Value, o.Calibration.Costs.ReduceByte.Value = 0.95, 2
	o.Calibration.Document.Straggler = []calibrate.Straggler{{Sigma: 0.1}, {Sigma: 0.4}}
	r, err := experiment.Emulate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.World != record.Real || r.Round.N != 2*(emulated.Rounds-1) || !slices.Equal(r.Verdicts, []fidelity.Level{fidelity.Valid, fidelity.Valid}) {
		t.Errorf("world %s, %d rounds, %v", r.World, r.Round.N, r.Verdicts)
	}
	var by []string
	for _, p := range r.Predictions {
		by = append(by, p.By)
	}
	if !slices.Equal(by, []string{"page", "document", "measured", "simulated"}) || r.Measurements.ReduceByte != 2e-9 {
		t.Errorf("predictions by %v with %+v", by, r.Measurements)
	}
	if len(f.runs) != 2 || f.runs[0].Scenario.Seed != 7 || f.runs[1].Scenario.Seed != 8 || f.runs[0].Policy != scenarios.Baseline {
		t.Errorf("played %+v", f.runs)
	}
	// What is left can be played again.
	again, err := scenarios.Load(filepath.Join(r.Dir, "emulated.yaml"))
	if err != nil || len(again.Workers) != 4 || again.Name != emulated.Name {
		t.Errorf("%+v, %v", again, err)
	}
	text, err := os.ReadFile(filepath.Join(r.Dir, experiment.EmulationFile))
	var kept emulated.Result
	if err != nil || json.Unmarshal(text, &kept) != nil || kept.Round.Median != r.Round.Median {
		t.Errorf("%s, %v", text, err)
	}
	if dirs := names(t, r.Dir); !slices.Contains(dirs, "real-baseline-2") || !slices.Contains(dirs, "sim-links-baseline") {
		t.Errorf("the directory holds %v", dirs)
	}
}

func TestEmulateOnlySimulates(t *testing.T) {
	r, err := experiment.Emulate(t.Context(), emulation(t, nil))
	if err != nil || r.World != record.Sim || len(r.Verdicts) != 0 || len(r.Predictions) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestEmulateSaysWhatMayNotBeUsed, and gives it all the same.
func TestEmulateSaysWhatMayNotBeUsed(t *testing.T) {
	o := emulation(t, &fake{spoil: func(n int, _ experiment.Run, s *record.Summary) error {
		if n == 1 {
			spoiled(s, "router late")
		}
		return nil
	}})
	r, err := experiment.Emulate(t.Context(), o)
	wantInvalid(t, err, scenarios.Baseline, 8, "the emulation did not match its plan (fidelity invalid): router late")
	if r == nil || !slices.Contains(r.Verdicts, fidelity.Invalid) {
		t.Errorf("%+v", r)
	}
}

func TestEmulateFails(t *testing.T) {
	o := emulation(t, &fake{spoil: func(int, experiment.Run, *record.Summary) error { return errBroken }})
	if r, err := experiment.Emulate(t.Context(), o); r != nil || !errors.Is(err, errBroken) {
		t.Errorf("%+v, %v", r, err)
	}
	o.Run.NumNodes = 1
	_, err := experiment.Emulate(t.Context(), o)
	if _, refused := errors.AsType[*errs.FieldError](err); !refused {
		t.Errorf("error %v", err)
	}
}
