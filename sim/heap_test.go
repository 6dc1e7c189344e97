package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
)

// scheduled is an entry as a list would keep it.
type scheduled struct {
	at   policy.Time
	last bool
	n    int
}

func (s scheduled) before(o scheduled) bool {
	return s.at < o.at || s.at == o.at && (!s.last && o.last || s.last == o.last && s.n < o.n)
}

// TestOrder: by time, then those of pushLast behind the others, then in the order
// in which they came.
func TestOrder(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		var h heap
		var list []scheduled
		pop := func() {
			first := 0
			for i := range list {
				if list[i].before(list[first]) {
					first = i
				}
			}
			if e, ok := h.pop(); !ok || int(e.a) != list[first].n || e.at != list[first].at {
				t.Fatalf("popped %+v, %v, want %+v", e, ok, list[first])
			}
			list = slices.Delete(list, first, first+1)
		}
		for n := range rapid.IntRange(0, 60).Draw(t, "entries") {
			s := scheduled{policy.Time(rapid.IntRange(0, 5).Draw(t, "at")), rapid.Bool().Draw(t, "last"), n}
			list = append(list, s)
			if s.last {
				h.pushLast(s.at, 0, n, 0)
			} else {
				h.push(s.at, 0, n, 0)
			}
			if rapid.IntRange(0, 3).Draw(t, "pop") == 0 {
				pop()
			}
		}
		for len(list) > 0 {
			pop()
		}
		if _, ok := h.pop(); ok {
			t.Fatal("an entry that nobody pushed")
		}
	})
}
