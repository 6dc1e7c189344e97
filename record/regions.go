package record

import (
	"slices"

	"testbed/policy"
)

// RegionHash is what the participants of a region agree on.
type RegionHash struct {
	Region       string      `json:"region"`
	Participants []policy.ID `json:"participants"`
	Hash         string      `json:"hash,omitempty"`
	// ModelHash is that of the outer state which a round of a summary leads to.
	ModelHash string `json:"model_hash,omitempty"`
}

// Agree has the event say which hash the participants of a reduction, or each region
// of them, report, and whether all of a ring report the same.
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

// regionsOf are the regions that took an outer step apart, with the hashes of their
// outcomes.
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

// Apart is what the reduction was of, each by itself: a region or a rank, or, with an
// empty string, all.
func (r *Round) Apart() string {
	if len(r.Regions) == 0 {
		return ""
	}
	return policy.RingKind(r.Regions[0].Region)
}

// Outcome names the bytes that the reduction came to, in each region where they
// reduce apart, and Model the outer states that these lead to; empty: not known.
func (r *Round) Outcome() string {
	return r.hashes(r.Hash, func(h *RegionHash) string { return h.Hash })
}

// Model is as Outcome says.
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
