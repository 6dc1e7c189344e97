package program_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"testbed/experiment"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/policy/program"
	"testbed/record"
	"testbed/scenarios"
)

// script writes a program that answers a question q with a, which these lines of Python
// may change, and returns its specification.
func script(t *testing.T, lines ...string) string {
	t.Helper()
	text := `#!/usr/bin/env python3
import json, sys, time
for line in sys.stdin:
    q = json.loads(line)
    kind, a = q["ask"], {"n": q["n"]}
    if kind == "hello":
        a.update(version=1, name="odd", answers=["deadline", "enough", "late", "closed", "finishes_steps"], parameters=[
            {"name": "k", "type": "int", "default": 2, "min": 1, "max": 9}, {"name": "x", "type": "float", "default": 0.5},
            {"name": "on", "type": "bool", "default": True}, {"name": "word", "type": "string", "default": "of"}])
    elif kind == "enough":
        a.update(enough=False)
    elif kind == "late":
        a.update(evict=False)
    elif kind == "finishes_steps":
        a.update(finishes_steps=False)
`
	for _, line := range lines {
		text += "    " + line + "\n"
	}
	text += "    print(json.dumps(a), flush=True)\n"
	return "program:" + file(t, text, 0o755)
}

func file(t *testing.T, text string, mode os.FileMode) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "odd.py")
	if err := testenv.WriteExecutable(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestErrorsBeforeARun: what cannot be used is an error of the scenario, before anything
// is played.
func TestErrorsBeforeARun(t *testing.T) {
	needPython(t)
	hello := func(fields string) string { return script(t, `if kind == "hello": a.update(`+fields+`)`) }
	fine := script(t)
	for name, c := range map[string]struct{ spec, want string }{
		"no path":               {"program:", `"program:" names no program; write program:PATH, such as program:./mine.py`},
		"no path either":        {"program", `"program" names no program; write program:PATH`},
		"a code that is none":   {"program:100%", `contains a % that does not begin a code such as %3A; write % as %25`},
		"no value":              {fine + ":k", `"k" has no value in "program:.*; write program:PATH:parameter=value, and a : in the path as %3A`},
		"twice":                 {fine + ":k=1:k=2", `k is given twice in`},
		"not there":             {"program:./nothing.py", `the policy's program ./nothing.py cannot be found: there is no file /.*/nothing.py; name an executable file, relative to the current directory`},
		"a folder":              {"program:.", `is not a regular file: name an executable file`},
		"not executable":        {"program:" + file(t, "#!/bin/sh\n", 0o644), `is not executable: call chmod \+x`},
		"no interpreter":        {"program:" + file(t, "#!/no/such/thing\n", 0o755), `cannot be started: its interpreter does not exist; install the interpreter, or correct the first line of the program`},
		"ends at once":          {"program:" + file(t, "#!/bin/sh\n", 0o755), `ended by itself when it was asked the question "hello"`},
		"dies at once":          {"program:" + file(t, "#!/bin/sh\necho one >&2\necho a reason >&2\nexit 3\n", 0o755), `died when it was asked the question "hello": exit status 3; its last line of output: "a reason"$`},
		"garbage":               {"program:" + file(t, "#!/bin/sh\necho hello\ncat >/dev/null\n", 0o755), `answered the question "hello" with "hello": .*; make it follow the protocol of docs/policies.md`},
		"another version":       {hello("version=2"), `speaks version 2 of the protocol, but this testbed speaks version 1`},
		"no version":            {hello("version=None"), `speaks version 0 of the protocol`},
		"another kind":          {hello(`answers=["enough", "when"]`), `says that it answers the unknown question "when"; the known questions are deadline, enough, late, closed, finishes_steps`},
		"no time":               {hello("time_limit_s=0"), `time_limit_s is 0: it must lie in \(0, 3600\]`},
		"more than asked for":   {hello("colour=1"), `answered the question "hello" with .*unknown field "colour"`},
		"a name that is none":   {hello(`parameters=[{"name": "a b", "type": "int", "default": 1}]`), `a parameter is called "a b"; a name has only letters, digits and _`},
		"one name twice":        {hello(`parameters=[{"name": "a", "type": "int", "default": 1}] * 2`), `two parameters are called "a"; give each parameter a name of its own`},
		"a type that is none":   {hello(`parameters=[{"name": "a", "type": "number", "default": 1}]`), `its parameter a has the type "number"; choose int, float, bool or string`},
		"a default of no type":  {hello(`parameters=[{"name": "a", "type": "int", "default": 1.5}]`), `has the parameter a, whose default is missing or not of type int`},
		"no default":            {hello(`parameters=[{"name": "a", "type": "string"}]`), `whose default is missing or not of type string`},
		"a default out of it":   {hello(`parameters=[{"name": "a", "type": "int", "default": 1, "min": 2}]`), `the default of its parameter a is 1: it must be at least 2`},
		"a range that is none":  {hello(`parameters=[{"name": "a", "type": "int", "default": 1, "range": {"low": 0, "high": 1, "log": True}}]`), `its parameter a has a range from 0 to 1 that is searched by its logarithm: low must be above 0`},
		"a range backwards":     {hello(`parameters=[{"name": "a", "type": "int", "default": 1, "range": {"low": 5, "high": 1}}]`), `its parameter a has a range from 5 to 1: low must not be above high`},
		"a range of nothing":    {hello(`parameters=[{"name": "a", "type": "int", "default": 1, "range": {"low": 1, "high": 5, "of": "rounds"}}]`), `its parameter a has a range in multiples of "rounds": the field "of" must be "round" or "members", or absent`},
		"a limit of a text":     {hello(`parameters=[{"name": "a", "type": "string", "default": "", "max": 1}]`), `its parameter a has a min or max`},
		"no such parameter":     {fine + ":z=1", `\(odd\) has no parameter z: its parameters are k, x, on, word`},
		"no int":                {fine + ":k=1.5", `does not take k=1.5: the value must be of the type int`},
		"no float":              {fine + ":x=much", `does not take x=much: the value must be of the type float`},
		"an infinite float":     {fine + ":x=Inf", `does not take x=Inf: the value must be of the type float`},
		"no bool":               {fine + ":on=1", `does not take on=1: the value must be of the type bool`},
		"too small":             {fine + ":k=0", `does not take k=0: the value is 0: it must be at least 1`},
		"too large":             {fine + ":k=10", `does not take k=10: the value is 10: it must be at most 9`},
		"refused":               {script(t, `if kind == "reset" and q["parameters"]["k"] > 3: a.update(error="k is above 3 on a Sunday")`) + ":k=4", `\(odd\) refuses its parameters: k is above 3 on a Sunday`},
		"another question":      {script(t, `if kind == "reset": a["n"] = 7`), `answered question 7, but the open question is 2 \("reset"\); make it follow`},
		"an answer without one": {script(t, `if kind == "reset": a = {}`), `answered the question "reset" without the field "n": "{}"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := scenarios.Parse("short.yaml", []byte(short))
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Machine(c.spec)
			if _, is := errors.AsType[*scenarios.Error](err); !is || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestErrorsInARun end it, with the reason on record.
func TestErrorsInARun(t *testing.T) {
	needPython(t)
	second := func(kind, then string) string {
		return script(t, `if kind == "`+kind+`" and q["round"]["number"] == 2: `+then)
	}
	for name, c := range map[string]struct{ spec, want string }{
		"exits":              {second("closed", `sys.exit(0)`), `\(odd\) ended by itself when it was asked the question "closed"; keep it running until its standard input ends`},
		"raises":             {second("closed", `raise ValueError("no such round")`), `\(odd\) died when it was asked the question "closed": exit status 1; its last line of output: "ValueError: no such round"$`},
		"closes its output":  {second("enough", `sys.stdout.close(); __import__("os").close(1); time.sleep(60)`), `\(odd\) closed its standard output when it was asked the question "enough"`},
		"cannot answer":      {second("enough", `a["error"] = "there are too few"`), `\(odd\) cannot answer the question "enough": there are too few$`},
		"garbage":            {second("enough", `print("I am thinking")`), `answered the question "enough" with "I am thinking": invalid character`},
		"two lines":          {second("enough", `print(json.dumps(a))`), `answered question \d+, but the open question is \d+ \("`},
		"two values":         {second("enough", `print(json.dumps(a), end=" ")`), `answered the question "enough" with more than one value on a line`},
		"nothing":            {second("enough", `del a["enough"]`), `answered the question "enough" without the field "enough"`},
		"no evict":           {script(t, `if kind == "enough": a["enough"] = q["round"]["arrived"] == 2`, `if kind == "late" and q["round"]["number"] == 2: del a["evict"]`), `answered the question "late" without the field "evict"`},
		"another's answer":   {second("enough", `a["evict"] = True`), `unknown field "evict"`},
		"a text":             {second("enough", `a["enough"] = "yes"`), `answered the question "enough" with .*cannot unmarshal string`},
		"a long line":        {second("closed", `a["error"] = "x" * 70000`), `answered the question "closed" with a line longer than 65536 bytes: "{`},
		"no number":          {second("deadline", `a["deadline"] = {"at_us": q["round"]["now_us"], "numbers": {"a": float("nan")}}`), `answered the question "deadline" with .*NaN.*: invalid character`},
		"a past deadline":    {second("deadline", `a["deadline"] = {"at_us": q["round"]["now_us"] - 1}`), `answered with a deadline at 3109 µs in round 2, but the time was already 3110 µs; make the program answer with the present time or a later one`},
		"a far deadline":     {second("deadline", `a["deadline"] = {"at_us": 10**16}`), `may be at most 1000000000000000 µs ahead`},
		"half a deadline":    {second("deadline", `a["deadline"] = {}`), `a deadline without the field "at_us"`},
		"half a microsecond": {second("deadline", `a["deadline"] = {"at_us": 5000.5}`), `answered the question "deadline" with .*cannot unmarshal number 5000.5`},
		"hangs": {script(t, `if kind == "hello": a["time_limit_s"] = 0.3`, `if kind == "closed" and q["round"]["number"] == 2: time.sleep(60)`),
			`has not answered the question "closed" within 300ms; the program hangs, or needs more time: give a time_limit_s in its answer to the question "hello"`},
		"lives on in a child": {second("closed", `__import__("subprocess").Popen(["sleep", "60"]); sys.exit("gone")`), `died when it was asked the question "closed": exit status 1|closed its standard output`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := scenarios.Parse("short.yaml", []byte(short))
			if err != nil {
				t.Fatal(err)
			}
			var events []record.Event
			began := time.Now()
			_, err = experiment.OnChurn(s, c.spec, func(e record.Event) { events = append(events, e) })
			if _, is := errors.AsType[*policy.FailedError](err); !is || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Fatalf("%v, want %s", err, c.want)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			last := events[len(events)-1]
			if last.Type != record.RunEnd || *last.Complete || last.Reason.Rule != policy.RulePolicyFailed || last.Cause != err.Error() || last.T < 2000 {
				t.Errorf("the record ends with %+v", last)
			}
			for _, e := range events {
				if e.Type == record.OuterStep && e.Round > 2 {
					t.Errorf("the run went on: %+v", e)
				}
			}
		})
	}
}

// TestHelloThatChanges: two simulations at the same time have a process each, and both
// have to be of the same program.
func TestHelloThatChanges(t *testing.T) {
	needPython(t)
	counted := fmt.Sprintf("%q", filepath.Join(t.TempDir(), "counted"))
	spec := script(t, `if kind == "hello":`, `    open(`+counted+`, "a").write("x")`, `    a["name"] = open(`+counted+`).read()`)
	s, err := scenarios.Parse("short.yaml", []byte(short))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Machine(spec)
	if err != nil {
		t.Fatal(err)
	}
	var errs [2]error
	var finished [2]bool
	var machines [2]*policy.Machine
	for i := range machines {
		m, err := policy.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		m.Step(0, policy.Join{ID: 0, HasState: true})
		m.Step(0, policy.Join{ID: 1, HasState: true})
		m.Step(5, policy.Arrival{ID: 1, Round: 1})
		machines[i], finished[i] = m, m.Finished()
	}
	for i, m := range machines {
		errs[i] = m.Close()
	}
	if errs[0] != nil || finished[0] || !finished[1] || errs[1] == nil || !strings.Contains(errs[1].Error(), `answers the question "hello" differently than before`) {
		t.Errorf("finished %v, %v", finished, errs)
	}
}

// TestPathsWithColons are written with percent codes.
func TestPathsWithColons(t *testing.T) {
	needPython(t)
	text, err := os.ReadFile("testdata/backup.py")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "a:b,c%d.py")
	if err := testenv.WriteExecutable(name, text); err != nil {
		t.Fatal(err)
	}
	s, err := scenarios.Parse("short.yaml", []byte(short))
	if err != nil {
		t.Fatal(err)
	}
	spec := "program:" + strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C").Replace(name) + ":b=2"
	sum, err := experiment.OnChurn(s, spec, nil)
	t.Chdir(filepath.Dir(name))
	if absolute, err := program.Absolute("program:a%3Ab%2Cc%25d.py:b=2"); err != nil || absolute != spec {
		t.Errorf("%v: from anywhere it is %s, not %s", err, absolute, spec)
	}
	if other, err := program.Absolute("straggler:k=2"); err != nil || other != "straggler:k=2" {
		t.Errorf("%v: straggler is %s", err, other)
	}
	if err != nil || sum.Policy != spec || len(sum.Rounds[0].Participants) != 1 {
		t.Errorf("%v, policy %s, %d participants", err, sum.Policy, len(sum.Rounds[0].Participants))
	}
}
