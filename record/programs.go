package record

import "testbed/policy"

// ProgramsFile is the record of users' own programs: a ProgramEvent per line.
const ProgramsFile = "programs.jsonl"

// The types of events of programs. Injects of links have the types of an Event:
// Partition, Heal, LinkFault and LinkRestored.
const (
	ProgramsBegin  Type = "begin"  // the first event: Run
	ProgramStart   Type = "start"  // the program of Node has been started
	ProgramExit    Type = "exit"   // it has ended
	ProgramClock   Type = "clock"  // the clock of the scenario has started, by Cause
	ProgramInject  Type = "inject" // Op has happened to Node
	ProgramSlowed  Type = "slowed" // Node was slow; its shares of a processor
	ProgramMark    Type = "mark"   // a program has sent a mark
	ProgramSignal  Type = "signal" // the user has sent Signal
	ProgramSample  Type = "sample" // Node's sent and received bytes and processor time so far
	ProgramsFinish Type = "end"    // the last event
)

// ProgramEvent is a line of the record of programs. Fields that a type does not use are
// absent.
type ProgramEvent struct {
	// T is real time since the programs were started.
	T    policy.Time `json:"t_us"`
	Type Type        `json:"type"`
	Node string      `json:"node,omitempty"`
	// Incarnation numbers the programs of a node; the first one is 0.
	Incarnation int `json:"incarnation,omitempty"`
	// Code is an exit code, -1 if Signal ended the program.
	Code   *int   `json:"code,omitempty"`
	Signal string `json:"signal,omitempty"`
	// Cause says what has started the clock, why a program could not be started,
	// or what the first failure was.
	Cause string `json:"cause,omitempty"`
	// Op is the inject.
	Op     string      `json:"op,omitempty"`
	From   string      `json:"from,omitempty"`
	To     string      `json:"to,omitempty"`
	IDs    []policy.ID `json:"ids,omitempty"`
	Factor float64     `json:"factor,omitempty"`
	// Processes is the number of processes that the inject applied to, Left the
	// number that it could not end or stop.
	Processes *int `json:"processes,omitempty"`
	Left      int  `json:"left,omitempty"`
	// Duration is how long the inject took to be in place.
	Duration policy.Time `json:"duration_us,omitempty"`
	// Mark is the type of a mark, Fields its other fields.
	Mark   string         `json:"mark,omitempty"`
	Fields map[string]any `json:"fields,omitempty"`
	// BytesSent and BytesReceived count at the interface of a node. Processor is
	// the processor time of its processes.
	BytesSent     *uint64      `json:"bytes_sent,omitempty"`
	BytesReceived *uint64      `json:"bytes_received,omitempty"`
	Processor     *policy.Time `json:"cpu_us,omitempty"`
	// Waited is how long the threads of the node have waited for a processor.
	Waited policy.Time `json:"waited_us,omitempty"`
	// Of ProgramSlowed: shares of a processor that the node used while it computed:
	// before the Slow, the intended one, and during the Slow.
	ShareBefore   float64 `json:"share_before,omitempty"`
	ShareIntended float64 `json:"share_intended,omitempty"`
	ShareUsed     float64 `json:"share_used,omitempty"`

	Run *ProgramsRun `json:"run,omitempty"`
}

// ProgramsRun describes the programs and their network; it comes with the first event.
type ProgramsRun struct {
	Schema    int      `json:"schema"`
	Scenario  string   `json:"scenario"`
	Links     string   `json:"links"` // user, htb or netem
	TimeScale float64  `json:"time_scale"`
	Dilation  float64  `json:"dilation,omitempty"`
	Nodes     []string `json:"nodes"`
	// Commands are the programs by node; for testbed net, hub or the node of --at.
	Commands map[string][]string `json:"commands"`
	// Clock is the rule that starts the clock of the scenario.
	Clock string `json:"clock"`
}
