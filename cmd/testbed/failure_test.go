package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/errs"
	"testbed/scenarios"
)

// TestFailureAsJSON: an error is one object, with the message, the place, the fix and the
// exit code.
func TestFailureAsJSON(t *testing.T) {
	for _, c := range []struct {
		err  error
		want failure
	}{
		{
			&scenarios.Error{File: "mine.yaml", Line: 3, Field: "workers[0].id", Problem: "is -1: it must not be negative"},
			failure{"scenario", "mine.yaml:3: workers[0].id is -1: it must not be negative", "mine.yaml", 3, "workers[0].id", "is -1", "it must not be negative", exitUsage, nil},
		},
		{
			&scenarios.Error{File: "mine.yaml", Line: 3, Field: "seed", Problem: "is missing: add it", More: []*scenarios.Error{{File: "mine.yaml", Line: 4, Field: "horizon", Problem: "is 0: raise it"}}},
			failure{"scenario", "mine.yaml:3: seed is missing: add it\nmine.yaml:4: horizon is 0: raise it", "mine.yaml", 3, "seed", "is missing", "add it", exitUsage,
				[]place{{"mine.yaml", 4, "horizon", "is 0", "raise it"}}},
		},
		{
			fmt.Errorf("reading: %w", errs.Usagef("--links x: choose auto or user")),
			failure{"usage", "reading: --links x: choose auto or user", "", 0, "", "reading: --links x", "choose auto or user", exitUsage, nil},
		},
		{
			errs.Usagef("--repeat 0 must be at least 1"),
			failure{"usage", "--repeat 0 must be at least 1", "", 0, "--repeat", "--repeat 0 must be at least 1", "", exitUsage, nil},
		},
		{
			errs.Usage(errs.Fieldf("links", "bridge has no delay; choose user")),
			failure{"usage", "links: bridge has no delay; choose user", "", 0, "links", "bridge has no delay", "choose user", exitUsage, nil},
		},
		{
			&errs.UnsupportedError{Missing: "no namespaces; not one", Fix: "set user.max_net_namespaces"},
			failure{"unsupported", "no namespaces; not one; set user.max_net_namespaces", "", 0, "", "no namespaces; not one", "set user.max_net_namespaces", exitUnsupported, nil},
		},
		{
			&experiment.InvalidError{Policy: "baseline", Seed: 1, Reason: "incomplete"},
			failure{"invalid", "the result under baseline with seed 1 is not valid: incomplete", "", 0, "", "the result under baseline with seed 1 is not valid: incomplete", "", exitInvalid, nil},
		},
		{
			fmt.Errorf("%w: 21 are left out; calibrate on another machine", calibrate.ErrNoRounds),
			failure{"invalid", calibrate.ErrNoRounds.Error() + ": 21 are left out; calibrate on another machine", "", 0, "", calibrate.ErrNoRounds.Error() + ": 21 are left out", "calibrate on another machine", exitInvalid, nil},
		},
		{errors.New("disk full"), failure{"error", "disk full", "", 0, "", "disk full", "", exitError, nil}},
	} {
		var out bytes.Buffer
		if err := writeFailure(&out, c.err); err != nil {
			t.Fatal(err)
		}
		var got map[string]failure
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || !reflect.DeepEqual(got["error"], c.want) {
			t.Errorf("%v is written as\n%+v, want\n%+v", c.err, got["error"], c.want)
		}
	}
}

// TestAsksForJSON: a command asks for JSON also where its other arguments are wrong, and
// not where --json is of the user's own program.
func TestAsksForJSON(t *testing.T) {
	for args, want := range map[string]bool{
		"simulate x --json": true, "simulate x --json=true --nonsense": true, "simulate x --json=false": false, "simulate x": false,
		"schema --json": false, "simulate x -- --json": false,
	} {
		list := strings.Fields(args)
		cmd, _, err := root().Find(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := asksForJSON(cmd, list); got != want {
			t.Errorf("testbed %s asks for JSON: %v, want %v", args, got, want)
		}
	}
}
