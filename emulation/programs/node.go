package programs

import "time"

// Interface is the name of the interface of every node.
const Interface = "eth0"

// SampleEvery is the time between two samples of a node.
const SampleEvery = 500 * time.Millisecond
