// Package shaping defines the links of an emulated network: the access link of
// each node, the path of each ordered pair of nodes, and the plan to install.
// The package is pure: it never touches the kernel.
package shaping

// Spec is the `real.links` section of a scenario. The most specific level sets
// a property: a node or pair, otherwise a group, otherwise default. Within a
// level, explicit values override a preset.
type Spec struct {
	// Absent properties are nil, so that "not given" and "zero" stay different.

	// The properties of all nodes and pairs, unless another section gives them.
	Default Properties `yaml:"default" json:"default"`
	// Sets of nodes, by name. A group's properties apply to the separate access link of
	// each of its nodes. A node is in one group at most.
	Groups map[string]Group `yaml:"groups" json:"groups,omitempty"`
	// Paths between all nodes of two groups, or within one.
	Paths []GroupPath `yaml:"paths" json:"paths,omitempty"`
	// The access links of single nodes, by node name.
	Nodes map[string]Access `yaml:"nodes" json:"nodes,omitempty"`
	// Paths of single ordered pairs of nodes.
	Pairs []Pair `yaml:"pairs" json:"pairs,omitempty"`
}

// Properties are an access link and a path together.
type Properties struct {
	Access `yaml:",inline"`
	Path   `yaml:",inline"`
}

// Access is a node's own link to the network.
type Access struct {
	// A published profile. It gives both rates and the delay, unless these are given
	// explicitly.
	AccessPreset *AccessPreset `yaml:"access_preset" json:"access_preset,omitempty"`
	// The node's sending rate.
	RateUp *Rate `yaml:"rate_up" json:"rate_up,omitempty"`
	// The node's receiving rate.
	RateDown *Rate `yaml:"rate_down" json:"rate_down,omitempty"`
	// The limit of each rate's queue, per peer. Packets beyond it are dropped. A time
	// means rate × time, and at least one batch of a sender.
	Queue *Queue `yaml:"queue" json:"queue,omitempty"`
	// The time that a packet spends on this link. It is added to the one-way delay of
	// every path from and to the node.
	AccessOneWayDelay *Duration `yaml:"access_one_way_delay" json:"access_one_way_delay,omitempty"`
}

// Path has the properties of the way from one node to another.
type Path struct {
	// A published path. It gives the one-way delay, unless this is given explicitly.
	PathPreset *PathPreset `yaml:"path_preset" json:"path_preset,omitempty"`
	// The time from the sender's access link to the receiver's. If absent everywhere, it
	// is the scenario's `base_latency` × `time_scale`.
	OneWayDelay *Duration `yaml:"one_way_delay" json:"one_way_delay,omitempty"`
	// The rate of the path itself. It applies after the delay, with a queue of the size
	// of the sender's `queue`.
	Rate *Rate `yaml:"rate" json:"rate,omitempty"`
	// The variation of the one-way delay. Packets keep their order, and none may arrive
	// before it was sent.
	Jitter *Duration `yaml:"jitter" json:"jitter,omitempty"`
	// `uniform`: within ± `jitter`. `normal`: with the deviation `jitter`, cut at ±
	// 3.67 `jitter`. `pareto`: as netem's, from −2/3 to +4 times `jitter`, with mean 0
	// and deviation 0.82 `jitter`.
	JitterDistribution *JitterDistribution `yaml:"jitter_distribution" json:"jitter_distribution,omitempty"`
	// The share of packets lost, each independently. It replaces a `loss_burst` of a
	// less specific level, and vice versa.
	Loss *Probability `yaml:"loss" json:"loss,omitempty"`
	// Loss in bursts, in place of `loss`.
	LossBurst *LossBurst `yaml:"loss_burst" json:"loss_burst,omitempty"`
	// The share of packets that arrive twice. Loss and corruption apply to each copy
	// independently.
	Duplicate *Probability `yaml:"duplicate" json:"duplicate,omitempty"`
	// The share of packets that overtake: they are sent at once, without the one-way
	// delay.
	Reorder *Probability `yaml:"reorder" json:"reorder,omitempty"`
	// The share of packets with one bit flipped. Receivers drop them by the checksum.
	Corrupt *Probability `yaml:"corrupt" json:"corrupt,omitempty"`
}

// Pair is the path from one node to another. The way back is a separate pair.
type Pair struct {
	// The node at which the path begins.
	From string `yaml:"from" json:"from"`
	// The node at which the path ends.
	To   string `yaml:"to" json:"to"`
	Path `yaml:",inline"`
}

// Group is a set of nodes.
type Group struct {
	// Names (coordinator), ranges (w0-w20, of which both ends must exist) and patterns
	// (w*).
	Nodes  []string `yaml:"nodes" json:"nodes" need:"yes"`
	Access `yaml:",inline"`
}

// GroupPath is the path between the nodes of two groups: Between in both
// directions, or From one To the other. A group's path to itself connects its
// own nodes.
type GroupPath struct {
	// Two groups, for paths in both directions. The same group twice means the paths
	// within it.
	Between []string `yaml:"between" json:"between,omitempty"`
	// The group at which the paths begin. `from` and `to` mean one direction only.
	From string `yaml:"from" json:"from,omitempty"`
	// The group at which the paths end.
	To   string `yaml:"to" json:"to,omitempty"`
	Path `yaml:",inline"`
}
