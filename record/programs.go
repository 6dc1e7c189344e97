package record

import "testbed/policy"

// ProgramsFile is the record of users' own programs: a ProgramEvent per line.
const ProgramsFile = "programs.jsonl"

// The types of events of programs. Injects of links have the types of an Event:
// Partition, Heal, LinkFault and LinkRestored.
const (
	// The programs are about to start. `run` describes them.
	ProgramsBegin Type = "begin"
	// The program of `node` has been started.
	ProgramStart Type = "start"
	// A program has ended.
	ProgramExit Type = "exit"
	// The clock of the scenario has started because of `cause`.
	ProgramClock Type = "clock"
	// The inject `op` has happened to `node`.
	ProgramInject Type = "inject"
	// A `Slow` of `node`, or the run, has ended. The fields `share_…` report its
	// effect.
	ProgramSlowed Type = "slowed"
	// A program has sent a mark.
	ProgramMark Type = "mark"
	// A program has written an invalid mark, which `cause` explains. Only the program's
	// first error is recorded.
	ProgramInvalidMark Type = "invalid_mark"
	// The user's `signal` was passed on.
	ProgramSignal Type = "signal"
	// The traffic and the processor time of `node` so far, twice a second.
	ProgramSample Type = "sample"
	// All programs have ended. `code` is the exit code, and `cause` the first failure.
	ProgramsFinish Type = "end"
)

// ProgramEvent is a line of the record of programs. Fields that a type does not use are
// absent.
type ProgramEvent struct {
	// Real time since the programs were started, whatever the `time_scale`.
	T    policy.Time `json:"t_us"`
	Type Type        `json:"type"`           // What happened.
	Node string      `json:"node,omitempty"` // The node concerned.
	// The number of the node's program, from 0.
	Incarnation int `json:"incarnation,omitempty"`
	// An exit code, −1 if `signal` ended the program.
	Code   *int   `json:"code,omitempty"`
	Signal string `json:"signal,omitempty"` // The signal.
	// Whether `launch` had told the program to end.
	Told bool `json:"told,omitempty"`
	// What started the clock, why a program could not start, or the first failure.
	Cause  string      `json:"cause,omitempty"`
	Op     string      `json:"op,omitempty"`     // The kind of inject.
	From   string      `json:"from,omitempty"`   // The beginning of a path.
	To     string      `json:"to,omitempty"`     // The end of a path.
	IDs    []policy.ID `json:"ids,omitempty"`    // The workers concerned.
	Factor float64     `json:"factor,omitempty"` // Of `Slow`: the factor.
	// How many processes the inject applied to.
	Processes *int `json:"processes,omitempty"`
	// How many processes the inject could not end or stop.
	Left int `json:"left,omitempty"`
	// How long the inject took to take effect.
	Duration policy.Time `json:"duration_us,omitempty"`
	Mark     string      `json:"mark,omitempty"` // The type of a mark.
	// The other fields of a mark.
	Fields map[string]any `json:"fields,omitempty"`
	// Bytes that the interface of the node has sent.
	BytesSent *uint64 `json:"bytes_sent,omitempty"`
	// Bytes that the interface of the node has received.
	BytesReceived *uint64 `json:"bytes_received,omitempty"`
	// Of `launch`: the processor time of the node's processes.
	Processor *policy.Time `json:"cpu_us,omitempty"`
	// Of `launch`: how long the threads of the node have waited for a processor.
	Waited policy.Time `json:"waited_us,omitempty"`
	// The share of a processor that the node used before the `Slow`, while it computed.
	ShareBefore float64 `json:"share_before,omitempty"`
	// The share that was intended.
	ShareIntended float64 `json:"share_intended,omitempty"`
	// The share that the node used during the `Slow`.
	ShareUsed float64 `json:"share_used,omitempty"`
	// Of `begin`: the programs and their network.
	Run *ProgramsRun `json:"run,omitempty"`
}

// ProgramsRun describes the programs and their network; it comes with the first event.
type ProgramsRun struct {
	Schema   int    `json:"schema"`   // The version of the format.
	Scenario string `json:"scenario"` // The name of the scenario.
	Links    string `json:"links"`    // `user`, `htb` or `netem`.
	// The congestion control of TCP in the nodes. Older records lack it.
	TCP       string   `json:"tcp,omitempty"`
	TimeScale float64  `json:"time_scale"`         // Real time divided by scenario time.
	Dilation  float64  `json:"dilation,omitempty"` // [Time dilation](dilation.md).
	Nodes     []string `json:"nodes"`              // The nodes of the network.
	// The programs by node. Under `testbed net`, the node is `hub` or that of `--at`.
	Commands map[string][]string `json:"commands"`
	// The [rule](programs.md#the-clock-of-injects) that starts the clock of the
	// scenario.
	Clock string `json:"clock"`
}
