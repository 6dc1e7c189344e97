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
	// All regions average together once in this number of rounds. It divides
	// `target_outer_steps`.
	Every int `yaml:"every" json:"every" need:"yes"`
	// The workers of each region. If absent, the groups of `real.links` are the regions.
	Workers map[string][]ID `yaml:"workers" json:"workers,omitempty"`
}

// Validate checks the section for a run of these workers. groups has the links'
// group of each worker, empty for none. rounds is the number of rounds. uploads,
// if not 0, is the number of rounds per upload. The error is a *errs.FieldError
// with the path of the field.
func (s *RegionsSpec) Validate(workers []ID, groups []string, rounds, uploads int) error {
	bad := func(field, format string, args ...any) error {
		return errs.Fieldf("regions"+field, format, args...)
	}
	outside := slices.Index(groups, "")
	switch {
	case s.Every < 1:
		return bad(".every", "is %d: give the number of rounds from one global round to the next, at least 1", s.Every)
	case rounds%s.Every != 0:
		return bad(".every", "is %d, but target_outer_steps is %d: make target_outer_steps a multiple of %[1]d, so that the run ends with one model", s.Every, rounds)
	case uploads > 0:
		return bad("", "cannot be combined with real.upload, because each region has an outer state of its own: remove train.regions or real.upload")
	case s.Workers != nil && len(s.Workers) == 0:
		return bad(".workers", "is empty: give each region a name and its workers")
	case s.Workers == nil && slices.Max(groups) == "":
		return bad(".workers", "is missing, and real.links has no groups that could be the regions: give train.regions.workers or real.links.groups")
	case s.Workers == nil && outside >= 0:
		return bad("", "are the groups of real.links, but worker %d is in no group: put the worker into a group, or give train.regions.workers", workers[outside])
	}
	in := map[ID]string{}
	for _, name := range slices.Sorted(maps.Keys(s.Workers)) {
		if len(s.Workers[name]) == 0 {
			return bad(".workers."+name, "has no workers: add a worker, or remove the region")
		}
		for i, id := range s.Workers[name] {
			field := fmt.Sprintf(".workers.%s[%d]", name, i)
			if !slices.Contains(workers, id) {
				return bad(field, "there is no worker %d in this scenario; name one of its workers", id)
			}
			if other, twice := in[id]; twice {
				return bad(field, "worker %d is in the region %s already; put the worker into one region only", id, other)
			}
			in[id] = name
		}
	}
	for _, id := range workers {
		if _, ok := in[id]; !ok && s.Workers != nil {
			return bad(".workers", "has no region for worker %d: add the worker to a region", id)
		}
	}
	return nil
}

// Rule is the grouping of the section, for workers that Validate has accepted.
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

// Grouping determines which workers reduce together. A nil Grouping is one ring
// of all workers in every round.
type Grouping struct {
	Every   int        // rounds from one global round to the next
	Names   []string   // of the regions, or of the ranks
	Numbers map[ID]int // of each worker's region or rank, among Names

	GroupSize int  `json:",omitempty"` // ranks of a replica group; 0: these are regions
	Members   []ID `json:",omitempty"` // of replica groups, in their order
}

// NewRegions returns the rule of regions by name, with a global round after
// every so many rounds.
func NewRegions(every int, workers map[string][]ID) *Grouping {
	r := &Grouping{Every: every, Names: slices.Sorted(maps.Keys(workers)), Numbers: map[ID]int{}}
	for k, name := range r.Names {
		for _, id := range workers[name] {
			r.Numbers[id] = k
		}
	}
	return r
}

// Global reports whether all workers take part together in a round, and in its
// outer step, rather than each region by itself. Rounds count from 1. The
// beginning of the run, 0, counts as global.
func (r *Grouping) Global(round int) bool { return r == nil || round%r.Every == 0 }

// Missed lists the global steps among the outer steps that an asker lacks; it
// holds the state after have of them. It also reports whether a donor that
// holds the state after held, and keeps the outcomes of its last kept steps,
// has these outcomes.
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

// Ring is a group of workers that reduce together.
type Ring struct {
	Number  int    // of the region
	Region  string // its name; empty: all
	Workers []ID
}

// Rings divides the participants of a round into the rings in which they
// reduce. Participants keep their order; rings are in the order of the regions'
// names.
func (r *Grouping) Rings(round int, participants []ID) []Ring {
	if r.Together(round) {
		return []Ring{{Workers: participants}}
	}
	return r.Deal(participants)
}

// Deal divides workers into their regions.
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

// Ring returns the ring of one participant.
func (r *Grouping) Ring(round int, participants []ID, id ID) []ID {
	for _, ring := range r.Rings(round, participants) {
		if slices.Contains(ring.Workers, id) {
			return ring.Workers
		}
	}
	return nil
}
