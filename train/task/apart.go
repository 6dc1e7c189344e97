package task

import (
	"testbed/internal/errs"
	"testbed/policy"
)

// Apart reports whether some rounds do not reduce all workers together. It
// accepts a nil section.
func (s *Spec) Apart() bool {
	return s != nil && (s.Regions != nil || s.GroupWorldSize != 0 && s.GroupWorldSize != 1)
}

// Ranks is the number of workers in a replica group. It accepts a nil section.
func (s *Spec) Ranks() int {
	if s == nil {
		return 1
	}
	return max(s.GroupWorldSize, 1)
}

// Shard is the number of parameters of a rank.
func (s *Spec) Shard(of int) int { return of / s.Ranks() }

// Rule is the grouping of a section that is Apart. groups has each worker's
// group of links, empty for none.
func (s *Spec) Rule(workers []policy.ID, groups []string) *policy.Grouping {
	if n := s.Ranks(); n > 1 {
		return policy.NewReplicaGroups(workers, n)
	}
	return s.Regions.Rule(workers, groups)
}

// Size is the size of a run: outer steps, parameters, and the number of outer
// steps between uploads, or 0.
type Size struct{ Rounds, Parameters, Uploads int }

// ValidateApart checks regions and replica groups. Errors are as in Validate.
func (s *Spec) ValidateApart(workers []policy.ID, groups []string, run Size) error {
	n := s.GroupWorldSize
	if n == 0 || n == 1 {
		return s.Regions.Validate(workers, groups, run.Rounds, run.Uploads)
	}
	bad := func(format string, args ...any) error {
		return errs.Fieldf("group_world_size", format, args...)
	}
	switch {
	case n < 1:
		return bad("is %d: give the number of ranks of a replica group, at least 1", n)
	case len(workers)%n != 0:
		return bad("is %d, but the number of workers is %d: make the number of workers a multiple of %[1]d", n, len(workers))
	case s.Regions != nil:
		return bad("is %d, but replica groups cannot be combined with train.regions: remove train.group_world_size or train.regions", n)
	case s.Real():
		return bad("is %d, but only the parameters of the task %s can be divided among ranks: remove train.group_world_size, or choose that task", n, Quadratic)
	case run.Parameters%n != 0:
		return bad("is %d, but real.parameters is %d: make real.parameters a multiple of %[1]d, because each rank holds an equal part", n, run.Parameters)
	case run.Uploads > 0:
		return bad("is %d, so no worker has the whole outer state that real.upload uploads: remove train.group_world_size or real.upload", n)
	}
	return nil
}
