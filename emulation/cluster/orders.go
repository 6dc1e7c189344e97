//go:build linux

package cluster

import (
	"encoding/json"
	"os"
	"syscall"

	"testbed/emulation/network"
	"testbed/shaping"
	"testbed/shaping/userlink"
)

// What the leader's job and the job of another host say to each other: JSON values,
// orders there and reports back.

// order is what another host is to do: one of these.
type order struct {
	Build *buildOrder `json:"share,omitempty"` // build your part of the network
	Start *startOrder `json:"start,omitempty"`

	Child   string          `json:"child,omitempty"` // the process that the next six are for
	Command json.RawMessage `json:"command,omitempty"`
	Close   bool            `json:"close,omitempty"`
	Signal  syscall.Signal  `json:"signal,omitempty"`
	Group   bool            `json:"group,omitempty"` // with Signal
	Fetch   string          `json:"fetch,omitempty"` // send back the memory of that name
	Fill    *fill           `json:"fill,omitempty"`  // before it is started

	network.Change      // of the links there
	Count          bool `json:"count,omitempty"` // report it
	End            bool `json:"end,omitempty"`   // take the network down

	// from is what all of Fill is read from, when its turn has come.
	from *os.File
}

// buildOrder is a network, and the layout as the host sees it.
type buildOrder struct {
	Plan   *shaping.Plan   // by the machine's clock
	Layout *network.Layout `json:"Spread"`
}

// fill is a part of what a process finds in the memory of a name when it is started.
type fill struct {
	Name string `json:"name"`
	At   int64  `json:"at"`
	Data []byte `json:"data"`
}

// startOrder is a network.ChildSpec for another host. Its files are all memory, which
// holds what was in them at the leader (fill).
type startOrder struct {
	Name      string          `json:"name"`
	Node      string          `json:"node,omitempty"` // whose namespace; none: the hub
	Kind      string          `json:"kind"`
	Spec      json.RawMessage `json:"spec"`
	Env       []string        `json:"env,omitempty"`
	FileNames []string        `json:"files,omitempty"`
	Watched   bool            `json:"watched,omitempty"`
}

// hostReport is what another host reports: one of these.
type hostReport struct {
	Up bool `json:"up,omitempty"` // its part of the network carries packets

	Child  string          `json:"child,omitempty"` // the process that the next four are of
	Report *network.Report `json:"report,omitempty"`
	Ended  string          `json:"ended,omitempty"` // how
	Log    []byte          `json:"log,omitempty"`
	Chunk  *chunk          `json:"chunk,omitempty"`

	Count *count `json:"count,omitempty"`
}

// count is what a host's router has counted, and what the host has seen of itself
// meanwhile, a monitor.Sample.
type count struct {
	Count  *userlink.Stats `json:"count"`
	Sample json.RawMessage `json:"sample,omitempty"`
}

// chunk is a part of what is in a memory.
type chunk struct {
	Data []byte `json:"data,omitempty"`
	Err  string `json:"err,omitempty"`
	Last bool   `json:"last,omitempty"`
}

// chunkSize is the size of a chunk, in bytes.
const chunkSize = 256 << 10
