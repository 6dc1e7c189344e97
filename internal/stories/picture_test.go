package stories_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"testing"

	"testbed/internal/stories"
	"testbed/report/picture"
	"testbed/report/runs"
	"testbed/scenarios"
)

var update = flag.Bool("update", false, "draw the pictures of the stories anew; review them")

// TestPictures: those of the documentation are what the simulator says.
func TestPictures(t *testing.T) {
	for _, s := range stories.All {
		scenario, err := scenarios.Load(s.Scenario)
		if err != nil {
			t.Fatal(err)
		}
		rec := &runs.Record{Scenario: scenario}
		for _, v := range s.Versions[:min(2, len(s.Versions))] {
			rec.Runs = append(rec.Runs, simulated(t, s.Scenario, v.Policy))
		}
		var got bytes.Buffer
		if err := picture.Write(&got, rec); err != nil {
			t.Fatal(err)
		}
		file := "../../docs/images/" + s.Scenario + ".svg"
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s is not what is simulated (%v); run go test ./internal/stories -update and review it", file, err)
		}
		d := xml.NewDecoder(&got)
		for err = error(nil); err == nil; {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
