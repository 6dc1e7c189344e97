package work

import "math"

// pareto returns the exponent of a Pareto and its minimum over the mean; 0 if
// the steps do not follow one.
func (s Steps) pareto() (alpha, minimum float64) {
	switch {
	case s.Shape != nil:
		alpha = *s.Shape
	case s.kind() == Pareto && *s.Sigma > 0:
		// For a Pareto without a bound, sigma² = 1/(α(α−2)).
		alpha = 1 + math.Sqrt(1+1/(*s.Sigma**s.Sigma))
	default:
		return 0, 0
	}
	return alpha, (alpha - 1) / alpha * (1 - math.Pow(paretoBound, -alpha)) / (1 - math.Pow(paretoBound, 1-alpha))
}

// CDF is the share of inner steps that take at most ratio times their mean. The
// steps have been validated, and have a Sigma above 0 or a Shape.
func (s Steps) CDF(ratio float64) float64 {
	phi := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	switch x := ratio - 1; s.kind() {
	case Normal: // which is cut off at 0 and 2
		cut := phi(-1 / *s.Sigma)
		return within01((phi(x / *s.Sigma) - cut) / (1 - 2*cut))
	case LogNormal:
		if ratio <= 0 {
			return 0
		}
		return phi((math.Log(ratio) + *s.Sigma**s.Sigma/2) / *s.Sigma)
	case Pareto:
		alpha, minimum := s.pareto()
		if ratio <= minimum {
			return 0
		}
		return within01((1 - math.Pow(minimum/ratio, alpha)) / (1 - math.Pow(paretoBound, -alpha)))
	case Trace:
		below := 0
		for _, r := range s.Ratios {
			if r <= ratio {
				below++
			}
		}
		return float64(below) / float64(len(s.Ratios))
	default:
		return within01((x / *s.Sigma * widest + 1) / 2)
	}
}

func within01(p float64) float64 { return min(1, max(0, p)) }
