package fidelity

import "time"

// Underlay describes the transfer of frames from one host of a run to another.
type Underlay struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Frames uint64 `json:"frames"`
	Lost   uint64 `json:"lost_datagrams"`
	// Late counts frames that came after they were due. LateMax is the largest
	// delay.
	Late    uint64        `json:"late"`
	LateMax time.Duration `json:"late_max_ns"`
	// Forged and Replayed are datagrams that were not accepted.
	Forged   uint64 `json:"forged"`
	Replayed uint64 `json:"replayed"`
	// ClockBound is the largest possible error in the difference of the two clocks
	// at the end. Every delay between the hosts has the same error.
	ClockBound time.Duration `json:"clock_bound_ns"`
}

const (
	// If one frame in a hundred comes late, no median shifts; if one in five does,
	// medians shift.
	underlaySuspect, underlayInvalid = 0.01, 0.20
	// A clock off by a millisecond is as bad as a round trip off by one.
	clockSuspect = time.Millisecond
)

// judgeUnderlay judges the network between two hosts. A frame lost there is an
// unplanned loss, like a frame without room.
func (v *Verdict) judgeUnderlay(u Underlay) {
	if u.Frames+u.Lost == 0 {
		return
	}
	share := float64(u.Late) / float64(max(u.Frames, 1))
	switch what := "the network from host %s to host %s was slower than planned: %d of %d frames arrived up to %v late (limit %v %% of the frames)"; {
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
		v.add(level, "the network from host %s to host %s lost datagrams against the plan: %d, or %.2g %% of the datagrams (invalid above %.2g %%)", u.From, u.To, u.Lost, 100*lost, 100*dropShareInvalid)
	}
	if u.ClockBound > clockSuspect {
		v.add(Suspect, "the clock offset between hosts %s and %s is known only to within %v, so delays between these hosts may be off by that much (limit %v)", u.From, u.To, u.ClockBound.Round(time.Microsecond), clockSuspect)
	}
}
