//go:build linux

package emulation

import (
	"errors"
	"strings"
	"testing"
)

func TestLinksCheck(t *testing.T) {
	none := errors.New("none here")
	for _, test := range []struct {
		netem, user error
		ok          bool
		detail      string
	}{
		{nil, nil, true, "--links auto chooses the link backend netem"},
		{nil, none, true, "--links auto chooses the link backend netem"},
		{none, nil, true, "--links auto chooses the link backend user"},
		{none, none, false, "none here"},
	} {
		if c := linksCheck(test.netem, test.user); c.OK != test.ok || !c.Needed || !strings.HasPrefix(c.Detail, test.detail) {
			t.Errorf("netem %v, user %v: %+v", test.netem, test.user, c)
		}
	}
}

// TestMachineCheck: doctor's first line never fails.
func TestMachineCheck(t *testing.T) {
	if c := machineCheck(); !c.OK || !strings.HasPrefix(c.Detail, "Linux ") || strings.Contains(c.Detail, "unknown") {
		t.Errorf("%+v", c)
	}
}
