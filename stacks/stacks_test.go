package stacks_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"testbed/internal/errs"
	"testbed/internal/testenv"
	"testbed/scenarios/faults"
	"testbed/stacks"
)

// TestLibrary: every stack of the library can be read, its options have descriptions, and
// it says what it cannot do.
func TestLibrary(t *testing.T) {
	for name, want := range map[string]struct {
		ours    bool
		central bool
		cannot  []faults.Op
		options []string
	}{
		"gloo":     {true, true, []faults.Op{faults.CoordinatorCrash, faults.Fail, faults.FailReduce, faults.Leave}, []string{"quiet_s", "timeout_s"}},
		"hivemind": {false, true, []faults.Op{faults.CoordinatorCrash, faults.Fail, faults.FailReduce, faults.Leave}, []string{"allreduce_s", "matchmaking_s", "wait_for_all"}},
		"pccl":     {false, true, []faults.Op{faults.Fail, faults.FailReduce, faults.Leave}, []string{"attempts", "connections", "quantisation"}},
		"torchft":  {false, true, []faults.Op{faults.Fail, faults.FailReduce, faults.Leave}, []string{"diloco", "heartbeat_timeout_ms", "init_sync", "join_timeout_ms", "min_replicas", "quorum_retries", "quorum_timeout_s", "timeout_s"}},
	} {
		s, err := stacks.Find(name)
		if err != nil {
			t.Error(err)
			continue
		}
		cannot, options := slices.Sorted(maps.Keys(s.Cannot)), slices.Sorted(maps.Keys(s.Options))
		if s.Ours != want.ours || len(s.Central) > 0 != want.central || !slices.Equal(cannot, want.cannot) || !slices.Equal(options, want.options) {
			t.Errorf("%s: ours %v, central %v, cannot %v, options %v", name, s.Ours, s.Central, cannot, options)
		}
		for option, o := range s.Options {
			if o.Description == "" {
				t.Errorf("%s: the option %s has no description", name, option)
			}
		}
		dir := t.TempDir()
		if err := s.Extract(dir); err != nil {
			t.Error(err)
		}
		for _, file := range []string{"adapter/" + s.Worker[0], "adapter/" + s.Probe, "adapter/testbed_stack.py"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if len(stacks.Names()) != 4 {
		t.Errorf("the library has %s; add each to this test", stacks.Names())
	}
}

const sound = `description: a test
python: [no-such-python, sh]
worker: [worker.py, --fast]
central: [worker.py]
probe: probe.py
remedy: install it
cannot: {Leave: nobody leaves}
options: {wait_s: {default: 1.5, description: how long}}
`

// folder is a stack's folder with this stack.yaml.
func folder(text, probe string) fstest.MapFS {
	return fstest.MapFS{"stack.yaml": {Data: []byte(text)}, "worker.py": {}, "probe.py": {Data: []byte(probe)}}
}

// TestErrors: an error in stack.yaml names the field, and is a usage error.
func TestErrors(t *testing.T) {
	for change, want := range map[string]string{
		"remedy: install it|remedy: install it\ntuned: {none: 1}":            "tuned.none: there is no such option",
		"remedy: install it|remedy: install it\ntuned: {wait_s: -1}":         "tuned.wait_s is -1",
		"remedy: install it|remedy: install it\ntuned: {wait_s: {round: 1}}": "line 7: field round not found",
		"description: a test|wrong: 1":                                       "field wrong not found",
		"worker: [worker.py, --fast]|worker: []":                             "worker is missing",
		"python: [no-such-python, sh]|python: []":                            "python is missing",
		"probe: probe.py|probe: ''":                                          "probe is missing",
		"remedy: install it|remedy: ''":                                      "remedy is missing",
		"central: [worker.py]|central: [c.py]":                               "no file c.py",
		"cannot: {Leave: nobody leaves}|cannot: {X: y}":                      "cannot.X: name an inject",
		"description: a test|silence_s: 0":                                   "must be above 0",
	} {
		old, new, _ := strings.Cut(change, "|")
		_, err := stacks.Read(folder(strings.Replace(sound, old, new, 1), ""), "test")
		if _, usage := errors.AsType[*errs.UsageError](err); !usage || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "stack test") {
			t.Errorf("%s: %v", change, err)
		}
	}
	for name, want := range map[string]string{"nothing": "the stacks are", "./nothing": "has no stack.yaml", "gloo:x=1": "timeout_s", "gloo:timeout_s=-1": "0 or above", "gloo:timeout_s": "not OPTION=VALUE", "pccl:connections=0": "1 or above", "pccl:connections=17": "16 at most", "gloo:quiet_s=NaN": "it must be a number"} {
		if _, err := stacks.Choose(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChoose(t *testing.T) {
	c, err := stacks.Choose("gloo:timeout_s=2.5")
	if err != nil || c.Values["timeout_s"] != 2.5 || c.Values["quiet_s"] != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if text, is := stacks.Labelled(stacks.Label("gloo:timeout_s=2.5")); !is || text != "gloo:timeout_s=2.5" {
		t.Errorf("%s, %v", text, is)
	}
	if _, is := stacks.Labelled("torchft"); is {
		t.Error("a policy is no stack")
	}
}

// TestTuned: tuned values follow the length of a round up to their limit, and give way to
// those of the user.
func TestTuned(t *testing.T) {
	c, err := stacks.Choose("gloo:tuned")
	if err != nil {
		t.Fatal(err)
	}
	for round, want := range map[time.Duration][2]float64{2 * time.Second: {2, 1}, time.Second: {1, 0.5}, time.Minute: {3, 2}} {
		c.Fit(round)
		if got := [2]float64{c.Values["timeout_s"], c.Values["quiet_s"]}; got != want {
			t.Errorf("rounds of %v: %v, want %v", round, got, want)
		}
	}
	c, err = stacks.Choose("torchft:tuned:timeout_s=7")
	if err != nil {
		t.Fatal(err)
	}
	c.Fit(2 * time.Second)
	if v := c.Values; v["join_timeout_ms"] != 3000 || v["heartbeat_timeout_ms"] != 5000 || v["timeout_s"] != 7 || v["quorum_timeout_s"] != 60 {
		t.Errorf("%v", v)
	}
	c, err = stacks.Choose("gloo:tuned:quiet_s=4")
	if err != nil {
		t.Fatal(err)
	}
	if c.Fit(2 * time.Second); c.Values["quiet_s"] != 4 || c.Values["timeout_s"] != 2 {
		t.Errorf("%v", c.Values)
	}
	if _, err := stacks.Choose("pccl:tuned"); err == nil || !strings.Contains(err.Error(), "it cannot be tuned: no option decides") {
		t.Errorf("%v", err)
	}
	for _, name := range stacks.Names() {
		s, err := stacks.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Tuned) > 0 == (s.Untuned != "") {
			t.Errorf("%s has neither tuned values nor a reason, or both", name)
		}
	}
}

// TestCheck: the first interpreter that passes the probe is taken. If none does, the
// reason of the preferred one is named, with the remedy.
func TestCheck(t *testing.T) {
	s, err := stacks.Read(folder(sound, "echo loading; echo version $((1 + 1))"), "test")
	if err != nil {
		t.Fatal(err)
	}
	ready, err := s.Check(t.Context())
	if err != nil || ready.Version != "version 2" || !filepath.IsAbs(ready.Python) || filepath.Base(ready.Python) != "sh" {
		t.Errorf("%+v, %v", ready, err)
	}
	command := s.Command(ready.Python, "/run", s.Worker)
	if want := []string{ready.Python, "/run/adapter/worker.py", "--fast"}; !slices.Equal(command, want) {
		t.Errorf("%q, want %q", command, want)
	}
	broken, err := stacks.Read(folder(strings.Replace(sound, "no-such-python, sh", "sh, no-such-python", 1), "echo Traceback >&2; echo no module gloo >&2; exit 1"), "test")
	if err != nil {
		t.Fatal(err)
	}
	_, err = broken.Check(t.Context())
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "the stack test cannot run here: ") || !strings.Contains(err.Error(), "no module gloo; install it") {
		t.Errorf("%v", err)
	}
}

// TestSet: an environment that is whole, and of the same pins, is kept.
func TestSet(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	set := func(python, pins string) error {
		t.Helper()
		s, err := stacks.Read(fstest.MapFS{
			"stack.yaml": {Data: []byte("python: ['{venv}/bin/python']\nworker: [w.py]\nprobe: w.py\ninstall: {python: [" + python + "], needs: sys, remedy: get it, requirements: pins}\n")},
			"w.py":       {Data: []byte("print(1)\n")}, "pins": {Data: []byte(pins)},
		}, "test")
		if err != nil {
			t.Fatal(err)
		}
		return s.Set(t.Context(), t.Output())
	}
	testenv.Need(t, set("python3", "# first\n"))
	if err := set("no-such-python", "# first\n"); err != nil {
		t.Errorf("the same pins: %v", err)
	}
	if err := set("no-such-python", "# second\n"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("other pins: %v", err)
	}
}
