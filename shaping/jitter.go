package shaping

import (
	"fmt"
	"math"
	"strings"
)

// JitterDistribution is the form of the variation of a one-way delay.
type JitterDistribution uint8

// The distributions, with the meaning of a path's jitter.
const (
	Uniform JitterDistribution = iota // half of the width
	Normal                            // the standard deviation
	Pareto                            // the scale of netem's pareto: mean 0, from −2/3 up to 4 times the jitter
)

var distributionNames = []string{"uniform", "normal", "pareto"}

// UnmarshalText reads the name of a distribution.
func (d *JitterDistribution) UnmarshalText(text []byte) error {
	for i, name := range distributionNames {
		if string(text) == name {
			*d = JitterDistribution(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a distribution; the distributions are %s", text, strings.Join(distributionNames, ", "))
}

// MarshalText writes the name that UnmarshalText reads.
func (d JitterDistribution) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d JitterDistribution) String() string {
	if int(d) < len(distributionNames) {
		return distributionNames[d]
	}
	return fmt.Sprintf("distribution %d", uint8(d))
}

const (
	// JitterScale is the value in a jitter table that means one jitter, as in
	// netem (NETEM_DIST_SCALE).
	JitterScale = 8192
	// jitterSteps is the length of a table, as in the tables of tc(8).
	jitterSteps = 4096
)

// Table returns the distribution in netem's form: equally likely values, in
// units of jitter ÷ JitterScale. Both backends draw from the same table. It is
// shared and must not be changed.
func (d JitterDistribution) Table() []int16 {
	if int(d) >= len(jitterTables) {
		d = Uniform
	}
	return jitterTables[d]
}

var jitterTables = [...][]int16{
	Uniform: jitterTable(func(p float64) float64 { return 2*p - 1 }),
	Normal:  jitterTable(func(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }),
	// The formula of iproute2's pareto table (netem/paretogen.c): shape 3,
	// moved to a mean of zero.
	Pareto: jitterTable(func(p float64) float64 { return (1/math.Cbrt(1-p) - 1.5) * 4 / 3 }),
}

// jitterTable tabulates a quantile function in the middle of each step.
func jitterTable(quantile func(p float64) float64) []int16 {
	table := make([]int16, jitterSteps)
	for i := range table {
		v := math.Round(quantile((float64(i)+0.5)/jitterSteps) * JitterScale)
		table[i] = int16(min(max(v, math.MinInt16), math.MaxInt16))
	}
	return table
}

// Deviation is the difference from the one-way delay that value v of a table
// means, for jitter d.
func (d Duration) Deviation(v int16) Duration { return Duration(int64(d) * int64(v) / JitterScale) }

// Fastest and Slowest bound the one-way delay of packets that do not overtake.
func (p PathPlan) Fastest() Duration {
	return p.OneWayDelay + p.Jitter.Deviation(p.JitterDistribution.Table()[0])
}

// Slowest is the longest one-way delay; see Fastest.
func (p PathPlan) Slowest() Duration {
	return p.OneWayDelay + p.Jitter.Deviation(p.JitterDistribution.Table()[jitterSteps-1])
}
