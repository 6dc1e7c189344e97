package shaping

import (
	"net"
	"net/netip"
	"time"
)

// Plan is the whole network to install, with every value resolved: plain
// data, the same on every machine.
type Plan struct {
	// Seed fixes the pattern of jitter and loss of every path.
	Seed  uint64     `json:"seed"`
	Nodes []NodePlan `json:"nodes"`
	// Paths[i][j] is the path from Nodes[i] to Nodes[j]; Paths[i][i] is zero.
	Paths [][]PathPlan `json:"paths"`
}

// NodePlan is one node and its access link.
type NodePlan struct {
	Name     string           `json:"name"`
	Addr     netip.Prefix     `json:"addr"`
	MAC      net.HardwareAddr `json:"mac"`
	RateUp   Rate             `json:"rate_up"`
	RateDown Rate             `json:"rate_down"`
	Queue    time.Duration    `json:"queue"`
}

// PathPlan is the path of one ordered pair of nodes.
type PathPlan struct {
	OneWayDelay time.Duration `json:"one_way_delay"`
	Jitter      time.Duration `json:"jitter"`
	Loss        float64       `json:"loss"`
}
