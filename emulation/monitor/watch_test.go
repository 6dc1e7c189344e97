//go:build linux

package monitor

import (
	"encoding/json"
	"testing"
	"time"
)

// TestWatchSeesOtherHosts: whoever waited most counts, from the first sample on, also if
// it has ended since.
func TestWatchSeesOtherHosts(t *testing.T) {
	w := &Watch{remote: remoteHosts{}}
	began := 1000 * time.Second
	for k, waits := range []map[string]time.Duration{
		{"w1": time.Second, "w2": 0}, {"w1": 3 * time.Second, "w2": time.Second}, {},
	} {
		raw, err := json.Marshal(Sample{At: began + time.Duration(k)*2*time.Second, Waits: waits})
		if err == nil {
			err = w.Remote("h1", raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := w.Waited(); got != 0.5 {
		t.Errorf("waited for %v of the time, want 2 s of 4", got)
	}
	if err := w.Remote("h1", []byte("no sample")); err == nil {
		t.Error("what is no sample is taken for one")
	}
}
