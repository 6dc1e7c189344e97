//go:build linux

package test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/experiment"
	"testbed/internal/testenv"
	"testbed/internal/testscenario"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train"
	"testbed/train/replay"
)

// needPython skips where the system's Python lacks a module, but fails in CI.
func needPython(t *testing.T, module string) {
	t.Helper()
	testenv.WatchSources(t, "../python")
	if out, err := exec.Command("/usr/bin/python3", "-c", "import "+module).CombinedOutput(); err != nil {
		testenv.Need(t, fmt.Errorf("the system's Python has no %s (%w: %s); install python3-%s", module, err, out, module))
	}
}

func example(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs("../python/examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPythonExamples run, learn, and their records lead to the states in them.
func TestPythonExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ module, file, policy string }{
		{"numpy", "numpy_quadratic.yaml", "straggler"}, {"torch", "torch_diloco.yaml", "straggler"},
	} {
		t.Run(c.module, func(t *testing.T) {
			needSandbox(t)
			needPython(t, c.module)
			t.Parallel()
			file := example(t, c.file)
			sum := complete(t, file, "--policy", c.policy)
			checkOwn(t, file, sum.Dir)
			losses := []float64{}
			for _, r := range sum.Rounds {
				if r.Loss != nil && r.Loss.Validation != nil {
					losses = append(losses, *r.Loss.Validation)
				}
			}
			if n := len(losses); n < 5 || losses[n-1] > 0.9*losses[0] {
				t.Errorf("validation losses %v, want falling ones", losses)
			}
			out, err := exec.Command("/usr/bin/python3", "-c",
				"import sys; sys.path.insert(0, '../python/src'); import testbed; print(testbed.load_model(sys.argv[1]).size)", filepath.Join(sum.Dir, record.ModelFile)).CombinedOutput()
			if err != nil || string(out) == "0\n" {
				t.Errorf("the model of the run: %v, %s", err, out)
			}
		})
	}
}

// quadraticInNumpy is the task quadratic, for the start and the targets in files.
const quadraticInNumpy = `
import numpy as np
import testbed
run = testbed.join()
start, target = np.fromfile("start", "<f4"), np.fromfile("target%d" % run.worker, "<f4")
run.init(start)
for r in run:
    model = r.params.copy()
    for step in r.steps:
        loss = float(np.mean((model - target) ** 2))
        model += np.float32(0.2) * (target - model)
        r.done(loss)
    r.params = model
`

// TestNumpyAgreesWithTheEmbedded: the same model, embedded and as a program in
// Python, comes to the same outer states by the same record.
func TestNumpyAgreesWithTheEmbedded(t *testing.T) {
	needSandbox(t)
	needPython(t, "numpy")
	t.Parallel()
	const parameters = 1000
	file := own(t, 3, 5, "", fmt.Sprintf("real: {time_scale: 100, parameters: %d}\n", parameters), "/usr/bin/python3", "quadratic.py")
	s, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	task := train.NewQuadratic(s.Seed, parameters)
	write := func(name string, data any) {
		text, is := data.([]byte)
		if !is {
			if text, err = binary.Append(nil, binary.LittleEndian, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("quadratic.py", []byte(quadraticInNumpy))
	write("start", task.Start())
	for w := range s.Workers {
		write(fmt.Sprintf("target%d", w), targetOf(t, task, w))
	}
	events := readEvents(t, complete(t, file, "--policy", "baseline").Dir)
	embedded, section := *s, *s.Train
	section.Task, section.Program = "", nil
	embedded.Train = &section
	if err := experiment.WithTrainer(t.Context(), s, func(s *scenarios.Scenario) error { return agree(t, s, &embedded, events) }); err != nil {
		t.Error(err)
	}
}

// targetOf is a worker's own target: a step from the origin leads a fifth of the
// way.
func targetOf(t *testing.T, task train.Task, worker int) []float32 {
	t.Helper()
	tr, err := task.Trainer(worker)
	if err != nil {
		t.Fatal(err)
	}
	target := make([]float32, len(task.Start()))
	if err := tr.Begin(t.Context(), 1, target); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Step(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := tr.Finish(target); err != nil {
		t.Fatal(err)
	}
	for i := range target {
		target[i] /= train.InnerLearningRate
	}
	return target
}

// agree computes what a record trains under two scenarios, and holds their states
// against each other after each event.
func agree(t *testing.T, a, b *scenarios.Scenario, events []record.Event) error {
	one, err := replay.New(testscenario.Resolve(t, a, ""))
	if err != nil {
		return err
	}
	defer one.Close()
	other, err := replay.New(testscenario.Resolve(t, b, ""))
	if err != nil {
		return err
	}
	defer other.Close()
	last := 0
	for _, e := range events {
		twin := e
		if _, err := one.Add(&e); err != nil {
			return err
		}
		if _, err := other.Add(&twin); err != nil {
			return err
		}
		steps, p := one.State()
		_, q := other.State()
		if steps == last {
			continue
		}
		last = steps
		for i := range p {
			if math.Abs(float64(p[i]-q[i])) > 1e-4 {
				t.Fatalf("outer step %d, parameter %d: %v as a program, %v embedded", steps, i, p[i], q[i])
			}
		}
	}
	if last != a.TargetOuterSteps {
		t.Errorf("%d outer steps", last)
	}
	return nil
}

// TestATrainerCanBeMadeAgain: the record names the program, what it imports beside it,
// with their digests, and versions; the printed line has --train.
func TestATrainerCanBeMadeAgain(t *testing.T) {
	needSandbox(t)
	needPython(t, "numpy")
	t.Parallel()
	file := own(t, 2, 2, "", "", "/usr/bin/python3", "mine.py", "an argument")
	folder := filepath.Dir(file)
	for name, text := range map[string]string{
		"mine.py": `
import testbed
from models import small
run = testbed.join()
run.init(small.start())
for r in run:
    for step in r.steps:
        r.done(1.0)
`,
		"models/__init__.py": "",
		"models/small.py":    "import numpy\ndef start():\n    return numpy.zeros(5, dtype=numpy.float32)\n",
		"models/other.py":    "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := complete(t, file, "--policy", "baseline").Dir
	text, err := os.ReadFile(filepath.Join(dir, record.EnvironmentFile))
	if err != nil {
		t.Fatal(err)
	}
	var made record.Environment
	if err := json.Unmarshal(text, &made); err != nil || made.Trainer == nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, name := range []string{"mine.py", "models/__init__.py", "models/small.py"} {
		if want, err := record.FileDigest(filepath.Join(folder, name)); err != nil || made.Trainer.SHA256[name] != want {
			t.Errorf("%s has the digest %s in the record, want %s, %v", name, made.Trainer.SHA256[name], want, err)
		}
	}
	if len(made.Trainer.SHA256) != 4 || made.Trainer.Python == "" || made.Trainer.Libraries["numpy"] == "" || made.Version != record.Version {
		t.Errorf("the record says %+v", made.Trainer)
	}
	if changed := made.Trainer.Changed(); changed != nil {
		t.Errorf("changed: %v", changed)
	}
	if err := os.WriteFile(filepath.Join(folder, "models/small.py"), []byte("pass\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed := made.Trainer.Changed(); len(changed) != 1 || changed[0] != "models/small.py" {
		t.Errorf("changed: %v", changed)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	if r := testbed(t, "report", dir, "--out", page); r.code != 0 {
		t.Fatal(r.stderr)
	}
	shown, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(shown, []byte(made.Trainer.SHA256["mine.py"])) || !bytes.Contains(shown, []byte("Python "+made.Trainer.Python)) {
		t.Errorf("the page does not show the program, %v", err)
	}

	// What fails says how it ended, and leaves nothing behind.
	before, err := filepath.Glob(filepath.Join(os.TempDir(), "testbed-trainer-*"))
	if err != nil {
		t.Fatal(err)
	}
	r := testbed(t, "simulate", file, "--policy", "baseline", "--train")
	if r.code != exitError || !strings.Contains(r.stderr, "Traceback (most recent call last)") || strings.Contains(r.stderr, "testbed-trainer-") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
	after, err := filepath.Glob(filepath.Join(os.TempDir(), "testbed-trainer-*"))
	for _, name := range after {
		if !slices.Contains(before, name) && err == nil && !busy(name) {
			t.Errorf("%s is left", name)
		}
	}
}

// busy says whether another test, beside this one, uses a folder of a trainer.
func busy(folder string) bool {
	for range 20 {
		if _, err := os.Stat(folder); err != nil {
			return true // it was there for a moment
		}
		time.Sleep(100 * time.Millisecond)
	}
	f, err := os.Open(folder)
	if err != nil {
		return true
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}
