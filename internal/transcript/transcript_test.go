package transcript

import (
	"reflect"
	"strings"
	"testing"
)

type (
	ID    int
	Event interface{}
	Hello struct {
		ID       ID
		HasState bool
		Peers    []ID
		At       *ID
		Factor   float64
		Why      string
	}
	Say struct {
		Event
		Problem string
	}
)

func TestLinesReadBackAsShown(t *testing.T) {
	for line, want := range map[string][]any{
		"hello id=0":                       {Hello{}},
		"hello id=3 has_state peers=0,1":   {Hello{ID: 3, HasState: true, Peers: []ID{0, 1}}},
		"hello id=1 at=0 factor=2.5 why=x": {Hello{ID: 1, At: new(ID), Factor: 2.5, Why: "x"}},
	} {
		got, err := Read(line, Say{}, Hello{})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, %v", line, got, err)
		}
		if again := Show(want[0]); again != line {
			t.Errorf("%s is shown as %s", line, again)
		}
	}
	got, err := Read("hello id=2,4 peers=1,3 factor=3", Hello{Factor: 1})
	if err != nil || !reflect.DeepEqual(got, []any{Hello{ID: 2, Peers: []ID{1, 3}, Factor: 3}, Hello{ID: 4, Peers: []ID{1, 3}, Factor: 3}}) {
		t.Errorf("two of a kind are read as %+v, %v", got, err)
	}
	if line := Show(&Say{Hello{ID: 2}, "no way"}); line != `say hello id=2 problem="no way"` {
		t.Errorf("shown as %s", line)
	}
}

func TestWhatMakesNoSense(t *testing.T) {
	for line, want := range map[string]string{
		"goodbye":                 `"goodbye" is not a kind of line`,
		"hello name=1":            `hello has no field "name"`,
		"hello id=x":              "id: ",
		"hello has_state=perhaps": "has_state: ",
		"say event=hello":         "cannot be given",
	} {
		if _, err := Read(line, Hello{}, Say{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}
