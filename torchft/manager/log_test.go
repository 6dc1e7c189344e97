package manager

import (
	"strings"
	"testing"

	"testbed/torchft"
)

func TestWithoutQuorum(t *testing.T) {
	for want, g := range map[string]torchft.GiveUp{
		"because its only try timed out:":            {Tries: 1, TimedOut: true},
		"because its only try failed:":               {Tries: 1},
		"because the last of its 3 tries timed out:": {Tries: 3, TimedOut: true},
		"because the last of its 3 tries failed:":    {Tries: 3},
	} {
		if got := withoutQuorum(&g); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", g, got, want)
		}
	}
}
