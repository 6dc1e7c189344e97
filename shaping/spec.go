// Package shaping says what the links of an emulated network are: the access
// link of each node, the path of each ordered pair of nodes, and the plan to
// install. It is pure: it never touches the kernel.
package shaping

// Spec is the `real.links` section of a scenario. A property that is absent
// is nil, so that "not given" and "zero" stay different. The closest level
// wins, property by property: default, then group, then node or pair; and
// within a level what is written out wins over its preset.
type Spec struct {
	// Default holds the properties of every node and pair that is not named.
	Default Properties `yaml:"default" json:"default"`
	// Groups are sets of nodes with an access link in common, by name.
	Groups map[string]Group `yaml:"groups" json:"groups,omitempty"`
	// Paths holds the paths between groups, and within a group.
	Paths []GroupPath `yaml:"paths" json:"paths,omitempty"`
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
	// AccessPreset gives what the fields below do not.
	AccessPreset *AccessPreset `yaml:"access_preset" json:"access_preset,omitempty"`
	// RateUp is what the node can send, RateDown what it can receive.
	RateUp   *Rate `yaml:"rate_up" json:"rate_up,omitempty"`
	RateDown *Rate `yaml:"rate_down" json:"rate_down,omitempty"`
	// Queue is how much may wait for either rate before packets are dropped.
	Queue *Queue `yaml:"queue" json:"queue,omitempty"`
	// AccessOneWayDelay is the time a packet spends on this link: it adds to
	// the one-way delay of every path from and to the node.
	AccessOneWayDelay *Duration `yaml:"access_one_way_delay" json:"access_one_way_delay,omitempty"`
}

// Path is what happens to packets from one node on their way to another.
type Path struct {
	// PathPreset gives what the fields below do not.
	PathPreset  *PathPreset `yaml:"path_preset" json:"path_preset,omitempty"`
	OneWayDelay *Duration   `yaml:"one_way_delay" json:"one_way_delay,omitempty"`
	// Rate is what the path carries, beside the rates of the access links.
	Rate *Rate `yaml:"rate" json:"rate,omitempty"`
	// Jitter is the variation of OneWayDelay. What it measures depends on
	// the distribution. It does not reorder packets.
	Jitter             *Duration           `yaml:"jitter" json:"jitter,omitempty"`
	JitterDistribution *JitterDistribution `yaml:"jitter_distribution" json:"jitter_distribution,omitempty"`
	// Loss is the share of packets lost, each independently of the others.
	// It takes the place of a LossBurst of a farther level, and LossBurst
	// that of a Loss.
	Loss      *Probability `yaml:"loss" json:"loss,omitempty"`
	LossBurst *LossBurst   `yaml:"loss_burst" json:"loss_burst,omitempty"`
	// Duplicate is the share of packets that arrive twice.
	Duplicate *Probability `yaml:"duplicate" json:"duplicate,omitempty"`
	// Reorder is the share of packets that overtake: they are sent at once,
	// without the one-way delay.
	Reorder *Probability `yaml:"reorder" json:"reorder,omitempty"`
	// Corrupt is the share of packets in which one bit is flipped.
	Corrupt *Probability `yaml:"corrupt" json:"corrupt,omitempty"`
}

// Pair is the path from one node to another; the way back is its own pair.
type Pair struct {
	From string `yaml:"from" json:"from"`
	To   string `yaml:"to" json:"to"`
	Path `yaml:",inline"`
}

// Group is a set of nodes.
type Group struct {
	// Nodes are names ("coordinator"), ranges ("w0-w20") and patterns ("w*").
	Nodes  []string `yaml:"nodes" json:"nodes" need:"yes"`
	Access `yaml:",inline"`
}

// GroupPath is the path between the nodes of two groups: Between both ways,
// or From one To the other. A group's path to itself joins its own nodes.
type GroupPath struct {
	Between []string `yaml:"between" json:"between,omitempty"`
	From    string   `yaml:"from" json:"from,omitempty"`
	To      string   `yaml:"to" json:"to,omitempty"`
	Path    `yaml:",inline"`
}
