package record

import (
	"slices"

	"testbed/policy"
)

// RegionHash is the hash that the participants of a region agree on.
type RegionHash struct {
	Region       string      `json:"region"`         // The name of the region.
	Participants []policy.ID `json:"participants"`   // Workers of the region that reduced.
	Hash         string      `json:"hash,omitempty"` // The hash of their mean.
	// In results: the hash of the outer state after the round.
	ModelHash string `json:"model_hash,omitempty"`
}

// Agree sets the event's hashes: the hash that the participants of a reduction,
// or of each region, report, and whether all participants of a ring report the
// same.
func (e *Event) Agree(rings []policy.Ring, reported func(policy.ID) string) {
	same := true
	for _, ring := range rings {
		hash := reported(ring.Workers[0])
		for _, id := range ring.Workers {
			same = same && hash != "" && reported(id) == hash
		}
		if ring.Region == "" {
			e.Hash = hash
		} else {
			e.Regions = append(e.Regions, RegionHash{Region: ring.Region, Participants: ring.Workers, Hash: hash})
		}
	}
	e.Identical = &same
}

// regionsOf are the regions that took an outer step separately, with the hashes
// of their outcomes.
func regionsOf(rule *policy.Grouping, e *Event, hashes []RegionHash) (all []RegionHash) {
	for _, ring := range rule.Rings(e.Round, e.Participants) {
		if ring.Region == "" {
			return nil
		}
		r := RegionHash{Region: ring.Region, Participants: ring.Workers}
		if k := slices.IndexFunc(hashes, func(h RegionHash) bool { return h.Region == ring.Region }); k >= 0 {
			r.Hash = hashes[k].Hash
		}
		all = append(all, r)
	}
	return all
}

// Apart is the group that the reduction was limited to, a region or a rank. It
// is empty for a reduction of all workers.
func (r *Round) Apart() string {
	if len(r.Regions) == 0 {
		return ""
	}
	return policy.RingKind(r.Regions[0].Region)
}

// Outcome identifies the bytes of the reduction's outcome, for each region if
// they reduce separately; empty: unknown. Model identifies the outer states
// after it in the same way.
func (r *Round) Outcome() string {
	return r.hashes(r.Hash, func(h *RegionHash) string { return h.Hash })
}

// Model identifies the outer states after the reduction; see Outcome.
func (r *Round) Model() string {
	return r.hashes(r.ModelHash, func(h *RegionHash) string { return h.ModelHash })
}

func (r *Round) hashes(all string, of func(*RegionHash) string) string {
	for k := range r.Regions {
		hash := of(&r.Regions[k])
		if hash == "" {
			return ""
		}
		all += " " + hash
	}
	return all
}
