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

// TestErrors: an error in stack.yaml names the line and the field, or the field that is
// missing. It is a usage error of one line.
func TestErrors(t *testing.T) {
	for change, want := range map[string]string{
		"description: a test|wrong: 1":                          "test/stack.yaml:1: wrong: there is no such field; the fields are description, ours, python, ",
		"worker: [worker.py, --fast]|worker: []":                "test/stack.yaml: worker is missing",
		"worker: [worker.py, --fast]|worker: worker.py":         "test/stack.yaml:3: worker must be a list, such as [worker.py]",
		"worker: [worker.py, --fast]|worker: [{a: b}]":          "test/stack.yaml:3: worker[0] must be text",
		"worker: [worker.py, --fast]|worker: [../w.py]":         "worker: \"../w.py\" must be the name of a file directly in the stack's folder",
		"worker: [worker.py, --fast]|worker: [sub/w.py]":        "worker: \"sub/w.py\" must be the name of a file directly",
		"worker: [worker.py, --fast]|worker: [.]":               "worker: . is not a file",
		"python: [no-such-python, sh]|python: []":               "python is missing",
		"python: [no-such-python, sh]|python: ['']":             "python is missing, or has an empty name",
		"probe: probe.py|probe: ''":                             "probe is missing",
		"probe: probe.py|probe: probe.py\nprobe: p.py":          "test/stack.yaml:6: probe: the field is given twice",
		"remedy: install it|remedy: ''":                         "remedy is missing",
		"central: [worker.py]|central: [c.py]":                  "central: the folder has no file c.py",
		"cannot: {Leave: nobody leaves}|cannot: {X: y}":         "cannot.X: name an inject",
		"cannot: {Leave: nobody leaves}|cannot: [Leave]":        "test/stack.yaml:7: cannot must have fields with values",
		"description: a test|silence_s: 0":                      "silence_s is 0: it must be above 0",
		"description: a test|silence_s: 1e300":                  "silence_s is 1e+300: it must be above 0 and at most 1e+06",
		"description: a test|startup_s: .nan":                   "test/stack.yaml:1: startup_s is .nan: it must be a number",
		"description: a test|startup_s: soon":                   "test/stack.yaml:1: startup_s is soon: it must be a number",
		"description: a test|ours: perhaps":                     "test/stack.yaml:1: ours is perhaps: it must be true or false",
		"description: a test|min_workers: 1.5":                  "test/stack.yaml:1: min_workers is 1.5: it must be a whole number",
		"description: a test|min_workers: -1":                   "test/stack.yaml:1: min_workers is -1: it must be a whole number",
		"default: 1.5|default: .inf":                            "test/stack.yaml:8: options.wait_s.default is .inf: it must be a number",
		"default: 1.5|default: -1":                              "options.wait_s.default is -1: it must be a number, 0 or above",
		"default: 1.5|default: 1.5, most: 1":                    "options.wait_s.default is 1.5: it must be a number from 0 to 1",
		"default: 1.5|max: 1.5":                                 "test/stack.yaml:8: options.wait_s.max: there is no such field; the fields are default, description, least, most",
		"{wait_s: {default: 1.5, description: how long}}|{a: }": "options.a.description is missing",
		"options: {wait_s|options: {'a=b'":                      "options.a=b: the name of an option may contain only letters, digits and \"_\"",
		"remedy: install it|install: {python: [sh]}":            "install lacks a field",
		sound + "|":                       "test/stack.yaml:1: the file is empty; it needs description, ",
		sound + "|- a":                    "test/stack.yaml:1: the file must have fields with values",
		sound + "|a: [":                   "test/stack.yaml:1: this is not YAML: ",
		sound + "|" + sound + "---\na: b": "test/stack.yaml:9: the file has more than one document",
		"remedy: install it|remedy: install it\ntuned: {none: 1}":               "test/stack.yaml: tuned.none: there is no such option; the options of this stack are wait_s",
		"remedy: install it|remedy: install it\ntuned: {wait_s: -1}":            "tuned.wait_s is -1: it must be a number, 0 or above",
		"remedy: install it|remedy: install it\ntuned: {wait_s: soon}":          "test/stack.yaml:7: tuned.wait_s is soon: it must be a number",
		"remedy: install it|remedy: install it\ntuned: {wait_s: .inf}":          "test/stack.yaml:7: tuned.wait_s is .inf: it must be a number",
		"remedy: install it|remedy: install it\ntuned: {wait_s: {round: 1}}":    "test/stack.yaml:7: tuned.wait_s.round: there is no such field; the fields are rounds, most",
		"remedy: install it|remedy: install it\ntuned: {wait_s: {rounds: -1}}":  "tuned.wait_s is -1 rounds: the fields rounds and most must not be negative",
		"remedy: install it|remedy: install it\ntuned: {wait_s: {most: 1}}":     "tuned.wait_s.rounds is missing",
		"remedy: install it|remedy: install it\nuntuned: a\ntuned: {wait_s: 1}": "\"untuned\" says why nothing can be tuned, but there is also \"tuned\"",
		"options: {wait_s: {|tuned: {wait: {rounds: 1}}\noptions: {wait: {":     "tuned.wait is a number of rounds, but the name of the option ends with neither \"_s\" nor \"_ms\"",
		"options: {wait_s: {|tuned: {wait_s: 3}\noptions: {wait_s: {most: 2, ":  "tuned.wait_s is 3: it must be a number from 0 to 2",
	} {
		old, new, _ := strings.Cut(change, "|")
		if !strings.Contains(sound, old) {
			t.Errorf("%s changes nothing", change)
		}
		_, err := stacks.Read(folder(strings.Replace(sound, old, new, 1), ""), "test")
		if _, usage := errors.AsType[*errs.UsageError](err); !usage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "test/stack.yaml") {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"nothing": "the stacks are", "./nothing": "./nothing is not the folder of a stack", file: " is not the folder of a stack", "/": "/ is not the folder of a stack",
		t.TempDir() + "/": "has no readable stack.yaml: no such file",
		"gloo:x=1":        "the options of this stack are quiet_s, timeout_s", "gloo:timeout_s=-1": "it must be a number, 0.1 or above", "gloo:timeout_s": "not OPTION=VALUE",
		"gloo:timeout_s=nan": "it must be a number", "gloo:timeout_s=inf": "it must be a number", "gloo:timeout_s=1:timeout_s=2": "timeout_s is given twice", "gloo:": "is not OPTION=VALUE",
		"hivemind:wait_for_all=2": "it must be a number from 0 to 1", "pccl:connections=0": "from 1 to 16", "pccl:connections=17": "from 1 to 16",
		"gloo:tuned:tuned": "\"tuned\" is not OPTION=VALUE", "gloo:tuned:": "is not OPTION=VALUE", "gloo:timeout_s=1:tuned": "\"tuned\" is not OPTION=VALUE",
	} {
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
