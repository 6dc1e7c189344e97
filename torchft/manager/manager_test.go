package manager_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"testbed/torchft"
	"testbed/torchft/internal/wire"
	"testbed/torchft/lighthouse"
	"testbed/torchft/manager"
	"testbed/torchft/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = time.Minute

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); l, err = net.Listen("tcp", address) {
		time.Sleep(10 * time.Millisecond) // a port just left
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve serves until stop or the test's end.
func serve(t *testing.T, l net.Listener, on func(context.Context, net.Listener) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- on(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func startLighthouse(t *testing.T, address string, minReplicas int) (at string, stop func()) {
	t.Helper()
	s, err := lighthouse.New(lighthouse.Config{
		Config: torchft.Config{MinReplicas: minReplicas, JoinTimeout: 60_000_000, HeartbeatTimeout: 600_000_000},
		Tick:   10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, address)
	return l.Addr().String(), serve(t, l, s.Serve)
}

func config(id, lighthouse string) manager.Config {
	return manager.Config{
		ManagerConfig:     torchft.ManagerConfig{ReplicaID: id, StoreAddress: "store of " + id, WorldSize: 2},
		Lighthouse:        lighthouse,
		HeartbeatInterval: 20 * time.Millisecond, ConnectTimeout: patience,
		Exit: func(string) {},
	}
}

// start serves a manager, and returns a connection to it.
func start(t *testing.T, cfg manager.Config) *grpc.ClientConn {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	cfg.Address = "http://" + l.Addr().String()
	s, err := manager.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, s.Serve)
	c, err := port.Dial(cfg.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

type answer struct {
	*wire.ManagerQuorumResponse
	err error
}

// ask has both ranks of each group ask.
func ask(t *testing.T, timeout time.Duration, steps []int64, groups ...*grpc.ClientConn) (answers [][2]answer) {
	t.Helper()
	answers = make([][2]answer, len(groups))
	var all sync.WaitGroup
	for g, c := range groups {
		for rank := range 2 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				var r wire.ManagerQuorumResponse
				err := c.Invoke(ctx, wire.ManagerQuorum, &wire.ManagerQuorumRequest{
					GroupRank: int64(rank), Step: steps[g], CheckpointMetadata: fmt.Sprintf("state %d.%d", g, rank),
				}, &r)
				answers[g][rank] = answer{&r, err}
			})
		}
	}
	all.Wait()
	return answers
}

func TestQuorum(t *testing.T) {
	at, _ := startLighthouse(t, "127.0.0.1:0", 2)
	a, b := start(t, config("a", at)), start(t, config("b", at))
	got := ask(t, patience, []int64{5, 3}, a, b)
	for rank := range 2 {
		for g := range 2 {
			if got[g][rank].err != nil {
				t.Fatal(got[g][rank].err)
			}
			if r := got[g][rank]; r.QuorumId != 1 || r.ReplicaWorldSize != 2 || r.MaxStep != 5 || r.StoreAddress != "store of a" || !slices.Equal(r.ReplicaIds, []string{"a", "b"}) {
				t.Errorf("rank %d of group %d: %v", rank, g, r)
			}
		}
		if r := got[1][rank]; !r.Heal || r.GetRecoverSrcReplicaRank() != 0 || r.RecoverSrcManagerAddress == "" || r.MaxReplicaRank != nil {
			t.Errorf("who is behind is told %v", r)
		}
	}
	var m wire.CheckpointMetadataResponse
	if err := a.Invoke(t.Context(), wire.CheckpointMetadata, &wire.CheckpointMetadataRequest{Rank: 1}, &m); err != nil || m.CheckpointMetadata != "state 0.1" {
		t.Errorf("checkpoint metadata %q, %v", m.CheckpointMetadata, err)
	}
}

func TestShouldCommit(t *testing.T) {
	at, _ := startLighthouse(t, "127.0.0.1:0", 1)
	c := start(t, config("a", at))
	for _, votes := range [][2]bool{{true, true}, {true, false}, {false, true}, {true, true}} {
		var all sync.WaitGroup
		for rank, vote := range votes {
			all.Go(func() {
				var r wire.ShouldCommitResponse
				err := c.Invoke(t.Context(), wire.ShouldCommit, &wire.ShouldCommitRequest{ShouldCommit: vote, GroupRank: int64(rank)}, &r)
				if err != nil || r.ShouldCommit != (votes[0] && votes[1]) {
					t.Errorf("%v: rank %d is told %v, %v", votes, rank, r.ShouldCommit, err)
				}
			})
		}
		all.Wait()
	}
}

func TestErrors(t *testing.T) {
	at, _ := startLighthouse(t, "127.0.0.1:0", 2)
	c := start(t, config("a", at))
	timed, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, call := range []struct {
		method  string
		ctx     context.Context
		request any
		code    codes.Code
		words   string
	}{
		{wire.ManagerQuorum, t.Context(), &wire.ManagerQuorumRequest{}, codes.InvalidArgument, "missing timeout"},
		{wire.ManagerQuorum, timed, &wire.ManagerQuorumRequest{GroupRank: 2}, codes.InvalidArgument, "world size"},
		{wire.ManagerQuorum, timed, &wire.ManagerQuorumRequest{GroupRank: -1}, codes.InvalidArgument, "world size"},
		{wire.ManagerQuorum, timed, &wire.ManagerQuorumRequest{CheckpointMetadata: strings.Repeat("x", 20_000)}, codes.InvalidArgument, "checkpoint metadata"},
		{wire.ShouldCommit, timed, &wire.ShouldCommitRequest{GroupRank: 1 << 40}, codes.InvalidArgument, "world size"},
		{wire.CheckpointMetadata, timed, &wire.CheckpointMetadataRequest{Rank: 1}, codes.InvalidArgument, "rank not found"},
		{"/" + wire.ManagerService + "/Nothing", timed, &wire.KillRequest{}, codes.Unimplemented, ""},
	} {
		err := c.Invoke(call.ctx, call.method, call.request, &wire.KillResponse{})
		if status.Code(err) != call.code || !strings.Contains(err.Error(), call.words) {
			t.Errorf("%s %v: %v, want %v %q", call.method, call.request, err, call.code, call.words)
		}
	}
}

// TestLighthouseComesBack: with retries a group outlives its lighthouse's absence;
// without, its ranks wait until their time is over.
func TestLighthouseComesBack(t *testing.T) {
	for _, retries := range []int{0, 50} {
		at, stop := startLighthouse(t, "127.0.0.1:0", 1)
		cfg := config("a", at)
		cfg.QuorumRetries = retries
		failed := make(chan bool, 100)
		cfg.Log = func(string) { failed <- true }
		c := start(t, cfg)
		if got := ask(t, patience, []int64{0}, c); got[0][0].err != nil {
			t.Fatal(got[0][0].err)
		}
		stop()
		timeout := patience
		if retries == 0 {
			timeout = 2 * time.Second
		}
		answers := make(chan [][2]answer)
		go func() { answers <- ask(t, timeout, []int64{1}, c) }()
		<-failed
		startLighthouse(t, at, 1)
		got := <-answers
		for _, a := range got[0] {
			code := status.Code(a.err)
			if retries > 0 && code != codes.OK || retries == 0 && code != codes.Canceled && code != codes.DeadlineExceeded {
				t.Errorf("with %d retries: %v", retries, a.err)
			}
		}
	}
}

func TestNoLighthouse(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	at := l.Addr().String()
	_ = l.Close()
	cfg := config("a", "http://"+at)
	cfg.ConnectTimeout = 300 * time.Millisecond
	if _, err := manager.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("without a lighthouse: %v", err)
	}
	cfg.Lighthouse = "https://" + at
	if _, err := manager.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "scheme") {
		t.Errorf("https: %v", err)
	}
}

// TestKill: who may end the process does, and is not answered before its end.
func TestKill(t *testing.T) {
	at, _ := startLighthouse(t, "127.0.0.1:0", 1)
	for _, c := range []struct {
		token, given string
		killed       bool
	}{
		{"", "", true},
		{"secret", "secret", true},
		{"secret", "", false},
		{"secret", "Secret", false},
	} {
		cfg := config("a", at)
		cfg.KillToken = c.token
		l := listen(t, "127.0.0.1:0")
		cfg.Address = "http://" + l.Addr().String()
		ctx, end := context.WithCancel(t.Context())
		killed := make(chan string, 1)
		cfg.Exit = func(why string) { killed <- why; end() }
		s, err := manager.New(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := serve(t, l, func(outer context.Context, l net.Listener) error {
			defer context.AfterFunc(outer, end)()
			return s.Serve(ctx, l)
		})
		err = manager.Kill(t.Context(), cfg.Address, "because", c.given)
		if c.killed {
			if why := <-killed; err != nil || why != "because" {
				t.Errorf("%+v: %v, %q", c, err, why)
			}
		} else if err == nil || !strings.Contains(err.Error(), "kill_token") || len(killed) > 0 {
			t.Errorf("%+v: %v", c, err)
		}
		stop()
		end()
	}
}
