package policy

import (
	"strconv"
	"strings"
)

// CoordinatorNode is the name of the coordinator's node.
const CoordinatorNode = "coordinator"

// nodes are the names of the first workers' nodes: a simulator asks for them
// millions of times.
var nodes = func() (names [1024]string) {
	for id := range names {
		names[id] = "w" + strconv.Itoa(id)
	}
	return names
}()

// Node is the name of a worker's node: w0.
func (id ID) Node() string {
	if id >= 0 && int(id) < len(nodes) {
		return nodes[id]
	}
	return "w" + strconv.Itoa(int(id))
}

// ParseNode returns the worker whose node has a name; ok is false for any other node.
func ParseNode(name string) (id ID, ok bool) {
	digits, is := strings.CutPrefix(name, "w")
	n, err := strconv.Atoi(digits)
	if !is || err != nil || ID(n).Node() != name {
		return 0, false
	}
	return ID(n), true
}
