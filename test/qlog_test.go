//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/record"
)

// TestQlog: with --qlog every node leaves a file for each end of each of its
// connections, with its end, and of whole records also where the node was
// killed.
func TestQlog(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	sum := complete(t, unhurried(t, "crash_mid_round"), "--policy", "baseline", "--qlog")
	ends := map[string][]string{} // by connection
	kinds := map[string]int{}
	killedSent := false
	paths, err := filepath.Glob(filepath.Join(sum.Dir, record.QlogDir, "*", "*.sqlog"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		kind, rest, _ := strings.Cut(filepath.Base(path), "-")
		end, id, _ := strings.Cut(rest, "-")
		kinds[filepath.Base(filepath.Dir(path))+" "+kind]++
		ends[id] = append(ends[id], end)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		killed := filepath.Base(filepath.Dir(path)) == "w2"
		if killed && len(text) == 0 {
			continue // it had but been made
		}
		records := bytes.Split(text, []byte{0x1e}) // RFC 7464
		if len(records) < 2 || len(records[0]) != 0 {
			t.Fatalf("%s: %d records", path, len(records))
		}
		for k, note := range records[1:] {
			if !json.Valid(note) || !bytes.HasSuffix(note, []byte("\n")) {
				t.Fatalf("%s: record %d of %d is none: %q", path, k, len(records)-1, note)
			}
		}
		var head struct {
			Format string `json:"qlog_format"`
			Trace  struct {
				Vantage struct{ Type string } `json:"vantage_point"`
			}
		}
		if err := json.Unmarshal(records[1], &head); err != nil || head.Format != "JSON-SEQ" || head.Trace.Vantage.Type != end {
			t.Errorf("%s begins with %s, %v", path, records[1], err)
		}
		sent := bytes.Contains(text, []byte(`"packet_sent"`)) || bytes.Contains(text, []byte(`:packet_sent"`))
		if killed { // any of its connections may have just begun, but not all
			killedSent = killedSent || sent
			continue
		}
		if !bytes.Contains(text, []byte(`"new":"closed"`)) {
			t.Errorf("%s has no end: %s", path, records[len(records)-1])
		}
		if !sent {
			t.Errorf("%s records no packet", path)
		}
	}
	if !killedSent {
		t.Error("no file of the killed node records a packet")
	}
	for _, w := range []string{"w0", "w1"} {
		if kinds[w+" control"] != 1 || kinds[w+" ring"] < 2 {
			t.Errorf("%s recorded %v", w, kinds)
		}
	}
	if kinds["coordinator control"] < 2 {
		t.Errorf("the coordinator recorded %v", kinds)
	}
	both := 0
	for _, e := range ends {
		if len(e) == 2 && e[0] != e[1] {
			both++
		}
	}
	if both < 4 {
		t.Errorf("only %d of %d connections have both ends", both, len(ends))
	}
}
