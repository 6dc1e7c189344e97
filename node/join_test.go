package node

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping"
)

// lab is a joiner, w0, and donors with the same state, w1 and up, on an
// in-process network.
type lab struct {
	t *testing.T
	*memnet.Net
	fetcher
	donors  []*donor
	sources []source
}

func newLab(t *testing.T, parameters int, busy func() bool, donors int) *lab {
	s := worldScenario(t, 1+donors)
	plan, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, Net: memnet.New(plan)}
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	for i := range donors {
		name := scenarios.NodeName(policy.ID(i + 1))
		conn := l.Listen(name)
		d, err := newDonor(conn, memnet.TLS(t, name), trained(t, parameters, 6), busy, nil, log)
		if err != nil {
			t.Fatal(err)
		}
		go d.serve(ctx)
		l.donors, l.sources = append(l.donors, d), append(l.sources, source{name, conn.Addr})
	}
	conn := l.Listen("w0")
	l.fetcher = fetcher{transport: &quic.Transport{Conn: conn}, tls: memnet.TLS(t, "w0"), model: newModel(1, 0, parameters), log: log}
	t.Cleanup(func() {
		cancel()
		l.transport.Close()
		conn.Close()
		for _, d := range l.donors {
			d.close()
		}
	})
	return l
}

func (l *lab) fetch(sources ...source) error {
	l.t.Helper()
	s, _, err := l.fetcher.fetch(context.Background(), sources, 6, false)
	if err == nil && s.hash() != l.donors[0].model.stateHash() {
		l.t.Error("the fetched state is another one")
	}
	return err
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if err := memnet.Bubble(t, f); err != nil {
		t.Error(err)
	}
}

// TestFetchResumes: a donor goes silent in the middle, and what it has sent is
// not fetched again from the next.
func TestFetchResumes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLab(t, 20_000, nil, 2)
		time.AfterFunc(300*time.Millisecond, func() { l.Fault(t, "freeze", shaping.Partition{Nodes: []string{"w1"}}) })
		if err := l.fetch(l.sources[0]); err == nil {
			t.Fatal("the frozen donor has delivered everything")
		}
		all := chunks(20_000)
		if l.kept == nil || l.kept.left == 0 || l.kept.left == all {
			t.Fatalf("what the frozen donor has sent is lost: %+v", l.kept)
		}
		left, bytes := l.kept.left, l.kept.bytes
		p := l.kept
		if err := l.fetch(l.sources[1]); err != nil {
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
		bubble(t, func(t *testing.T) {
			l := newLab(t, 20_000, nil, 3)
			if dead {
				l.Fault(t, "dead", shaping.Partition{Nodes: []string{"w2"}})
			}
			begin := time.Now()
			if err := l.fetch(l.sources[:use]...); err != nil {
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
	bubble(t, func(t *testing.T) {
		begin := time.Now()
		const reduction = 7 * time.Second
		l := newLab(t, 2000, func() bool { return time.Since(begin) < reduction }, 1)
		if err := l.fetch(l.sources[0]); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < reduction || took > reduction+2*time.Second {
			t.Errorf("the fetch took %v beside a reduction of %v", took, reduction)
		}
	})
}

// TestJoinModes: when a joiner contributes, and what its joining costs the
// others.
func TestJoinModes(t *testing.T) {
	held := map[policy.JoinMode]policy.Time{}
	for mode, first := range map[policy.JoinMode]int{policy.JoinRunning: 2, policy.JoinNext: 3, policy.JoinZeros: 2} {
		t.Run(string(mode), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := worldScenario(t, 4)
				s.Policy.Join = mode
				s.Workers[3].JoinAt = 2800 // early in the second round
				w := newWorld(t, s)
				sum, events := w.play(scenarios.Baseline, time.Hour)
				if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
					t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
				}
				for _, e := range events {
					if e.Type != runlog.OuterStep {
						continue
					}
					if took := len(e.Participants) == 4; took != (e.Round >= first) {
						t.Errorf("round %d had %v", e.Round, e.Participants)
					}
				}
				held[mode] = sum.JoinersHeld
			})
		})
	}
	// The running round waits for all that the joiner has to do, the next one
	// for its fetch of the outer step between.
	if r, n, z := held[policy.JoinRunning], held[policy.JoinNext], held[policy.JoinZeros]; r <= n || n <= z || z > 200 {
		t.Errorf("the others were held up by %v µs", held)
	}
}
