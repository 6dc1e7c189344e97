//go:build !purego

package int8

import (
	"slices"
	"testing"
)

// TestRulesTakeWhatThereIs: whichever instructions a processor has.
func TestRulesTakeWhatThereIs(t *testing.T) {
	all := []form{
		{}, {route: avx2}, {route: avx2, stream: true}, {route: avx512}, {route: avx512, stream: true},
		{route: avx512, near: true}, {route: avx512, near: true, stream: true},
	}
	for _, n := range []int{1, 3, len(all)} {
		for _, vendor := range []uint32{intel, 0} {
			r := ruleFor(vendor, all[:n])
			if !slices.Contains(all[:n], r.cached) || !slices.Contains(all[:n], r.large) {
				t.Errorf("vendor %#x with %v: %+v", vendor, all[:n], r)
			}
			if widest := all[n-1].route; r.cached.route != widest {
				t.Errorf("vendor %#x: %v, not %v", vendor, r.cached, widest)
			}
		}
	}
}
