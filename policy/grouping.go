package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"testbed/internal/errs"
)

// RegionsSpec is the section train.regions of a scenario.
type RegionsSpec struct {
	// Rounds from one in which all regions average together to the next. It divides
	// `target_outer_steps`.
	Every int `yaml:"every" json:"every" need:"yes"`
	// The workers of each region. If absent, the groups of `real.links` are the regions.
	Workers map[string][]ID `yaml:"workers" json:"workers,omitempty"`
}

// Validate looks at the section of a run of these workers, each in a group of the
// links or, with an empty name, in none, with so many rounds and, if that is not 0,
// an upload in every so many. The error is a *errs.FieldError with the path of the
// field.
func (s *RegionsSpec) Validate(workers []ID, groups []string, rounds, uploads int) error {
	bad := func(field, format string, args ...any) error {
		return errs.Fieldf("regions"+field, format, args...)
	}
	outside := slices.Index(groups, "")
	switch {
	case s.Every < 1:
		return bad(".every", "is %d; give the number of rounds from one global round to the next, at least 1", s.Every)
	case rounds%s.Every != 0:
		return bad(".every", "is %d, but target_outer_steps is %d; let that be a multiple, so that the run ends with one model", s.Every, rounds)
	case uploads > 0:
		return bad("", "have outer states that differ, of which real.upload knows nothing; remove one of the two")
	case s.Workers != nil && len(s.Workers) == 0:
		return bad(".workers", "is empty; give each region a name and its workers")
	case s.Workers == nil && slices.Max(groups) == "":
		return bad(".workers", "is missing, and real.links has no groups that could be the regions; give one of the two")
	case s.Workers == nil && outside >= 0:
		return bad("", "are the groups of real.links, but worker %d is in none; put it into one, or give train.regions.workers", workers[outside])
	}
	in := map[ID]string{}
	for _, name := range slices.Sorted(maps.Keys(s.Workers)) {
		if len(s.Workers[name]) == 0 {
			return bad(".workers."+name, "has nobody in it; give it a worker, or remove it")
		}
		for i, id := range s.Workers[name] {
			field := fmt.Sprintf(".workers.%s[%d]", name, i)
			if !slices.Contains(workers, id) {
				return bad(field, "there is no worker %d in this scenario; name one of its own", id)
			}
			if other, twice := in[id]; twice {
				return bad(field, "worker %d is in the region %s already; keep one of the two", id, other)
			}
			in[id] = name
		}
	}
	for _, id := range workers {
		if _, ok := in[id]; !ok && s.Workers != nil {
			return bad(".workers", "puts worker %d into no region; add it to one", id)
		}
	}
	return nil
}

// Grouping is that of the section, for the workers that Validate was given.
func (s *RegionsSpec) Rule(workers []ID, groups []string) *Grouping {
	in := s.Workers
	if in == nil {
		in = map[string][]ID{}
		for k, id := range workers {
			in[groups[k]] = append(in[groups[k]], id)
		}
	}
	return NewRegions(s.Every, in)
}

// Grouping says who reduces with whom. A nil Rule has one ring of all, in every round.
type Grouping struct {
	Every   int        // rounds from one of all to the next
	Names   []string   // of the regions, or of the ranks
	Numbers map[ID]int // of each worker's region or rank, among Names

	GroupSize int  `json:",omitempty"` // ranks of a replica group; 0: these are regions
	Members   []ID `json:",omitempty"` // of replica groups, in their order
}

// NewRegions returns the rule of regions by name, with a round of all in every so many.
func NewRegions(every int, workers map[string][]ID) *Grouping {
	r := &Grouping{Every: every, Names: slices.Sorted(maps.Keys(workers)), Numbers: map[ID]int{}}
	for k, name := range r.Names {
		for _, id := range workers[name] {
			r.Numbers[id] = k
		}
	}
	return r
}

// Global reports whether all take part in a round, or in its outer step, together, and
// not each region by itself. Rounds count from 1; 0, the beginning of the run, is of
// all, too.
func (r *Grouping) Global(round int) bool { return r == nil || round%r.Every == 0 }

// Missed lists the steps of all, of the outer steps that an asker with the state
// after so many lacks, and reports whether a donor that holds the one after held has
// kept their outcomes, which are among its last so many.
func (r *Grouping) Missed(have, held, kept int) (steps []int, ok bool) {
	for to := have + 1; to <= held; to++ {
		if !r.Global(to) {
			continue
		}
		if to <= held-kept {
			return nil, false
		}
		steps = append(steps, to)
	}
	return steps, have >= 0 && have <= held
}

// Len is the number of regions.
func (r *Grouping) Len() int {
	if r == nil {
		return 1
	}
	return len(r.Names)
}

// Of is the region of a worker, by number.
func (r *Grouping) Of(id ID) int {
	if r == nil {
		return 0
	}
	return r.Numbers[id]
}

// Ring is who reduces together.
type Ring struct {
	Number  int    // of the region
	Region  string // its name; empty: all
	Workers []ID
}

// Rings deals the participants of a round to the rings in which they reduce: in
// the order in which they are given, and the rings in that of the regions' names.
func (r *Grouping) Rings(round int, participants []ID) []Ring {
	if r.Together(round) {
		return []Ring{{Workers: participants}}
	}
	return r.Deal(participants)
}

// Deal deals workers to their regions.
func (r *Grouping) Deal(workers []ID) (rings []Ring) {
	for _, id := range workers {
		k, found := slices.BinarySearchFunc(rings, r.Numbers[id], func(ring Ring, n int) int { return cmp.Compare(ring.Number, n) })
		if !found {
			rings = slices.Insert(rings, k, Ring{Number: r.Numbers[id], Region: r.Names[r.Numbers[id]]})
		}
		rings[k].Workers = append(rings[k].Workers, id)
	}
	return rings
}

// Ring is the one of a participant's.
func (r *Grouping) Ring(round int, participants []ID, id ID) []ID {
	for _, ring := range r.Rings(round, participants) {
		if slices.Contains(ring.Workers, id) {
			return ring.Workers
		}
	}
	return nil
}
