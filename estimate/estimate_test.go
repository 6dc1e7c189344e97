package estimate_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"testing"

	"testbed/estimate"
)

// golden are worked cases. The page's were computed by the published page's own
// code, the document's by an independent program from its text.
type golden struct {
	Defaults estimate.Inputs
	Cases    []goldenCase
	Reliable struct {
		Cases []struct {
			Inputs  estimate.ReliabilityInputs
			Outputs map[string]any
		}
	} `json:"reliability"`
}

type goldenCase struct {
	ID, Name       string
	Inputs         estimate.Inputs
	Warnings       []string
	Page, Document map[string]any
}

func readGolden(t testing.TB) golden {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) != 28 || len(g.Reliable.Cases) != 63 {
		t.Fatalf("%d and %d golden cases, want 28 and 63", len(g.Cases), len(g.Reliable.Cases))
	}
	return g
}

// fields returns the fields of a struct as they are in JSON.
func fields(t testing.TB, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

const tolerance = 1e-9

func near(a, b float64) bool { return math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b)) }

func sameFields(t *testing.T, got, want map[string]any) {
	t.Helper()
	for name, w := range want {
		g, ok := got[name]
		gf, isNumber := g.(float64)
		wf, _ := w.(float64)
		if !ok || isNumber && !near(gf, wf) || !isNumber && g != w {
			t.Errorf("%s is %v, want %v", name, g, w)
		}
	}
}

func TestGoldenCases(t *testing.T) {
	for _, c := range readGolden(t).Cases {
		t.Run(c.ID, func(t *testing.T) {
			if err := c.Inputs.Check(); err != nil {
				t.Fatal(err)
			}
			page := fields(t, estimate.Compute(c.Inputs, estimate.Page))
			if len(page) != len(c.Page) {
				t.Errorf("%d results, want %d", len(page), len(c.Page))
			}
			sameFields(t, page, c.Page)
			sameFields(t, fields(t, estimate.Compute(c.Inputs, estimate.Document)), c.Document)
		})
	}
}

func TestDefaultsAreThePages(t *testing.T) {
	if got, want := estimate.Defaults(), readGolden(t).Defaults; got != want {
		t.Errorf("defaults are %+v, want %+v", got, want)
	}
}
