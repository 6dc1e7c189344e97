package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"testbed/policy"
)

// Journal stores the inputs of a coordinator, so that another one can take its
// place. It is a file opened for reading and appending, which belongs to the
// coordinator alone. Every input is written before it is acted on. The
// coordinator's decisions are not written: they follow from its inputs, because
// the policy machine is deterministic. Only decisions of a policy outside of
// this process are written: another answer to the same question is an error.
//
// It is not synced. It is meant for the death of a process, which loses nothing
// that was written, not for a crash of the machine.
type Journal interface {
	io.ReadWriter
	Truncate(size int64) error
}

// Resume describes where a run goes on whose nodes have all died.
type Resume struct {
	// OuterSteps is the version of the outer state in the checkpoint, and Hash
	// its hash.
	OuterSteps int
	Hash       string
	// Holders are the workers that are started again with it.
	Holders []policy.ID
}

// journalHeader is the first line of a journal.
type journalHeader struct {
	Journal  int    `json:"journal"` // version of the format
	Run      string `json:"run"`
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	Seed     uint64 `json:"seed"`
}

const journalVersion = 1

// cause is the kind of a coordinator's input that is not a message of a worker.
type cause string

const (
	timerFired  cause = "timer"
	waitedOut   cause = "waited out"
	unreachable cause = "unreachable"
	horizonCame cause = "horizon"
	recovered   cause = "recovered" // it is back
	halted      cause = "halted"    // all nodes had died
	restarted   cause = "restarted" // and are back
	decided     cause = "decided"   // not an input: the decisions of an External policy about the last one
)

// entry is one input.
type entry struct {
	T    policy.Time `json:"t_us"` // scenario time
	What cause       `json:"what,omitempty"`
	ID   policy.ID   `json:"id,omitempty"` // of the worker
	Msg  *message    `json:"msg,omitempty"`
	// BeganAt is when the run began, by CoordinatorConfig.Clock.
	BeganAt *time.Duration `json:"began_ns,omitempty"`
	// Began is the same by the wall clock, in journals of earlier versions. It is
	// ignored: readers of such a journal set a new beginning (restarted).
	Began *time.Time `json:"began,omitempty"`
	// Forgets is set with recovered.
	Forgets bool `json:"forgets,omitempty"`
	// Resume is set with restarted.
	Resume *Resume `json:"resume,omitempty"`
	// Decided is set with decided: a list of record.Event.
	Decided json.RawMessage `json:"decided,omitempty"`
}

// replayJournal calls do with the entries of a journal, in order and until do
// fails, and leaves the journal at its end. An incomplete last line is removed:
// nobody has acted on it. An empty journal gets its header.
func replayJournal(j Journal, header journalHeader, do func(entry) error) error {
	wrap := func(err error) error { return fmt.Errorf("reading the coordinator's journal: %w", err) }
	in := bufio.NewReader(j)
	var size int64
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) > 0:
			if err := j.Truncate(size); err != nil {
				return wrap(err)
			}
			fallthrough
		case errors.Is(err, io.EOF):
			if size == 0 {
				return appendLine(j, header)
			}
			return nil
		case err != nil:
			return wrap(err)
		}
		if size == 0 {
			var h journalHeader
			switch err := strictly(line, &h); {
			case err != nil:
				return wrap(fmt.Errorf("line 1: %w", err))
			case h != header:
				return wrap(fmt.Errorf("the journal belongs to another run: %s, not %s", bytes.TrimSpace(line), describe(header)))
			}
		} else {
			var e entry
			if err := strictly(line, &e); err != nil {
				return wrap(fmt.Errorf("line %d: %w", n, err))
			}
			if err := do(e); err != nil {
				return wrap(fmt.Errorf("line %d: %w", n, err))
			}
		}
		size += int64(len(line))
	}
}

func strictly(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the line contains more than one value")
	}
	return nil
}

func describe(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data
	}
	return string(b)
}

// record appends a line in one write.
func appendLine(j Journal, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = j.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing the coordinator's journal: %w", err)
	}
	return nil
}
