//go:build linux

package network

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
)

type lasts []bool

func (l *lasts) Sample(_ map[string]int, last bool) any {
	*l = append(*l, last)
	return nil
}

// TestLastCountOfAShare: a count that was asked for and comes when the end has been
// ordered is not the last yet.
func TestLastCountOfAShare(t *testing.T) {
	s := NewSupervisor(strings.NewReader(""), io.Discard)
	var seen lasts
	h := &share{s: s, network: &Network{s: s}, watcher: &seen}
	h.network.onCount = h.counted
	for _, o := range []order{{Count: true}, {Count: true}, {End: true}} {
		if err := h.take(o); err != nil {
			t.Fatal(err)
		}
		if o.Count && len(seen) == 0 { // the second is late
			if err := h.network.counted(json.RawMessage("{}")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 { // the second, and the router's last
		if err := h.network.counted(json.RawMessage("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if want := (lasts{false, false, true}); !slices.Equal(seen, want) {
		t.Errorf("the counts were the last: %v, want %v", seen, want)
	}
}
