package stories

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"

	"testbed/scenarios"
)

// Story is a failure that torchft's assumptions page warns of. Its scenario is
// in the library, and is played under the policy torchft. A file of the folder
// told has its outcome.
type Story struct {
	Scenario string // torchft_t01 to torchft_t18
	// Versions are its outcomes on the planned links: unchanged and, if torchft
	// does not recover from it, under parameters with which it does not happen.
	Versions []Version
}

// Version is the account of a story under a policy.
type Version struct {
	Policy string
	Told   []string // from Tell
}

//go:embed told
var told embed.FS

// All are all stories. Groups is another one, with replica groups of two ranks.
var (
	All    = read("torchft_t*.txt")
	Groups = read("torchft_groups.txt")[0]
)

// Rates reports whether the story depends on the rates of links.
func (s Story) Rates() bool {
	return slices.Contains([]string{"torchft_t06", "torchft_t09", "torchft_t10", "torchft_t18"}, s.Scenario)
}

// read reads files: a paragraph about the story, and then each policy in a
// line, with its account indented below.
func read(pattern string) (all []Story) {
	names, err := fs.Glob(told, path.Join("told", pattern))
	if err != nil {
		panic(err) // the pattern is one of the two above
	}
	for _, name := range names {
		text, err := told.ReadFile(name)
		if err != nil {
			panic(err) // it is part of the program
		}
		s := Story{Scenario: strings.TrimSuffix(path.Base(name), ".txt")}
		_, lines, _ := strings.Cut(string(text), "\n\n")
		for line := range strings.Lines(lines) {
			line = strings.TrimSuffix(line, "\n")
			if said, indented := strings.CutPrefix(line, "  "); indented {
				v := &s.Versions[len(s.Versions)-1]
				v.Told = append(v.Told, said)
			} else {
				s.Versions = append(s.Versions, Version{Policy: line})
			}
		}
		all = append(all, s)
	}
	return all
}

// Told reports whether a scenario of the library is meant for torchft.
func Told(s *scenarios.Scenario) bool {
	_, told := s.Policy.Parameters["torchft"]
	return told
}

// Policies are the policies for a scenario of the library: the one that it is
// meant for, or the two that are compared by default.
func Policies(s *scenarios.Scenario) []string {
	if Told(s) {
		return []string{"torchft"}
	}
	return scenarios.PolicyNames
}
