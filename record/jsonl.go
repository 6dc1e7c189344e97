package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
// names the line.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	in := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, fmt.Errorf("reading events: %w", err)
		}
		var e Event
		if err := json.Unmarshal(text, &e); err != nil {
			return events, fmt.Errorf("event in line %d: %w", line, err)
		}
		if e.Type == "" {
			return events, fmt.Errorf("event in line %d: it has no type", line)
		}
		events = append(events, e)
	}
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
