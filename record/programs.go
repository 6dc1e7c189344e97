package record

import "testbed/policy"

// ProgramsFile is the record of programs of the user's own: a ProgramEvent a line.
const ProgramsFile = "programs.jsonl"

// The types of events of programs. Beside these, injects of links have the types of an
// Event: Partition, Heal, LinkFault and LinkRestored.
const (
	ProgramsBegin  Type = "begin"  // the first event: Run
	ProgramStart   Type = "start"  // the program of Node has been started
	ProgramExit    Type = "exit"   // it has ended
	ProgramClock   Type = "clock"  // the clock of the scenario has started, by Cause
	ProgramInject  Type = "inject" // Op has happened to Node
	ProgramMark    Type = "mark"   // a program has marked something
	ProgramSignal  Type = "signal" // the user has sent Signal
	ProgramSample  Type = "sample" // what Node has sent, received and computed so far
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
	// Cause is what has started the clock, why a program could not be started, or the
	// first failure.
	Cause string `json:"cause,omitempty"`
	// Op is the inject.
	Op     string      `json:"op,omitempty"`
	From   string      `json:"from,omitempty"`
	To     string      `json:"to,omitempty"`
	IDs    []policy.ID `json:"ids,omitempty"`
	Factor float64     `json:"factor,omitempty"`
	// Processes are how many the inject has met, Left how many it could not end or stop.
	Processes *int `json:"processes,omitempty"`
	Left      int  `json:"left,omitempty"`
	// Duration is how long the inject took to be in place.
	Duration policy.Time `json:"duration_us,omitempty"`
	// Mark is the type of a mark, Fields what else the program has said.
	Mark   string         `json:"mark,omitempty"`
	Fields map[string]any `json:"fields,omitempty"`
	// BytesSent and BytesReceived are of the interface of a node, Processor is what its
	// processes have computed.
	BytesSent     *uint64      `json:"bytes_sent,omitempty"`
	BytesReceived *uint64      `json:"bytes_received,omitempty"`
	Processor     *policy.Time `json:"cpu_us,omitempty"`
	// Of the end of Slow: shares of a processor before it, meant, and taken during it.
	ShareBefore float64 `json:"share_before,omitempty"`
	ShareMeant  float64 `json:"share_meant,omitempty"`
	ShareTaken  float64 `json:"share_taken,omitempty"`

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
	// Commands are the programs by node; of testbed net, hub or the node of --at.
	Commands map[string][]string `json:"commands"`
	// Clock is the rule that starts the clock of the scenario.
	Clock string `json:"clock"`
}
