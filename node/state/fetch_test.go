package state

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
)

// lab is a joiner, w0, and donors with the same state, w1 and up, on an
// in-process network.
type lab struct {
	t *testing.T
	*memnet.Net
	joiner *Endpoint
	hash   string // of the donors' state
	donors []Peer
}

func newLab(t *testing.T, parameters int, busy func() bool, donors int) *lab {
	s := &scenarios.Scenario{Real: scenarios.Real{TimeScale: 100}, BaseLatency: 100}
	for id := range 1 + donors {
		s.Workers = append(s.Workers, scenarios.Worker{ID: policy.ID(id)})
	}
	plan, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, Net: memnet.New(plan)}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	listen := func(name string, m *Outer) (*Endpoint, Peer) {
		conn := l.Listen(name)
		e, err := Listen(Config{
			Conn: conn, TLS: memnet.TLS(t, name), Outer: m, Busy: busy, PacketSize: memnet.PacketSize, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e, Peer{name, conn.Addr}
	}
	for i := range donors {
		m := trained(t, parameters, 6)
		e, peer := listen(policy.ID(i+1).Node(), m)
		go e.Serve(ctx)
		l.donors, l.hash = append(l.donors, peer), m.Hash()
	}
	l.joiner, _ = listen("w0", newTestOuter(1, parameters))
	return l
}

func (l *lab) fetch(donors ...Peer) error {
	l.t.Helper()
	s, _, err := l.joiner.Fetch(context.Background(), donors, 6, false, false)
	if err == nil && s.Hash() != l.hash {
		l.t.Error("the fetched state is another one")
	}
	return err
}

// TestFetchResumes: a donor goes silent in the middle, and what it has sent is
// not fetched again from the next.
func TestFetchResumes(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		l := newLab(t, 20_000, nil, 2)
		time.AfterFunc(300*time.Millisecond, func() { l.Fault(t, "freeze", shaping.Partition{Nodes: []string{"w1"}}) })
		if err := l.fetch(l.donors[0]); err == nil {
			t.Fatal("the frozen donor has delivered everything")
		}
		all := 2 * vectorChunks(20_000)
		if l.joiner.fetcher.kept == nil || l.joiner.fetcher.kept.left == 0 || l.joiner.fetcher.kept.left == all {
			t.Fatalf("what the frozen donor has sent is lost: %+v", l.joiner.fetcher.kept)
		}
		left, bytes := l.joiner.fetcher.kept.left, l.joiner.fetcher.kept.bytes
		p := l.joiner.fetcher.kept
		if err := l.fetch(l.donors[1]); err != nil {
			t.Fatal(err)
		}
		if got, share := p.bytes-bytes, float64(left)/float64(all); float64(got) > 1.3*share*float64(p.bytes) {
			t.Errorf("%d of %d chunks were missing; the second donor sent %d of %d bytes", left, all, got, p.bytes)
		}
	})
}

// TestFetchFromSeveral takes about as long with a dead helper as without one,
// and less with two live ones.
func TestFetchFromSeveral(t *testing.T) {
	took := func(use int, dead bool) (d time.Duration) {
		memnet.Bubble(t, func(t *testing.T) {
			l := newLab(t, 20_000, nil, 3)
			if dead {
				l.Fault(t, "dead", shaping.Partition{Nodes: []string{"w2"}})
			}
			begin := time.Now()
			if err := l.fetch(l.donors[:use]...); err != nil {
				t.Fatal(err)
			}
			d = time.Since(begin)
		})
		return d
	}
	one, three, helpless := took(1, false), took(3, false), took(2, true)
	if 3*three > 2*one {
		t.Errorf("three donors took %v, one %v", three, one)
	}
	if 4*helpless > 5*one {
		t.Errorf("a donor with a dead helper took %v, one alone %v", helpless, one)
	}
}

// TestFetchYields to the donor's reductions.
func TestFetchYields(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		begin := time.Now()
		const reduction = 7 * time.Second
		l := newLab(t, 2000, func() bool { return time.Since(begin) < reduction }, 1)
		if err := l.fetch(l.donors[0]); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < reduction || took > reduction+2*time.Second {
			t.Errorf("the fetch took %v beside a reduction of %v", took, reduction)
		}
	})
}
