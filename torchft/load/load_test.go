package load_test

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"testbed/torchft"
	"testbed/torchft/lighthouse"
	"testbed/torchft/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoad(t *testing.T) {
	const groups = 8
	s, err := lighthouse.New(lighthouse.Config{
		Config: torchft.Config{MinReplicas: groups, JoinTimeout: 60_000_000, HeartbeatTimeout: 600_000_000},
		Tick:   time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	all, err := load.Connect(ctx, l.Addr().String(), groups)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	q, err := all.Quorums(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	if q.Rounds != 3 || q.P50ms <= 0 || q.P99ms < q.P50ms || q.AnswerBytes < 8*80 || q.Ratio <= 0 {
		t.Errorf("quorums: %+v", q)
	}
	h, err := all.Heartbeats(ctx, 10*time.Millisecond, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if h.Sent < groups-1 || // a busy machine misses moments
		h.Sent > 6*groups || h.PerSecond <= 0 {
		t.Errorf("heartbeats: %+v", h)
	}
}
