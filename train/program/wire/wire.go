// Package wire is the protocol between a node and a trainer that is a program
// of the user's own: small messages, one JSON object per datagram of a
// SOCK_SEQPACKET socket, and vectors in shared memory. docs/trainer.md
// describes it for other languages.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Version is the version of the protocol. Each side sends its version, and
// refuses another.
const Version = 1

// The environment variables with the numbers of a program's descriptors: of the
// socket, and of the memory.
const (
	EnvSocket = "TESTBED_SOCKET"
	EnvMemory = "TESTBED_MEMORY"
)

// MaxBytes is the length of the longest message.
const MaxBytes = 4096

// Types of messages of the node.
const (
	Welcome  = "welcome"  // first: the program's role; again: another run begins, the one before is over
	Memory   = "memory"   // the answer to Join: the layout of the vectors
	Round    = "round"    // a round begins; everything before is over
	Step     = "step"     // take an inner step
	Finish   = "finish"   // the round's steps have been taken: hand the parameters over
	Validate = "validate" // compute the validation loss of the outer parameters
)

// Types of messages of the program.
const (
	Join     = "join"     // its size
	Init     = "init"     // its initial parameters lie in Local
	Done     = "done"     // an inner step has been taken
	Finished = "finished" // the parameters after a round lie in Local, its state in StateOut
	Loss     = "loss"     // the answer to Validate
)

// Roles of a process of the program.
const (
	RoleInit     = "init"     // it is asked for its initial parameters, and then ended
	RoleTrain    = "train"    // it trains for a worker
	RoleValidate = "validate" // it computes validation losses
)

// Message is a message of either side. Its type determines its fields.
type Message struct {
	Type    string `json:"type"`
	Version int    `json:"version,omitempty"` // Welcome, Join

	// Welcome: the worker's number, and facts about the run that a trainer may
	// need.
	Role       string `json:"role,omitempty"`
	Worker     int    `json:"worker,omitempty"`
	Workers    int    `json:"workers,omitempty"`
	Seed       uint64 `json:"seed,omitempty"`
	InnerSteps int    `json:"inner_steps,omitempty"`
	Rounds     int    `json:"rounds,omitempty"`

	// Join: the number of parameters, the most bytes of state, whether it can
	// compute validation losses, and whether it can train for one run after
	// another.
	Parameters int  `json:"parameters,omitempty"`
	StateBytes int  `json:"state_bytes,omitempty"`
	Validates  bool `json:"validates,omitempty"`
	// Again reports that after the run the program accepts another Welcome, and
	// joins again.
	Again bool `json:"again,omitempty"`

	// Memory.
	Layout *Layout `json:"layout,omitempty"`

	// Round, Step, Finish, Done, Finished, Validate, Loss. Attempt distinguishes
	// beginnings of a round, because a round may begin more than once.
	Attempt int `json:"attempt,omitempty"`
	Round   int `json:"round,omitempty"` // Round
	Step    int `json:"step,omitempty"`  // Step and Done: from 1
	// State is the number of bytes in StateIn (Round) or StateOut (Finished).
	// Restored reports that they are not the last ones of this process.
	State    int  `json:"state,omitempty"`
	Restored bool `json:"restored,omitempty"`

	Loss *float64 `json:"loss,omitempty"` // Done and Loss
}

// Layout has the positions of shared data in the memory, in bytes. The node
// writes Outer and StateIn before a message about them, the program Local and
// StateOut. Vectors are float32 in the machine's byte order.
type Layout struct {
	Bytes    int `json:"bytes"` // of the memory
	Outer    int `json:"outer"`
	Local    int `json:"local"`
	StateIn  int `json:"state_in"`
	StateOut int `json:"state_out"`
}

// Limits of what a program may ask for.
const (
	MaxParameters = 1 << 30
	// A state has at most this many bytes, and this many more for each parameter.
	maxState             = 64 << 10
	maxStatePerParameter = 64
)

// MaxState is the largest size of a state in bytes, for so many parameters.
func MaxState(parameters int) int { return maxState + maxStatePerParameter*parameters }

// NewLayout returns the layout for a program that joins.
func NewLayout(join Message) (*Layout, error) {
	n, state := join.Parameters, join.StateBytes
	switch {
	case n < 1 || n > MaxParameters:
		return nil, fmt.Errorf("%d parameters: the number must lie between 1 and %d", n, MaxParameters)
	case state < 0 || state > MaxState(n):
		return nil, fmt.Errorf("a state of %d bytes: for %d parameters, the size must lie between 0 and %d", state, n, MaxState(n))
	}
	const page = 1 << 14 // of any machine, and the largest line of a cache
	up := func(bytes int) int { return (bytes + page - 1) &^ (page - 1) }
	l := &Layout{Local: up(4 * n), StateIn: 2 * up(4*n)}
	l.StateOut = l.StateIn + up(state)
	l.Bytes = l.StateOut + up(state)
	return l, nil
}

// Encode returns the datagram of a message.
func Encode(m Message) ([]byte, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding a message of type %q: %w", m.Type, err)
	}
	return data, nil
}

// Decode reads a datagram. It refuses messages that are not of this protocol.
func Decode(data []byte) (Message, error) {
	var m Message
	if len(data) > MaxBytes {
		return m, fmt.Errorf("the message is %d bytes long, but the protocol allows at most %d bytes", len(data), MaxBytes)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&m); err != nil {
		return Message{}, fmt.Errorf("the message is not a JSON object of this protocol: %w", err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return Message{}, errors.New("the message goes on after its JSON object; send one object per message")
	}
	return m, nil
}

// FromProgram reads a datagram of a program.
func FromProgram(data []byte) (Message, error) {
	m, err := Decode(data)
	switch {
	case err != nil:
		return Message{}, err
	case !slices.Contains([]string{Join, Init, Done, Finished, Loss}, m.Type):
		return Message{}, fmt.Errorf("the type is %.40q, which programs do not send", m.Type)
	case m.Type == Join && m.Version != Version:
		return Message{}, fmt.Errorf("the message is of version %d of the protocol, but testbed uses version %d", m.Version, Version)
	case (m.Type == Done || m.Type == Loss) && m.Loss == nil:
		return Message{}, fmt.Errorf("a message of type %q has no finite loss: send the loss as a finite number", m.Type)
	case m.State < 0 || m.Attempt < 0 || m.Step < 0:
		return Message{}, fmt.Errorf("a message of type %q has a negative number", m.Type)
	}
	return m, nil
}
