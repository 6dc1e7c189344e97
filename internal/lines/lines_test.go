package lines_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/internal/lines"
)

const two = `{"a":1}` + "\n" + `{"a":22}` + "\n"

// TestEveryCutIsMended: wherever a file was cut off, what comes next stands on a line of
// its own.
func TestEveryCutIsMended(t *testing.T) {
	for cut := range len(two) + 1 {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, []byte(two[:cut]), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			file, err := lines.Append(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteString(`{"a":3}` + "\n" + `{"a"`); err != nil { // and is killed again
				t.Fatal(err)
			}
			file.Close()
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var got []int
		if err := lines.Read(file, "value", func(_ int, _ []byte, v *struct{ A int }) error {
			got = append(got, v.A)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := strings.Count(two[:cut], "\n") + 2; len(got) != want || got[len(got)-1] != 3 {
			t.Errorf("cut after %d bytes: %v, want %d values", cut, got, want)
		}
	}
}

// TestALongLineIsMended that is longer than what is read at a time.
func TestALongLineIsMended(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(two+strings.Repeat("x", 300_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := lines.Append(name)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	if got, err := os.ReadFile(name); err != nil || string(got) != two {
		t.Errorf("%d bytes, %v; want the two lines", len(got), err)
	}
}

// TestALogKeepsHalfALine, and what comes next begins a new one.
func TestALogKeepsHalfALine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "w0.log")
	for _, text := range []string{"whole\nha", "next\n", "last\n"} {
		file, err := lines.AppendText(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "whole\nha\nnext\nlast\n" {
		t.Errorf("%q, %v", got, err)
	}
}
