//go:build linux

package emulation

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"testbed/record"
)

// TestAChangedRecordIsNotResumed: a run goes on only from what it has left.
func TestAChangedRecordIsNotResumed(t *testing.T) {
	const from = "../test/testdata/killed"
	for _, c := range []struct {
		name, file string
		do         func(text []byte) []byte
		want       string // in the error
	}{
		{"nothing", record.EventsFile, bytes.Clone, ""},
		{"half a last line", record.EventsFile, func(text []byte) []byte { return append(text, `{"t_us":1,"ty`...) }, ""},
		{"no events", record.EventsFile, func([]byte) []byte { return nil }, "killed before any worker joined"},
		{"the record twice", record.EventsFile, func(text []byte) []byte { return append(bytes.Clone(text), text...) }, "line"},
		{"a line twice", record.EventsFile, func(text []byte) []byte {
			last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
			return append(text, text[last:]...)
		}, "out of order or repeated"},
		{"a line less", record.EventsFile, func(text []byte) []byte {
			all := bytes.SplitAfter(text, []byte("\n"))
			return bytes.Join(append(all[:4:4], all[5:]...), nil)
		}, "lines are missing"},
		{"a schema to come", record.EventsFile, func(text []byte) []byte {
			return bytes.Replace(text, []byte(`"schema":1`), []byte(`"schema":7`), 1)
		}, "version 7"},
		{"another scenario", "scenario.yaml", func(text []byte) []byte { return append(text, "# another\n"...) }, "scenario.yaml has changed since the run"},
	} {
		dir := record.Dir(t.TempDir())
		if err := os.CopyFS(string(dir), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		digests, err := dir.ScenarioDigests(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.WriteJSON(record.EnvironmentFile, record.Environment{SHA256: digests}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(dir.Path(c.file))
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.WriteFile(c.file, c.do(text)); err != nil {
			t.Fatal(err)
		}
		r := &recorder{options: Options{Dir: string(dir)}}
		lock, err := r.reopen()
		if lock != nil {
			lock.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
