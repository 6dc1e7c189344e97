package stories

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"

	"testbed/scenarios"
)

// Story is a failure that torchft's assumptions page warns of. Its scenario is in
// the library, and is played under the policy torchft. A file of the folder told has
// what becomes of it.
type Story struct {
	Scenario string // torchft_t01 to torchft_t17
	// Versions are what becomes of it on the planned links: as it is and, where
	// torchft does not get over it, under parameters with which it does not happen.
	Versions []Version
}

// Version is what is told of a story under a policy.
type Version struct {
	Policy string
	Told   []string // as Tell has it
}

//go:embed told
var told embed.FS

// All are the stories that can be told, and Groups is another one, of replica groups
// of two ranks.
var (
	All    = read("torchft_t*.txt")
	Groups = read("torchft_groups.txt")[0]
)

// Rates says that the story hangs on the rates of links.
func (s Story) Rates() bool {
	return slices.Contains([]string{"torchft_t06", "torchft_t09", "torchft_t10"}, s.Scenario)
}

// read reads files: a paragraph about the story, and then each policy in a line, with
// what is told indented below.
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

// Told reports whether a scenario of the library is there for torchft.
func Told(s *scenarios.Scenario) bool {
	_, told := s.Policy.Parameters["torchft"]
	return told
}

// Policies are those under which a scenario of the library is looked at: the one
// that it is there for, or the two that are compared if nothing else is said.
func Policies(s *scenarios.Scenario) []string {
	if Told(s) {
		return []string{"torchft"}
	}
	return scenarios.PolicyNames
}
