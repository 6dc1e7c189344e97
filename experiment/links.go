package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"testbed/scenarios"
)

// LinksAuto is the link backend that the machine chooses.
const LinksAuto = "auto"

// backends are the others.
var backends = []string{"netem", "user", "htb"}

// ErrLinksDiffer says that the results of a scenario differ between link
// backends. The comparison that comes with it lists the differences.
var ErrLinksDiffer = errors.New("the link backends do not agree")

// CheckLinks reports whether a run can be played on a link backend, or on each
// of several. The error is a *scenarios.Error.
func CheckLinks(links ...string) error {
	given := strings.Join(links, ",")
	wrong := func(format string, args ...any) error {
		return &scenarios.Error{Problem: "--links " + given + ": " + fmt.Sprintf(format, args...)}
	}
	for i, name := range links {
		switch {
		case name == LinksAuto && len(links) == 1:
		case name == LinksAuto:
			return wrong("auto stands for another backend; name that backend, netem or user")
		case !slices.Contains(backends, name) && len(links) == 1:
			return wrong("choose auto, netem, user or htb")
		case !slices.Contains(backends, name):
			return wrong("%q is not a link backend; choose netem, user or htb", name)
		case slices.Contains(links[:i], name):
			return wrong("%s is in the list twice; keep one", name)
		}
	}
	return nil
}
