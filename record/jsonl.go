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

// Writer writes events as JSON lines. The first error sticks and is returned
// by Flush.
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

// Flush hands everything written so far on and returns the first error.
func (w *Writer) Flush() error {
	if err := w.buf.Flush(); w.err == nil {
		w.err = err
	}
	return w.err
}

// Read reads JSON lines of events. A last line that was cut off, as a killed
// run leaves it, is dropped; anything else that is no event is an error that
// names the line. So is a line that stands there twice.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	seed, known := maphash.MakeSeed(), map[uint64]int{}
	err := lines.Read(r, "event", func(line int, text []byte, e *Event) error {
		if e.Type == "" {
			return errors.New("it has no type")
		}
		if once[e.Type] {
			hash := maphash.Bytes(seed, text)
			if before := known[hash]; before > 0 {
				return fmt.Errorf("line %d is the same; take the record from where it is whole", before)
			}
			known[hash] = line
		}
		events = append(events, *e)
		return nil
	})
	return events, err
}

// Lineage drops from a record what was undone when its run went on from a
// checkpoint: the rounds after that, but for who came and went in them.
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
