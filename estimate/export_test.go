package estimate

// Codes returns the codes of all warnings.
func Codes() (codes []string) {
	for _, r := range rules {
		codes = append(codes, r.code)
	}
	return codes
}

// ExplainMeasured explains an estimate with measured terms.
func ExplainMeasured(r Run, m Measurements) Estimate {
	return explain(r.Inputs, corrected(everyCorrection, &m, &r.Further))
}

// ComputeWith computes with the measured terms of these names, and the page's
// others.
func ComputeWith(r Run, m Measurements, terms ...string) Results {
	f := corrected(0, &m, &r.Further)
	for _, name := range terms {
		for _, c := range corrections {
			if c.term == name {
				f.corrects |= c.is
			}
		}
	}
	q := quantify(&r.Inputs, f)
	return q.results(&r.Inputs)
}

// Reduction is how long n participants need for the mean of so many values, in
// s: rate in 10⁶ bit/s, round trip in s.
func Reduction(in Inputs, m Measurements, n, values, mbps, rtt float64) float64 {
	return corrected(everyCorrection, &m, &Further{}).reduction(&in, n, values, mbps, rtt).seconds
}
