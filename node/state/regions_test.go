package state

import (
	"context"
	"log/slog"
	"testing"

	"testbed/internal/memnet"
	"testbed/policy"

	"testbed/scenarios"
)

// inRegions gives outer states the rule that every third step is one of all.
func inRegions(all ...*Outer) {
	for _, o := range all {
		o.rule = policy.NewRegions(3, map[string][]policy.ID{"eu": {0, 1}, "us": {2}})
	}
}

// stepped is an outer state after so many steps, drawn anew from the seed on.
func stepped(t *testing.T, seed uint64, steps ...int) *Outer {
	m := newTestOuter(1, 2000)
	inRegions(m)
	for _, n := range steps {
		of := uint64(n)
		if n%3 != 0 { // a region's own
			of += 10 * seed
		}
		o, values := quantised(t, of, 2000)
		m.Step(values, o)
	}
	return m
}

// TestFetchInRegions: a region's state comes whole with what was last agreed on, and
// by outcomes to who holds an older one of the same line; from another region comes
// what was agreed on, by outcomes of the steps of all.
func TestFetchInRegions(t *testing.T) {
	neighbour, other := stepped(t, 1, 1, 2, 3, 4, 5), stepped(t, 2, 1, 2, 3, 4, 5)
	if neighbour.Hash() == other.Hash() {
		t.Fatal("the regions have not moved apart")
	}
	_, want := other.version(true)
	if _, same := neighbour.version(true); same != want {
		t.Fatal("the regions have not agreed")
	}
	for what, c := range map[string]struct {
		from, to        *Outer
		current, agreed bool
		bytes           bool // of chunks
		steps           int
		hash            string
	}{
		"whole":                        {neighbour, newTestOuter(1, 2000), false, false, true, 5, neighbour.Hash()},
		"outcomes":                     {neighbour, stepped(t, 1, 1, 2, 3, 4), true, false, false, 5, neighbour.Hash()},
		"outcomes over a step of all":  {neighbour, stepped(t, 1, 1, 2), true, false, false, 5, neighbour.Hash()},
		"of another line":              {neighbour, stepped(t, 3, 1, 2, 3, 4), true, false, true, 5, neighbour.Hash()},
		"of another line, as new":      {neighbour, stepped(t, 3, 1, 2, 3, 4, 5), true, false, true, 5, neighbour.Hash()},
		"agreed, whole":                {other, newTestOuter(1, 2000), false, true, true, 5, want},
		"agreed, of the same time":     {other, stepped(t, 1, 1, 2, 3, 4), true, true, false, 5, want},
		"agreed, before a step of all": {other, stepped(t, 1, 1, 2), true, true, false, 5, want},
		"agreed, long before":          {stepped(t, 2, 1, 2, 3, 4, 5, 6, 7, 8), stepped(t, 1, 1, 2), true, true, true, 8, ""},
	} {
		inRegions(c.to)
		memnet.Bubble(t, func(t *testing.T) {
			s := &scenarios.Scenario{Real: scenarios.Real{TimeScale: 100}, BaseLatency: 100, Workers: []scenarios.Worker{{ID: 0}, {ID: 1}}}
			plan, err := s.Plan()
			if err != nil {
				t.Fatal(err)
			}
			net := memnet.New(plan)
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(cancel)
			var ends []*Endpoint
			var donor Peer
			for i, m := range []*Outer{c.from, c.to} {
				name := policy.ID(i).Node()
				conn := net.Listen(name)
				e, err := Listen(Config{Conn: conn, TLS: memnet.TLS(t, name), Outer: m, PacketSize: memnet.PacketSize, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { e.Close() })
				if ends = append(ends, e); i == 0 {
					donor = Peer{name, conn.Addr}
					go e.Serve(ctx)
				}
			}
			got, bytes, err := ends[1].Fetch(ctx, []Peer{donor}, c.steps, c.current, c.agreed)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if (bytes > 0) != c.bytes || got.Steps != c.steps || c.hash != "" && got.Hash() != c.hash || (got.Agreed == nil) != c.agreed {
				t.Errorf("%s: %d bytes of chunks, version %d, hash %s, want %s", what, bytes, got.Steps, got.Hash(), c.hash)
			}
			if _, hash := c.from.version(c.agreed); got.Hash() != hash {
				t.Errorf("%s: another state than the donor's", what)
			}
		})
	}
}
