package main

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/scenarios"
)

// failure is an error as --json prints it.
type failure struct {
	// Kind is usage, scenario, unsupported, invalid, or error for all others.
	Kind    string `json:"kind"`
	Message string `json:"message"` // whole, as at the end of stderr
	// File, Line and Field locate it, as far as known. A flag is a field, such as
	// --links.
	File  string `json:"file,omitempty"`
	Line  int    `json:"line,omitempty"`
	Field string `json:"field,omitempty"`
	// Problem is the message without the place and the fix.
	Problem  string `json:"problem"`
	Fix      string `json:"fix,omitempty"`
	ExitCode int    `json:"exit_code"`
	// More are further problems of a scenario, without message, kind and exit code.
	More []place `json:"more,omitempty"`
}

// place is one of several problems.
type place struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Field   string `json:"field,omitempty"`
	Problem string `json:"problem"`
	Fix     string `json:"fix,omitempty"`
}

// newFailure converts an error.
func newFailure(err error) failure {
	f := failure{Kind: "error", Message: err.Error(), ExitCode: exitCode(err)}
	text := f.Message
	scenario, isScenario := errors.AsType[*scenarios.Error](err)
	unsupported, isUnsupported := errors.AsType[*errs.UnsupportedError](err)
	field, isField := errors.AsType[*errs.FieldError](err)
	switch {
	case isScenario:
		f.Kind, f.File, f.Line, f.Field, text = "scenario", scenario.File, scenario.Line, scenario.Field, scenario.Problem
		for _, e := range scenario.More {
			problem, fix := cutFix(e.Problem)
			f.More = append(f.More, place{e.File, e.Line, e.Field, problem, fix})
		}
	case f.ExitCode == exitUsage:
		f.Kind = "usage"
	case f.ExitCode == exitUnsupported:
		f.Kind = "unsupported"
	case f.ExitCode == exitInvalid:
		f.Kind = "invalid"
	}
	if isField && !isScenario {
		f.Field, text = field.Field, field.Problem
	}
	if isUnsupported {
		f.Problem, f.Fix = unsupported.Missing, unsupported.Fix
		return f
	}
	if first, _, _ := strings.Cut(f.Message, " "); f.Field == "" && strings.HasPrefix(first, "--") {
		f.Field = strings.TrimSuffix(first, ":")
	}
	f.Problem, f.Fix = cutFix(text)
	return f
}

// cutFix separates the problem from the fix, by the form of messages.
func cutFix(text string) (problem, fix string) {
	if problem, fix, ok := strings.Cut(text, "; "); ok {
		return problem, fix
	}
	if errs.IsPredicate(text) {
		problem, fix, _ = strings.Cut(text, ": ")
		return problem, fix
	}
	for _, verb := range []string{"choose", "name", "use", "add"} {
		if problem, rest, ok := strings.Cut(text, ": "+verb+" "); ok {
			return problem, verb + " " + rest
		}
	}
	return text, ""
}

// printed records whether anything was written.
type printed struct {
	io.Writer
	any bool
}

func (p *printed) Write(text []byte) (int, error) {
	p.any = p.any || len(text) > 0
	return p.Writer.Write(text)
}

// asksForJSON reports whether the arguments of a command ask for JSON, even if
// they are otherwise wrong.
func asksForJSON(cmd *cobra.Command, args []string) bool {
	if f := cmd.Flags().Lookup("json"); f == nil || f.Value.Type() != "bool" {
		return false
	}
	asked := false
	for _, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "--json" {
			asked = true
		} else if value, is := strings.CutPrefix(arg, "--json="); is {
			asked, _ = strconv.ParseBool(value)
		}
	}
	return asked
}

// writeFailure writes an error for programs.
func writeFailure(out io.Writer, err error) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]failure{"error": newFailure(err)})
}
