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

// Messages between the leader's job and the job of another host: JSON values,
// orders there and reports back.

// order is an order to another host: one of these fields.
type order struct {
	Build *buildOrder `json:"share,omitempty"` // build your part of the network
	Start *startOrder `json:"start,omitempty"`

	Child   string          `json:"child,omitempty"` // process of the next six fields
	Command json.RawMessage `json:"command,omitempty"`
	Close   bool            `json:"close,omitempty"`
	Signal  syscall.Signal  `json:"signal,omitempty"`
	Group   bool            `json:"group,omitempty"` // with Signal
	Fetch   string          `json:"fetch,omitempty"` // send back the memory of that name
	Fill    *fill           `json:"fill,omitempty"`  // before it is started

	network.Change      // of the links there
	Count          bool `json:"count,omitempty"` // report it
	End            bool `json:"end,omitempty"`   // take the network down

	// from is the file from which all of Fill is read, when its turn has come.
	from *os.File
}

// buildOrder is a network, with the layout as seen from the host.
type buildOrder struct {
	Plan   *shaping.Plan   // by the machine's clock
	Layout *network.Layout `json:"Spread"`
}

// fill is a part of a process's memory at its start, with the memory's name.
type fill struct {
	Name string `json:"name"`
	At   int64  `json:"at"`
	Data []byte `json:"data"`
}

// startOrder is a network.ChildSpec for another host. All its files are memory,
// with the content of the leader's files (fill).
type startOrder struct {
	Name      string          `json:"name"`
	Node      string          `json:"node,omitempty"` // whose namespace; none: the hub
	Kind      string          `json:"kind"`
	Spec      json.RawMessage `json:"spec"`
	Env       []string        `json:"env,omitempty"`
	FileNames []string        `json:"files,omitempty"`
	Watched   bool            `json:"watched,omitempty"`
}

// hostReport is a report of another host: one of these fields.
type hostReport struct {
	Up bool `json:"up,omitempty"` // its part of the network carries packets

	Child  string          `json:"child,omitempty"` // process of the next four fields
	Report *network.Report `json:"report,omitempty"`
	Ended  string          `json:"ended,omitempty"` // how
	Log    []byte          `json:"log,omitempty"`
	Chunk  *chunk          `json:"chunk,omitempty"`

	Count *count `json:"count,omitempty"`
}

// count is the count of a host's router, and the host's observations meanwhile,
// a monitor.Sample.
type count struct {
	Count  *userlink.Stats `json:"count"`
	Sample json.RawMessage `json:"sample,omitempty"`
}

// chunk is a part of a memory's content.
type chunk struct {
	Data []byte `json:"data,omitempty"`
	Err  string `json:"err,omitempty"`
	Last bool   `json:"last,omitempty"`
}

// chunkSize is the size of a chunk, in bytes.
const chunkSize = 256 << 10
