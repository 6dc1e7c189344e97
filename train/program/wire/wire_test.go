package wire

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMessagesReadBack(t *testing.T) {
	for _, m := range []Message{
		{Type: Join, Version: Version, Parameters: 7, StateBytes: 3, Validates: true},
		{Type: Init}, {Type: Done, Attempt: 2, Step: 5, Loss: new(0.25)}, {Type: Finished, Attempt: 2, State: 3}, {Type: Loss, Attempt: 1, Loss: new(0.0)},
	} {
		data, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FromProgram(data)
		if diff := cmp.Diff(m, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", data, err, diff)
		}
	}
}

// TestGarbageIsRefused with a reason each.
func TestGarbageIsRefused(t *testing.T) {
	for data, want := range map[string]string{
		"":                               "not a JSON object",
		"\x00\xff":                       "not a JSON object",
		"[]":                             "not a JSON object",
		`{"type":"done"}`:                "has no finite loss",
		`{"type":"done","loss":NaN}`:     "not a JSON object",
		`{"type":"done","loss":1e999}`:   "not a JSON object",
		`{"type":"done","loss":"1"}`:     "not a JSON object",
		`{"type":"step","step":1}`:       "do not send",
		`{"type":"join","version":2}`:    "version 2",
		`{"type":"init","color":1}`:      "color",
		`{"type":"init"} x`:              "goes on after",
		`{"type":"finished","state":-1}`: "negative",
		`{"type":"init","state":` + strings.Repeat("1", MaxBytes) + `}`: "allows at most 4096 bytes",
	} {
		if _, err := FromProgram([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", data, err, want)
		}
	}
}

func TestLayout(t *testing.T) {
	for _, c := range []struct{ parameters, state int }{{1, 0}, {1, 65_600}, {4096, 1}, {25_000_000, 1 << 20}, {MaxParameters, 0}} {
		l, err := NewLayout(Message{Parameters: c.parameters, StateBytes: c.state})
		if err != nil {
			t.Fatal(err)
		}
		n := 4 * c.parameters
		if l.Outer+n > l.Local || l.Local+n > l.StateIn || l.StateIn+c.state > l.StateOut || l.StateOut+c.state > l.Bytes || l.Local%4096 != 0 {
			t.Errorf("%+v: %+v overlaps", c, l)
		}
	}
	for _, c := range []struct{ parameters, state int }{{0, 0}, {-1, 0}, {MaxParameters + 1, 0}, {1, -1}, {1, 1 << 20}} {
		if l, err := NewLayout(Message{Parameters: c.parameters, StateBytes: c.state}); err == nil {
			t.Errorf("%+v: %+v", c, l)
		}
	}
}

func FuzzFromProgram(f *testing.F) {
	f.Add([]byte(`{"type":"join","version":1,"parameters":10,"state_bytes":5}`))
	f.Add([]byte(`{"type":"done","attempt":1,"step":1,"loss":0.5}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := FromProgram(data)
		if err != nil {
			return
		}
		if l, err := NewLayout(m); err == nil && (l.Bytes < 8*m.Parameters || l.Bytes > 8*m.Parameters+2*m.StateBytes+4<<14) {
			t.Errorf("%+v: %+v", m, l)
		}
		again, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := FromProgram(again); len(again) <= MaxBytes && (err != nil || !cmp.Equal(m, back)) {
			t.Errorf("%s: %v", again, err)
		}
	})
}
