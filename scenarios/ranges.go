package scenarios

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"testbed/policy"
)

// rangeOf is a range of ids, such as 0-999, or an id.
var rangeOf = regexp.MustCompile(`^\s*([0-9]{1,7})(?:\s*-\s*([0-9]{1,7}))?\s*$`)

// idsType is the type of fields that hold ids of workers.
var idsType = reflect.TypeFor[[]policy.ID]()

// expandWorkers replaces entries of workers that have ids by an entry for each
// worker. ids is a range, several ranges with commas in between, or a list of
// these.
func (p *parser) expandWorkers() {
	if p.root.Kind != yaml.MappingNode {
		return // shape reports it
	}
	for i := 0; i+1 < len(p.root.Content); i += 2 {
		if list := p.root.Content[i+1]; p.root.Content[i].Value == "workers" && list.Kind == yaml.SequenceNode {
			p.expandList(list)
			return
		}
	}
}

func (p *parser) expandList(list *yaml.Node) {
	p.copyOf = map[int]int{}
	var all []*yaml.Node
	wrong := func(i int, entry, ids *yaml.Node, problem string) {
		whole := fmt.Sprintf("workers[%d]", len(all))
		field := fmt.Sprintf("workers[%d].ids", i) // index in the file
		p.spoil(entry, &Error{File: p.file, Line: ids.Line, Field: field, Problem: problem, spoils: whole})
		all = append(all, entry)
	}
entries:
	for i, entry := range list.Content {
		at := -1 // index of the key
		for k := 0; entry.Kind == yaml.MappingNode && k+1 < len(entry.Content); k += 2 {
			switch entry.Content[k].Value {
			case "ids":
				if at >= 0 { // given twice, which shape reports
					all = append(all, entry)
					continue entries
				}
				at = k
			case "id":
				if hasKey(entry, "ids") {
					wrong(i, entry, entry, "is given together with id: keep ids or id")
					continue entries
				}
			}
		}
		if at < 0 {
			all = append(all, entry)
			continue
		}
		ids, problem := expandIDs(entry.Content[at+1], maxWorkers-len(all))
		if problem != "" {
			wrong(i, entry, entry.Content[at+1], problem)
			continue
		}
		first := len(all)
		for _, id := range ids {
			if len(all) > first {
				p.copyOf[len(all)] = first
			}
			one := *entry
			one.Content = append([]*yaml.Node(nil), entry.Content...)
			key := *entry.Content[at]
			key.Value = "id"
			one.Content[at], one.Content[at+1] = &key, id
			all = append(all, &one)
		}
	}
	list.Content = all
}

func hasKey(entry *yaml.Node, name string) bool {
	for k := 0; k+1 < len(entry.Content); k += 2 {
		if entry.Content[k].Value == name {
			return true
		}
	}
	return false
}

// expandIDs returns a node for each id that a value names, at most that many.
func expandIDs(n *yaml.Node, most int) (ids []*yaml.Node, problem string) {
	const form = "write a range such as 0-999, several ranges such as 0-9,20-29, or a list of ids and ranges"
	parts := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		parts = n.Content
	}
	for _, part := range parts {
		if part.Kind != yaml.ScalarNode {
			return nil, "has an entry that is neither an id nor a range: " + form
		}
		for text := range strings.SplitSeq(part.Value, ",") {
			m := rangeOf.FindStringSubmatch(text)
			if m == nil {
				return nil, fmt.Sprintf("%q is not a range of ids; %s", text, form)
			}
			first, _ := strconv.Atoi(m[1]) // it has few digits
			last := first
			if m[2] != "" {
				last, _ = strconv.Atoi(m[2])
			}
			switch {
			case last < first:
				return nil, fmt.Sprintf("%q ends before it begins; write %d-%d", text, last, first)
			case last-first >= most-len(ids):
				return nil, fmt.Sprintf("names more than the %d workers that are supported", maxWorkers)
			}
			for id := first; id <= last; id++ {
				ids = append(ids, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(id), Line: part.Line, Column: part.Column})
			}
		}
	}
	return ids, ""
}

// expandRanges replaces ranges in a list by their ids.
func expandRanges(n *yaml.Node) (problem string) {
	written := n.Kind == yaml.ScalarNode && n.Tag != "!!null"
	for _, part := range n.Content {
		written = written || n.Kind == yaml.SequenceNode && part.Kind == yaml.ScalarNode && rangeOf.MatchString(part.Value) && strings.Contains(part.Value, "-")
	}
	if !written {
		return ""
	}
	ids, problem := expandIDs(n, maxWorkers)
	if problem == "" {
		n.Kind, n.Tag, n.Value, n.Style, n.Content = yaml.SequenceNode, "!!seq", "", yaml.FlowStyle, ids
	}
	return problem
}

// inRanges are the workers as a file lists them: consecutive workers that
// differ in their id alone share an entry.
func inRanges(workers []Worker) (all []any) {
	type entry struct {
		IDs string `json:"ids"`
		Worker
		ID *struct{} `json:"id,omitempty"` // in place of the worker's
	}
	for i := 0; i < len(workers); {
		n := 1
		for i+n < len(workers) {
			next := workers[i]
			next.ID += policy.ID(n)
			if workers[i+n] != next {
				break
			}
			n++
		}
		if n == 1 {
			all = append(all, workers[i])
		} else {
			all = append(all, entry{IDs: fmt.Sprintf("%d-%d", workers[i].ID, int(workers[i].ID)+n-1), Worker: workers[i]})
		}
		i += n
	}
	return all
}
