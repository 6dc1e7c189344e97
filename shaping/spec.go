// Package shaping says what the links of an emulated network are: the access
// link of each node, the path of each ordered pair of nodes, and the plan to
// install. It is pure: it never touches the kernel.
package shaping

// Spec is the `real.links` section of a scenario. A property that is absent
// is nil, so that "not given" and "zero" stay different.
type Spec struct {
	// Default holds the properties of every node and pair that is not named.
	Default Properties `yaml:"default" json:"default"`
	// Nodes holds the access links of single nodes, by node name.
	Nodes map[string]Access `yaml:"nodes" json:"nodes,omitempty"`
	// Pairs holds the paths of single ordered pairs of nodes.
	Pairs []Pair `yaml:"pairs" json:"pairs,omitempty"`
}

// Properties are an access link and a path together.
type Properties struct {
	Access `yaml:",inline"`
	Path   `yaml:",inline"`
}

// Access is a node's own link to the network.
type Access struct {
	// RateUp is what the node can send, RateDown what it can receive.
	RateUp   *Rate `yaml:"rate_up" json:"rate_up,omitempty"`
	RateDown *Rate `yaml:"rate_down" json:"rate_down,omitempty"`
	// Queue is how long a packet may wait for the rate before it is dropped;
	// in bytes the limit is rate × Queue.
	Queue *Duration `yaml:"queue" json:"queue,omitempty"`
}

// Path is what happens to packets from one node on their way to another.
type Path struct {
	OneWayDelay *Duration `yaml:"one_way_delay" json:"one_way_delay,omitempty"`
	// Jitter is the half-width of a uniform variation of OneWayDelay. It may
	// not exceed the delay, and it does not reorder packets.
	Jitter *Duration `yaml:"jitter" json:"jitter,omitempty"`
	// Loss is the share of packets lost, each independently of the others.
	Loss *Probability `yaml:"loss" json:"loss,omitempty"`
}

// Pair is the path from one node to another; the way back is its own pair.
type Pair struct {
	From string `yaml:"from" json:"from"`
	To   string `yaml:"to" json:"to"`
	Path `yaml:",inline"`
}
