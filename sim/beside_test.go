package sim

import (
	"slices"
	"testing"

	"testbed/policy"
)

func TestShare(t *testing.T) {
	for _, c := range []struct {
		name       string
		end        policy.Time // of the transfer alone
		full, half []policy.Time
		ends       []policy.Time
		then       policy.Time // the end of the transfer
	}{
		{"long", 2000, []policy.Time{200, 190}, []policy.Time{300, 280}, []policy.Time{300, 280}, 2100},
		{"short", 150, []policy.Time{200, 200}, []policy.Time{300, 300}, []policy.Time{250, 250}, 200},
		{"over", 100, []policy.Time{200}, []policy.Time{300}, []policy.Time{200}, 100},
		{"no difference", 1000, []policy.Time{100}, []policy.Time{100}, []policy.Time{100}, 1000},
	} {
		transfer := SharedTransfer{c.end}
		if ends := transfer.Share(100, c.full, c.half); !slices.Equal(ends, c.ends) || transfer.End != c.then {
			t.Errorf("%s: the reduction ends at %v and the transfer at %d, want %v and %d", c.name, ends, transfer.End, c.ends, c.then)
		}
	}
	transfer := SharedTransfer{500}
	if transfer.Yield(100, []policy.Time{150, 180}); transfer.End != 580 {
		t.Errorf("a transfer that yields for 80 ends at %d, want 580", transfer.End)
	}
}
