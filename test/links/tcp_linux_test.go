package links

import (
	"errors"
	"testing"

	"testbed/internal/errs"
	"testbed/internal/testenv"
	"testbed/shaping"
	"testbed/shaping/kernel"
)

// TestTCPIsAsNamed: nodes have the congestion control of the plan, and reno where
// it names none; one that there is not is an error that says so.
func TestTCPIsAsNamed(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	for _, c := range []struct{ named, want string }{{"", shaping.DefaultTCP}, {"reno", "reno"}, {"bbr", "bbr"}, {"no_such", ""}} {
		plan, err := shaping.NewPlan(shaping.Spec{}, fourNodes, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		plan.TCP = c.named
		testenv.InNewNamespace(t, func() {
			allowed := kernel.TCPAllowed(c.named)
			network, err := kernel.Build(plan, kernel.BackendUser, nil)
			if missing := new(errs.UnsupportedError); errors.As(err, &missing) {
				if c.want == shaping.DefaultTCP || allowed == nil || missing.Fix == "" {
					t.Errorf("%q: %v, where asking says %v", c.named, err, allowed)
				}
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer network.Close()
			if got, err := network.TCP(); err != nil || got != c.want {
				t.Errorf("with %q named the nodes have %q, %v", c.named, got, err)
			}
			if differences, err := network.ReadBack(); err != nil || len(differences) > 0 {
				t.Errorf("%q reads back as %v %v", c.named, differences, err)
			}
		})
	}
}

// TestTCPWindowsFollowThePlan: buffers of TCP in a node hold what its links may have
// under way, from the start and after a change that asks for more.
func TestTCPWindowsFollowThePlan(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	spec := shaping.Spec{Default: shaping.Properties{
		Access: shaping.Access{RateUp: new(shaping.Rate(400e6)), RateDown: new(shaping.Rate(400e6))},
		Path:   shaping.Path{OneWayDelay: new(shaping.Duration(50e6))},
	}}
	newLab(t, kernel.BackendUser, spec, fourNodes, func(l *lab) {
		expect := func(plan *shaping.Plan) {
			for i := range plan.Nodes {
				if got, err := l.net.Window(i); err != nil || got < plan.Window(i) || got < 10_000_000 {
					l.Errorf("node %d has windows of %d bytes, %v, want %d", i, got, err, plan.Window(i))
				}
			}
			if err := l.net.ShortWindows(); err != nil {
				l.Error(err)
			}
		}
		expect(l.plan)
		farther := *l.plan
		farther.Paths = nil
		for _, row := range l.plan.Paths {
			row = append([]shaping.PathPlan(nil), row...)
			for j := range row {
				row[j].OneWayDelay *= 10
			}
			farther.Paths = append(farther.Paths, row)
		}
		l.change(&farther)
		expect(&farther)
	})
}

// TestTCPChanges: new connections of all nodes can get another congestion control.
func TestTCPChanges(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	newLab(t, kernel.BackendUser, shaping.Spec{}, fourNodes, func(l *lab) {
		if err := l.net.SetTCP("no_such"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("no_such: %v", err)
		}
		for _, name := range []string{"bbr", "reno"} {
			if kernel.TCPAllowed(name) != nil {
				continue
			}
			if err := l.net.SetTCP(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got, err := l.net.TCP(); err != nil || got != name {
				t.Errorf("%q, %v; want %q", got, err, name)
			}
		}
	})
}
