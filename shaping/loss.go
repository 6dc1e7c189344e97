package shaping

import "fmt"

// LossBurst is loss in bursts: the Gilbert-Elliott model (E. N. Gilbert,
// "Capacity of a burst-noise channel", 1960; E. O. Elliott, "Estimates of error
// rates for codes on burst-noise channels", 1963) with the parameters of
// netem(8). The path is inside or outside a burst. This state first determines
// the loss of each packet. Then the packet may change the state. The zero value
// is no loss at all.
type LossBurst struct {
	// The probability, per packet, that a burst begins (netem's p).
	Enter Probability `yaml:"enter" json:"enter" need:"yes"`
	// The probability, per packet, that a burst ends (r). Bursts are 1/`leave` packets long
	// on average.
	Leave Probability `yaml:"leave" json:"leave" need:"yes"`
	// The share of packets lost inside a burst (1-h).
	LossInside Probability `yaml:"loss_inside" json:"loss_inside" need:"yes"`
	// The share of packets lost outside of bursts (1-k).
	LossOutside Probability `yaml:"loss_outside" json:"loss_outside,omitzero"`
}

// Mean is the share of packets lost in the long run.
func (b LossBurst) Mean() Probability {
	if b.Enter == 0 {
		return b.LossOutside
	}
	return (b.Enter*b.LossInside + b.Leave*b.LossOutside) / (b.Enter + b.Leave)
}

// MeanLoss is the share of packets that the path loses in the long run.
func (p PathPlan) MeanLoss() Probability {
	switch {
	case p.Cut:
		return 1
	case p.LossBurst != LossBurst{}:
		return p.LossBurst.Mean()
	}
	return p.Loss
}

// Clumping is the largest factor by which the variance of the number of losses
// exceeds that of independent losses. The state of a Gilbert-Elliott path is
// correlated by 1 − enter − leave from packet to packet. Without bursts it is
// 1.
func (p PathPlan) Clumping() float64 {
	if p.LossBurst == (LossBurst{}) {
		return 1
	}
	stays := max(0, 1-float64(p.LossBurst.Enter)-float64(p.LossBurst.Leave))
	return (1 + stays) / (1 - stays)
}

// check reports the problems of a burst, each by its field.
func (b LossBurst) check(reject func(field, format string, args ...any)) {
	for _, f := range []struct {
		name  string
		value Probability
		zero  bool // may be zero
	}{
		{"enter", b.Enter, false}, {"leave", b.Leave, false},
		{"loss_inside", b.LossInside, false}, {"loss_outside", b.LossOutside, true},
	} {
		switch problem := f.value.problem(); {
		case problem != "":
			reject(f.name, "%s", problem)
		case f.value == 0 && !f.zero:
			reject(f.name, "is zero, but enter, leave and loss_inside of a burst must be above 0%%: give a larger share, or loss instead of loss_burst")
		}
	}
	if b.LossOutside > b.LossInside {
		reject("loss_outside", "%v exceeds the loss of %v inside a burst; exchange the two", b.LossOutside, b.LossInside)
	}
}

// problem says why p is not a probability; it is empty if p is one.
func (p Probability) problem() string {
	if p >= 0 && p <= 1 { // NaN fails both
		return ""
	}
	return fmt.Sprintf("%v is not a probability; write 0%% to 100%%", float64(p))
}
