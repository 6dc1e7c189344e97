package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"

	"testbed/internal/lines"
)

// Writer writes events as JSON lines. Flush returns the first error.
type Writer struct {
	buf *bufio.Writer
	enc *json.Encoder
	err error
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer {
	buf := bufio.NewWriter(w)
	return &Writer{buf: buf, enc: json.NewEncoder(buf)}
}

// Write appends one event.
func (w *Writer) Write(e Event) {
	if w.err == nil {
		w.err = w.enc.Encode(e)
	}
}

// Flush passes on everything written so far and returns the first error.
func (w *Writer) Flush() error {
	if err := w.buf.Flush(); w.err == nil {
		w.err = err
	}
	return w.err
}

// Read reads JSON lines of events. It drops an incomplete last line, which a
// killed run may leave. Any other line that is not an event is an error that
// names the line, and so is a repeated line.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	seed, known := maphash.MakeSeed(), map[uint64]int{}
	err := lines.Read(r, "event", func(line int, text []byte, e *Event) error {
		if e.Type == "" {
			return errors.New("the event has no type")
		}
		if once[e.Type] {
			hash := maphash.Bytes(seed, text)
			if before := known[hash]; before > 0 {
				return fmt.Errorf("the event repeats line %d; restore an intact copy of the record", before)
			}
			known[hash] = line
		}
		events = append(events, *e)
		return nil
	})
	return events, err
}

// Lineage removes from a record the rounds that were undone when the run went
// on from a checkpoint, except for joins and departures in them.
func Lineage(events []Event) []Event {
	var kept []Event
	for _, e := range events {
		if e.Type == RunResume {
			kept = slices.DeleteFunc(kept, func(was Event) bool {
				return was.Round > e.Round && was.Type != Join && was.Type != Reject && was.Type != Evict
			})
		}
		kept = append(kept, e)
	}
	return kept
}
