package shaping

import (
	"errors"
	"fmt"
	"slices"

	"testbed/internal/errs"
)

// Fault is a temporary fault of a network: a Partition, a Cut, a Refusal, an
// AccessChange, a PathChange or a Paced rate. Packets of a cut path vanish
// silently, as in a black hole. The sender of a refused packet gets an error at
// once.
type Fault interface {
	lay(c *composition)
}

// Partition cuts nodes off from all others, both ways. Among themselves they
// stay connected.
type Partition struct{ Nodes []string }

// Cut cuts single paths. Each is one way: the way back stays as it is,
// unless it is named as well.
type Cut struct{ Paths []Direction }

// Refusal prevents the nodes of each pair from sending to each other. A sender
// gets an error at once, that the host is unreachable, as after the loss of a
// route. It holds both ways: a kernel that checks the source of packets would
// not accept them from a node that it has no route to. Packets under way when
// it begins arrive, unless that kernel drops them.
type Refusal struct{ Pairs [][2]string }

// Paced sets one direction of a node's access link to a trace's current rate.
type Paced struct {
	Node string
	Down bool // the node's receiving direction, otherwise its sending one
	// Now is the current rate, Peak the trace's highest.
	Now, Peak Rate
}

// Direction is the way from one node to another.
type Direction struct{ From, To string }

// AccessChange changes properties of a node's access link. Nil properties stay
// as they are.
type AccessChange struct {
	Node   string
	Access Access
}

// PathChange changes properties of the path of an ordered pair. Nil properties
// stay as they are.
type PathChange struct {
	From, To string
	Path     Path
}

// Compose returns base with the active faults applied to it, one after the
// other. If two change the same property, the later one counts. A path is cut
// if any fault cuts it. Base stays as it is; the result shares the unchanged
// parts, and without faults equals it. The error joins one *errs.FieldError per
// problem, with paths such as "faults[2].from".
func Compose(base *Plan, active []Fault) (*Plan, error) {
	plan := &Plan{Seed: base.Seed, Nodes: slices.Clone(base.Nodes), Paths: slices.Clone(base.Paths)}
	c := composition{plan: plan, own: make([]bool, len(plan.Paths)), blame: make(map[[2]int]string)}
	for k, f := range active {
		c.field = fmt.Sprintf("faults[%d]", k)
		if f == nil {
			c.reject("", "is nil: leave it out")
			continue
		}
		f.lay(&c)
	}
	for _, pair := range c.changed {
		if name, problem := plan.Paths[pair[0]][pair[1]].problem(); problem != "" {
			c.field = c.blame[pair]
			c.reject("."+name, "from %s to %s: %s", plan.Nodes[pair[0]].Name, plan.Nodes[pair[1]].Name, problem)
		}
	}
	if c.problems != nil {
		return nil, errors.Join(c.problems...)
	}
	return plan, nil
}

// composition is a plan to which faults are being applied.
type composition struct {
	plan     *Plan
	own      []bool // rows of Paths that are no longer the base's
	field    string // of the present fault
	changed  [][2]int
	blame    map[[2]int]string // the fault that changed a path last
	problems []error
}

func (c *composition) reject(name, format string, args ...any) {
	c.problems = append(c.problems, errs.Fieldf(c.field+name, format, args...))
}

func (c *composition) node(name, node string) (int, bool) {
	i := c.plan.Index(node)
	if i < 0 {
		names := make([]string, len(c.plan.Nodes))
		for k, n := range c.plan.Nodes {
			names[k] = n.Name
		}
		c.reject(name, "there is no node %q; the nodes are %s", node, listNames(names))
	}
	return i, i >= 0
}

func (c *composition) pair(name, from, to string) (i, j int, ok bool) {
	i, okFrom := c.node(name+".from", from)
	j, okTo := c.node(name+".to", to)
	if okFrom && okTo && i == j {
		c.reject(name+".to", `%q is also the path's "from"; a path joins two different nodes`, to)
	}
	return i, j, okFrom && okTo && i != j
}

// path is the path from i to j, for changes.
func (c *composition) path(i, j int) *PathPlan {
	if !c.own[i] {
		c.plan.Paths[i], c.own[i] = slices.Clone(c.plan.Paths[i]), true
	}
	return &c.plan.Paths[i][j]
}

func (c *composition) mark(i, j int) {
	pair := [2]int{i, j}
	if _, seen := c.blame[pair]; !seen {
		c.changed = append(c.changed, pair)
	}
	c.blame[pair] = c.field
}

func (f Partition) lay(c *composition) {
	apart := make([]bool, len(c.plan.Nodes))
	if len(f.Nodes) == 0 {
		c.reject(".nodes", "is empty: name the nodes to cut off")
	}
	for k, name := range f.Nodes {
		if i, ok := c.node(fmt.Sprintf(".nodes[%d]", k), name); ok {
			apart[i] = true
		}
	}
	for i := range apart {
		for j := range apart {
			if apart[i] != apart[j] {
				c.path(i, j).Cut = true
			}
		}
	}
}

func (f Cut) lay(c *composition) {
	if len(f.Paths) == 0 {
		c.reject(".paths", "is empty: name the paths to cut")
	}
	for k, p := range f.Paths {
		if i, j, ok := c.pair(fmt.Sprintf(".paths[%d]", k), p.From, p.To); ok {
			c.path(i, j).Cut = true
		}
	}
}

func (f Refusal) lay(c *composition) {
	if len(f.Pairs) == 0 {
		c.reject(".pairs", "is empty: name the pairs to keep apart")
	}
	for k, p := range f.Pairs {
		if i, j, ok := c.pair(fmt.Sprintf(".pairs[%d]", k), p[0], p[1]); ok {
			c.path(i, j).Refused, c.path(j, i).Refused = true, true
		}
	}
}

func (f Paced) lay(c *composition) {
	if f.Now <= 0 || f.Now > f.Peak {
		c.reject(".now", "%v is not between 0 and the trace's highest rate of %v", f.Now, f.Peak)
	}
	i, ok := c.node(".node", f.Node)
	if !ok {
		return
	}
	n := &c.plan.Nodes[i]
	if f.Down {
		n.RateDown, n.PaceDown = f.Peak, f.Now
	} else {
		n.RateUp, n.PaceUp = f.Peak, f.Now
	}
}

func (f AccessChange) lay(c *composition) {
	before := len(c.problems)
	i, ok := c.node(".node", f.Node)
	f.Access.check(func(name, format string, args ...any) { c.reject("."+name, format, args...) })
	if !ok || len(c.problems) > before {
		return
	}
	node := &c.plan.Nodes[i]
	was := node.AccessOneWayDelay
	f.Access.apply(node)
	if node.AccessOneWayDelay == was {
		return
	}
	for j := range c.plan.Nodes {
		if j != i {
			c.path(i, j).OneWayDelay += node.AccessOneWayDelay - was
			c.path(j, i).OneWayDelay += node.AccessOneWayDelay - was
			c.mark(i, j)
			c.mark(j, i)
		}
	}
}

func (f PathChange) lay(c *composition) {
	before := len(c.problems)
	i, j, ok := c.pair("", f.From, f.To)
	f.Path.check(func(name, format string, args ...any) { c.reject("."+name, format, args...) })
	if !ok || len(c.problems) > before {
		return
	}
	path := c.path(i, j)
	access := c.plan.Nodes[i].AccessOneWayDelay + c.plan.Nodes[j].AccessOneWayDelay
	path.OneWayDelay -= access // as in the language, the given delay excludes it
	f.Path.apply(path)
	path.OneWayDelay += access
	c.mark(i, j)
}
