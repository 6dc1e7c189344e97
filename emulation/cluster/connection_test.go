package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"testbed/record"
)

const token = "a token of some length"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lead returns a leader, and what Admit of that many hosts will return.
func lead(t *testing.T, count int) (l *Listener, told chan string, admitted chan []*HostConn) {
	t.Helper()
	l, err := Listen("127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(nil) })
	told, admitted = make(chan string, 100), make(chan []*HostConn, 1)
	go func() {
		members, err := l.Admit(t.Context(), Hello{Count: count, Name: "a"}, func(s string) { told <- s })
		if err != nil {
			t.Error(err)
		}
		admitted <- members
	}()
	return l, told, admitted
}

func join(t *testing.T, l *Listener, h Hello) *LeaderConn {
	t.Helper()
	c, err := Join(t.Context(), l.Addr().String(), token, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(nil) })
	return c
}

// TestHostsAreKnownByTheirIndex whenever they come, and a second one is sent away.
// What each end says reaches the other, and each hears that the run has failed.
func TestHostsAreKnownByTheirIndex(t *testing.T) {
	l, told, admitted := lead(t, 3)
	second := join(t, l, Hello{Index: 2, Count: 3, Name: "a", Port: 2})
	<-told
	for _, wrong := range []Hello{{Index: 2, Count: 3}, {Index: 1, Count: 4}, {Index: 3, Count: 3}, {Index: 0, Count: 3}, {Index: 1, Count: 3, Environment: record.Environment{Revision: "other"}}, {Index: 1, Count: 3, Executable: "other"}} {
		c := join(t, l, wrong)
		if _, err := c.Next(); err == nil || !strings.Contains(err.Error(), "the leader has refused this host: ") {
			t.Errorf("%+v was not sent away: %v", wrong, err)
		}
		<-told
	}
	first := join(t, l, Hello{Index: 1, Count: 3, Name: "a", Port: 1})
	members := <-admitted
	if len(members) != 2 || members[0].Port != 1 || members[1].Port != 2 || members[0].Name != "a-1" || members[1].Name != "a-2" {
		t.Fatalf("%+v", members)
	}
	var answer string
	if err := members[0].Send("an order"); err != nil {
		t.Fatal(err)
	}
	if v, err := first.Next(); err != nil || string(v) != `"an order"` {
		t.Errorf("before anything was relayed the host heard %s, %v", v, err)
	}
	theirs, ours := net.Pipe()
	relayed := make(chan struct{})
	go func() {
		members[0].Relay(theirs, func(why error) any { return why.Error() })
		close(relayed)
	}()
	if err := errors.Join(first.Send("an answer"), members[0].Next(t.Context(), &answer)); err != nil || answer != "an answer" {
		t.Errorf("before the job had spoken the leader heard %q, %v", answer, err)
	}
	go func() { _ = json.NewEncoder(ours).Encode("to the host") }()
	if v, err := first.Next(); err != nil || string(v) != `"to the host"` {
		t.Errorf("the host heard %s, %v", v, err)
	}
	if err := first.Send("to the leader"); err != nil {
		t.Fatal(err)
	}
	in := json.NewDecoder(ours)
	var heard string
	if err := in.Decode(&heard); err != nil || heard != "to the leader" {
		t.Errorf("the leader heard %q, %v", heard, err)
	}
	l.Close(errors.New("a reason"))
	if err := in.Decode(&heard); err != nil || !strings.Contains(heard, "the host a-1") {
		t.Errorf("the job heard %q, %v", heard, err)
	}
	ours.Close()
	theirs.Close()
	<-relayed
	for _, c := range []*LeaderConn{first, second} {
		var ended *EndedError
		if _, err := c.Next(); !errors.As(err, &ended) || !strings.Contains(err.Error(), "a reason") {
			t.Errorf("a host heard %v", err)
		}
	}
}

func TestTheEndOfARunIsNoFailure(t *testing.T) {
	l, _, admitted := lead(t, 2)
	c := join(t, l, Hello{Index: 1, Count: 2})
	<-admitted
	l.Close(nil)
	if _, err := c.Next(); !errors.Is(err, errDone) {
		t.Errorf("the host heard %v", err)
	}
}

// TestAnotherTokenGetsNobodyIn, at either end, and a short one is refused.
func TestAnotherTokenGetsNobodyIn(t *testing.T) {
	l, err := Listen("127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waited := make(chan error, 1)
	go func() { // nobody is admitted
		_, err := l.Admit(ctx, Hello{Count: 2}, func(string) {})
		waited <- err
	}()
	if _, err := Join(ctx, l.Addr().String(), "a token of other bytes", Hello{Index: 1, Count: 2}); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("the host was let in: %v", err)
	}
	select { // the leader waits no longer
	case err := <-waited:
		if err == nil || !strings.Contains(err.Error(), "its token differs from ") {
			t.Errorf("the leader waited for its hosts: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the leader waits on for a host that has another token")
	}
	if _, err := Join(ctx, l.Addr().String(), "short", Hello{}); err == nil || !strings.Contains(err.Error(), "it must have at least 16") {
		t.Error(err)
	}
}
