package policy

import "strconv"

// CoordinatorNode is the name of the coordinator's node.
const CoordinatorNode = "coordinator"

// nodes are the names of the first workers' nodes. A simulator needs them
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

// ParseNode returns the worker of a node by the node's name. For nodes that are
// not workers', it returns -1 and false.
func ParseNode(name string) (id ID, ok bool) {
	if len(name) < 2 || len(name) > 10 || name[0] != 'w' || name[1] == '0' && len(name) > 2 {
		return -1, false
	}
	for _, c := range []byte(name[1:]) { // strconv.Atoi takes three times as long, and readers of events call this for every event
		if c < '0' || c > '9' {
			return -1, false
		}
		id = 10*id + ID(c-'0')
	}
	return id, true
}
