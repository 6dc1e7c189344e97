package fidelity

import "time"

// Underlay is what became of the frames from one host of a run to another.
type Underlay struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Frames uint64 `json:"frames"`
	Lost   uint64 `json:"lost_datagrams"`
	// Late are frames that came after they were due, LateMax by how much at most.
	Late    uint64        `json:"late"`
	LateMax time.Duration `json:"late_max_ns"`
	// Forged and Replayed are datagrams that were not accepted.
	Forged   uint64 `json:"forged"`
	Replayed uint64 `json:"replayed"`
	// ClockBound is by how much the two clocks can have been misjudged at the end:
	// every delay between the hosts is off by as much.
	ClockBound time.Duration `json:"clock_bound_ns"`
}

const (
	// A frame in a hundred that comes late shifts no median, and one in five does.
	underlaySuspect, underlayInvalid = 0.01, 0.20
	// A clock off by a millisecond is as bad as a round trip off by one.
	clockSuspect = time.Millisecond
)

// judgeUnderlay judges what lies between two hosts. A frame that it lost was lost
// against the plan, like one for which there was no room.
func (v *Verdict) judgeUnderlay(u Underlay) {
	if u.Frames+u.Lost == 0 {
		return
	}
	share := float64(u.Late) / float64(max(u.Frames, 1))
	switch what := "the network from host %s to host %s was slower than planned: %d of %d frames arrived up to %v late (limit %v %%)"; {
	case share > underlayInvalid:
		v.add(Invalid, what, u.From, u.To, u.Late, u.Frames, u.LateMax.Round(time.Microsecond), 100*underlayInvalid)
	case share > underlaySuspect:
		v.add(Suspect, what, u.From, u.To, u.Late, u.Frames, u.LateMax.Round(time.Microsecond), 100*underlaySuspect)
	}
	if u.Lost > 0 {
		lost := float64(u.Lost) / float64(u.Frames+u.Lost)
		level := Suspect
		if lost > dropShareInvalid {
			level = Invalid
		}
		v.add(level, "the network from host %s to host %s lost %d datagrams against the plan (%.2g %% of the datagrams; limit %.2g %%)", u.From, u.To, u.Lost, 100*lost, 100*dropShareInvalid)
	}
	if u.ClockBound > clockSuspect {
		v.add(Suspect, "the clock offset between hosts %s and %s is known only to within %v, so delays between these hosts may be off by that much (limit %v)", u.From, u.To, u.ClockBound.Round(time.Microsecond), clockSuspect)
	}
}
