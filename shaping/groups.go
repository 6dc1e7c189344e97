package shaping

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"testbed/internal/errs"
)

// GroupOf returns the name of each node's group, or "" for none. NewPlan must
// have accepted the specification for these nodes.
func (s Spec) GroupOf(nodes []string) []string {
	r := resolver{spec: s, index: make(map[string]int, len(nodes)), names: nodes}
	for i, name := range nodes {
		r.index[name] = i
	}
	of := make([]string, len(nodes))
	for name, members := range r.groups() {
		for _, i := range members {
			of[i] = name
		}
	}
	return of
}

// groups finds the nodes of every group, as indexes in the plan.
func (r *resolver) groups() map[string][]int {
	members := make(map[string][]int, len(r.spec.Groups))
	owner := make(map[int]string)
	for _, name := range slices.Sorted(maps.Keys(r.spec.Groups)) {
		field := "groups." + name + ".nodes"
		if len(r.spec.Groups[name].Nodes) == 0 {
			r.reject(field, "is empty: name nodes, ranges such as w0-w20 or patterns such as w*")
		}
		members[name] = []int{}
		for k, term := range r.spec.Groups[name].Nodes {
			found, problem := r.match(term)
			if problem != "" {
				r.reject(fmt.Sprintf("%s[%d]", field, k), "%s", problem)
			}
			for _, i := range found {
				switch other, taken := owner[i]; {
				case !taken:
					owner[i] = name
					members[name] = append(members[name], i)
				case other != name:
					r.reject(fmt.Sprintf("%s[%d]", field, k), "node %s is also in the group %s; a node can be in one group only", r.names[i], other)
				}
			}
		}
	}
	return members
}

// Match finds the nodes that a term of a group matches: a name, a range such as
// w0-w20, or a pattern such as w*. problem says what is wrong with the term.
func Match(nodes []string, term string) (found []int, problem string) {
	r := resolver{index: make(map[string]int, len(nodes)), names: nodes}
	for i, name := range nodes {
		r.index[name] = i
	}
	return r.match(term)
}

// match finds the nodes that a term of a group matches.
func (r *resolver) match(term string) (found []int, problem string) {
	if i, ok := r.index[term]; ok { // the name may contain a hyphen
		return []int{i}, ""
	}
	if prefix, first, last, ok := parseRange(term); ok {
		if first > last {
			return nil, fmt.Sprintf("the range %q ends before it begins", term)
		}
		for _, end := range []int{first, last} {
			name := prefix + strconv.Itoa(end)
			if _, ok := r.index[name]; !ok {
				return nil, fmt.Sprintf("the range needs the node %q, which does not exist; the nodes are %s", name, listNames(r.names))
			}
		}
		for i, name := range r.names {
			number, isPrefixed := strings.CutPrefix(name, prefix)
			if k, ok := parseIndex(number); isPrefixed && ok && first <= k && k <= last {
				found = append(found, i)
			}
		}
		return found, ""
	}
	for i, name := range r.names {
		ok, err := path.Match(term, name)
		if err != nil {
			return nil, fmt.Sprintf("the pattern %q is malformed; \"*\" stands for any characters", term)
		}
		if ok {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Sprintf("there is no node %q; the nodes are %s", term, listNames(r.names))
	}
	return found, ""
}

// parseRange reads "w0-w20".
func parseRange(term string) (prefix string, first, last int, ok bool) {
	from, to, found := strings.Cut(term, "-")
	digits := func(s string) string { return s[len(strings.TrimRight(s, "0123456789")):] }
	prefix = strings.TrimSuffix(from, digits(from))
	first, okFirst := parseIndex(digits(from))
	last, okLast := parseIndex(digits(to))
	return prefix, first, last, found && okFirst && okLast && to == prefix+strconv.Itoa(last)
}

// parseIndex reads a number as node names write it, without leading zeros.
func parseIndex(s string) (int, bool) {
	k, err := strconv.Atoi(s)
	return k, err == nil && k >= 0 && strconv.Itoa(k) == s
}

// noGroup says that there is no group of a name.
func noGroup(name string, groups []string) string {
	switch {
	case len(groups) == 0:
		return "there are no groups; define them in real.links.groups"
	case name == "":
		return "is missing: choose one of the groups " + errs.List(groups)
	}
	return fmt.Sprintf("there is no group %q; the groups are %s", name, errs.List(groups))
}

// groupPaths applies the paths between groups to the plan.
func (r *resolver) groupPaths(plan *Plan, members map[string][]int) {
	seen := make(map[[2]string]int)
	for k, p := range r.spec.Paths {
		field := fmt.Sprintf("paths[%d]", k)
		ends := [][2]string{{p.From, p.To}}
		names := []struct{ field, group string }{{".from", p.From}, {".to", p.To}}
		switch {
		case p.Between != nil && (p.From != "" || p.To != ""):
			r.reject(field, `cannot combine "between" with "from" or "to": give "between" for both directions, or "from" and "to" for one`)
			continue
		case p.Between != nil && len(p.Between) != 2:
			r.reject(field+".between", "must name two groups, not %d: for the paths within a group, name the group twice", len(p.Between))
			continue
		case p.Between != nil:
			a, b := p.Between[0], p.Between[1]
			ends = [][2]string{{a, b}, {b, a}}
			names[0].field, names[0].group = ".between[0]", a
			names[1].field, names[1].group = ".between[1]", b
			if a == b {
				ends = ends[:1]
			}
		}
		known := true
		for _, n := range names {
			if _, ok := members[n.group]; !ok {
				r.reject(field+n.field, "%s", noGroup(n.group, slices.Sorted(maps.Keys(members))))
				known = false
			}
		}
		if !known {
			continue
		}
		source := r.source(field)
		r.checkPath(field, p.Path)
		for _, e := range ends {
			if first, dup := seen[e]; dup {
				r.reject(field, "the path from %s to %s is already given by paths[%d]; merge the two", e[0], e[1], first)
				continue
			}
			seen[e] = k
			for _, i := range members[e[0]] {
				for _, j := range members[e[1]] {
					if i != j {
						p.apply(&plan.Paths[i][j])
						r.setBy[i][j] = source
					}
				}
			}
		}
	}
}
