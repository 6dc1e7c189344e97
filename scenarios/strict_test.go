package scenarios_test

import (
	"errors"
	"testing"

	"testbed/scenarios"
)

type things struct {
	Many float64 `yaml:"manyThings"`
	On   bool    `yaml:"on"`
	Name string  `yaml:"name" need:"yes"`
}

func TestDecodeIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "f.yaml: the file is empty; write {} for all defaults",
		"name: a\n---\nname: b":          "f.yaml:2: the file holds more than one document; keep one set of inputs per file",
		"name: a\nmanythings: 2":         "f.yaml:2: manythings: unknown field; did you mean manyThings?",
		"name: a\nname: b":               "f.yaml:2: name is given twice: keep one",
		"manyThings: 1":                  "f.yaml:1: name is missing: add it",
		"{\"name\": \"a\",\n \"on\": 3}": `f.yaml:2: on: "3" is not a truth value (true or false)`,
		"name: a\nmanyThings: 010":       `f.yaml:2: manyThings: "010" begins with a zero; remove the zero`,
		"name: a\nmanyThings: \"3\"":     `f.yaml:2: manyThings: "3" is text; write the number without quotes`,
	} {
		var v things
		_, err := scenarios.Decode("f.yaml", []byte(text), &v)
		if err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
	v := things{Many: 7}
	at, err := scenarios.Decode("f.yaml", []byte("{\"on\": true,\n\"name\": \"a\"}"), &v)
	if want := (things{7, true, "a"}); err != nil || v != want {
		t.Fatalf("%+v, %v; want %+v", v, err, want)
	}
	if got, want := at("name", "is short").Error(), "f.yaml:2: name is short"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

// FuzzDecode: whatever is in a file, there is a struct or an *Error.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"name: a", "{\"on\": 3}", "- 1", "name: &a b", "manyThings: !!int 3", "1: 2", "null"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var v things
		if _, err := scenarios.Decode("f.yaml", []byte(text), &v); err != nil {
			if _, ok := errors.AsType[*scenarios.Error](err); !ok {
				t.Errorf("%q: error %T", text, err)
			}
		}
		if err := scenarios.Assign(&v, "manyThings", text); err != nil {
			if _, ok := errors.AsType[*scenarios.Error](err); !ok {
				t.Errorf("%q: error %T", text, err)
			}
		}
	})
}

func TestAssign(t *testing.T) {
	var v things
	for _, c := range [][3]string{
		{"manyThings", "144e9", ""}, {"on", "true", ""}, {"name", "b", ""},
		{"many", "1", "many: unknown field; the known fields are manyThings, on, name"},
		{"manyThings", "much", `manyThings: "much" is not a number`},
		{"manyThings", "[1]", `manyThings: "[1]" is not a single value`},
	} {
		err := scenarios.Assign(&v, c[0], c[1])
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c[2] {
			t.Errorf("%s=%s: error %q, want %q", c[0], c[1], got, c[2])
		}
	}
	if want := (things{144e9, true, "b"}); v != want {
		t.Errorf("%+v, want %+v", v, want)
	}
}
