package lighthouse

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"testbed/policy"
	"testbed/torchft"
	"testbed/torchft/internal/wire"
	"testbed/torchft/port"
)

const ms = policy.Time(1000)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = time.Minute

func config() Config {
	return Config{
		Config: torchft.Config{MinReplicas: 2, JoinTimeout: 60_000 * ms, HeartbeatTimeout: 600_000 * ms},
		Tick:   10 * time.Millisecond,
	}
}

// start serves a lighthouse until stop or the test's end, and returns a client's
// connection.
func start(t *testing.T, s *Server) (c *grpc.ClientConn, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return fmt.Errorf("the lighthouse does not end")
		}
	}
	c, err = port.Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return c, stop
}

func newServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type outcome struct {
	quorum *wire.Quorum
	err    error
}

func (o outcome) String() string {
	if o.err != nil {
		return o.err.Error()
	}
	return fmt.Sprintf("%d of %s", o.quorum.QuorumId, strings.Join(ids(o.quorum), " "))
}

func ids(q *wire.Quorum) (all []string) {
	for _, p := range q.GetParticipants() {
		all = append(all, p.ReplicaId)
	}
	return all
}

func ask(ctx context.Context, c *grpc.ClientConn, m *wire.QuorumMember) <-chan outcome {
	answer := make(chan outcome, 1)
	go func() {
		var r wire.LighthouseQuorumResponse
		err := c.Invoke(ctx, wire.LighthouseQuorum, &wire.LighthouseQuorumRequest{Requester: m}, &r)
		answer <- outcome{r.Quorum, err}
	}()
	return answer
}

func result(t *testing.T, answer <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-answer:
		return o
	case <-time.After(patience):
		t.Fatal("no answer")
		return outcome{}
	}
}

// waits waits until so many calls wait for a replica.
func (s *Server) waits(t *testing.T, id string, calls int) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.waiting.Calls[id])
		s.mu.Unlock()
		if n == calls {
			return
		}
	}
	t.Fatalf("there are never %d calls waiting for %s", calls, id)
}

func member(id string, step int64) *wire.QuorumMember {
	return &wire.QuorumMember{ReplicaId: id, Step: step, Address: "http://" + id}
}

func TestQuorum(t *testing.T) {
	s := newServer(t, config())
	c, _ := start(t, s)
	a := ask(t.Context(), c, member("a", 1))
	s.waits(t, "a", 1)
	again := ask(t.Context(), c, member("a", 1)) // a call that is repeated
	s.waits(t, "a", 2)
	b := ask(t.Context(), c, member("b", 2))
	for _, answer := range []<-chan outcome{a, again, b} {
		if got := result(t, answer).String(); got != "1 of a b" {
			t.Errorf("got %s", got)
		}
	}
	// The fast path takes a newcomer in, and who failed to commit has the id change.
	newcomer := ask(t.Context(), c, member("c", 0))
	s.waits(t, "c", 1)
	failed := member("b", 2)
	failed.CommitFailures = 1
	a, b = ask(t.Context(), c, member("a", 2)), ask(t.Context(), c, failed)
	for _, answer := range []<-chan outcome{a, b, newcomer} {
		if got := result(t, answer).String(); got != "2 of a b c" {
			t.Errorf("got %s", got)
		}
	}
	v := s.view()
	if v.QuorumID != 2 || v.MaxStep != 2 || len(v.Members) != 3 || !v.Members[2].Healing || v.Members[2].HealsFromRank != 0 || v.Members[2].HealsFrom != "a" {
		t.Errorf("the dashboard shows %+v", v)
	}
	if h := v.History[0]; h.QuorumID != 2 || !slices.Equal(h.Came.First, []string{"c"}) || !slices.Equal(h.Failed.First, []string{"b"}) || !strings.Contains(h.Why, "fast_quorum") {
		t.Errorf("its history begins with %+v", h)
	}
}

// TestWide: waiting for a quorum may become work for all processors, heartbeats of
// one replica are not. On a busy machine it is told more often.
func TestWide(t *testing.T) {
	cfg := config()
	cfg.Tick = 100 * time.Millisecond
	told := make(chan bool, 1000)
	cfg.Wide = func(wide bool) { told <- wide }
	c, _ := start(t, newServer(t, cfg))
	next := func(want bool) {
		t.Helper()
		for ends := time.After(patience); ; {
			select {
			case wide := <-told:
				if wide == want {
					return
				}
			case <-ends:
				t.Fatalf("%t is not told", want)
			}
		}
	}
	next(false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan error, 1)
	go func() {
		asked <- c.Invoke(ctx, wire.LighthouseQuorum, &wire.LighthouseQuorumRequest{Requester: &wire.QuorumMember{ReplicaId: "a"}}, &wire.LighthouseQuorumResponse{})
	}()
	next(true)
	cancel()
	<-asked
	next(false)
}

// TestNoGhosts: who gave up takes no part, unless that is wanted.
func TestNoGhosts(t *testing.T) {
	for _, compat := range []bool{false, true} {
		cfg := config()
		cfg.Compat = compat
		s := newServer(t, cfg)
		c, stop := start(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		gone := ask(ctx, c, member("ghost", 0))
		s.waits(t, "ghost", 1)
		cancel()
		if o := result(t, gone); status.Code(o.err) != codes.Canceled {
			t.Errorf("who gave up got %v", o)
		}
		s.waits(t, "ghost", 0)
		a := ask(t.Context(), c, member("a", 0))
		if compat {
			if got := result(t, a).String(); got != "1 of a ghost" {
				t.Errorf("as torchft: %s", got)
			}
			continue
		}
		s.waits(t, "a", 1)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if o := result(t, a); status.Code(o.err) != codes.Unavailable {
			t.Errorf("alone, a got %v", o)
		}
	}
}

// TestJournal: a lighthouse that starts again counts on, and its replicas go on
// without configuring anything anew, whatever was being written when it died.
func TestJournal(t *testing.T) {
	cfg := config()
	cfg.Journal = filepath.Join(t.TempDir(), "journal")
	want := []string{"1 of a b", "1 of a b", "2 of a b c", "2 of a b c"}
	for life, want := range want {
		s := newServer(t, cfg)
		c, stop := start(t, s)
		replicas := []string{"a", "b"}
		if life >= 2 {
			replicas = []string{"c", "a", "b"}
		}
		for range 3 {
			var answers []<-chan outcome
			for _, id := range replicas {
				answers = append(answers, ask(t.Context(), c, member(id, 0)))
				if id == "c" {
					s.waits(t, id, 1)
				}
			}
			for _, answer := range answers {
				if got := result(t, answer).String(); got != want {
					t.Fatalf("life %d: %s, want %s", life, got, want)
				}
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(cfg.Journal, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(`{"issued":"2026-01-01T00:00:00Z","quorum_id":9,"particip`)
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(cfg.Journal)
	if err != nil || strings.Count(string(data), "\n") != 1 {
		t.Errorf("after four lives and two ids the journal is\n%s", data)
	}
}

// TestJournalHasOneLighthouse: a second one is refused while the first lives, and zeros that
// a machine has left at the end are cut off.
func TestJournalHasOneLighthouse(t *testing.T) {
	cfg := config()
	cfg.Journal = filepath.Join(t.TempDir(), "journal")
	valid := `{"issued":"2026-01-01T00:00:00Z","rule":"fast_quorum","quorum_id":7,"participants":[{"replica_id":"a"}]}` + "\n"
	for _, end := range []string{"\x00\x00\x00", `{"issued":"2026` + strings.Repeat("\x00", 5000)} {
		if err := os.WriteFile(cfg.Journal, []byte(valid+end), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newServer(t, cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "another lighthouse uses the journal") {
			t.Errorf("a second lighthouse on one journal: %v", err)
		}
		_, stop := start(t, s)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(cfg.Journal); err != nil || string(text) != valid {
			t.Errorf("the journal is %q, %v", text, err)
		}
	}
}

func TestJournalsThatAreNone(t *testing.T) {
	valid := `{"issued":"2026-01-01T00:00:00Z","rule":"fast_quorum","quorum_id":1,"participants":[{"replica_id":"a"}]}` + "\n"
	for text, want := range map[string]string{
		"my thesis":           "line 1 does not belong to a lighthouse's journal",
		"my thesis\n":         "line 1: ",
		valid + "{\n" + valid: "line 2: ",
		valid + "\n":          "line 2: ",
		valid + "{}\n":        "line 2: quorum_id is 0 and the number of participants is 0",
		valid + "{}":          "line 2 does not belong to a lighthouse's journal",
		strings.Replace(valid, `{"replica_id":"a"}`, `{"replica_id":"b"},{"replica_id":"a"}`, 1): "not in order",
	} {
		cfg := config()
		cfg.Journal = filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(cfg.Journal, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), cfg.Journal) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
		if after, _ := os.ReadFile(cfg.Journal); string(after) != text && want != "not in order" {
			t.Errorf("%.40q was changed to %q", text, after)
		}
	}
}

// FuzzJournal: a journal is refused or gives an entry, whatever is in it, and cut
// anywhere it still gives one that was in it.
func FuzzJournal(f *testing.F) {
	one := `{"issued":"2026-01-01T00:00:00Z","quorum_id":1,"participants":[{"replica_id":"a"}]}` + "\n"
	f.Add([]byte(one+strings.Replace(one, `"quorum_id":1`, `"quorum_id":2`, 1)), 100)
	f.Add([]byte("{"), 0)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		line, last, err := lastEntry(data)
		if err != nil {
			return
		}
		if (last == nil) != (line == nil) {
			t.Fatalf("line %q gives %v", line, last)
		}
		if cut >= 0 && cut <= len(data) {
			if _, _, err := lastEntry(data[:cut]); err != nil && cut > 0 && data[cut-1] != '\n' && strings.HasPrefix(string(data), entryBegins) && !strings.Contains(string(data[:cut]), "\n") {
				t.Errorf("cut at %d: %v", cut, err)
			}
		}
	})
}

// TestFullDisk: a lighthouse that cannot keep a quorum ends, and answers nobody
// with it.
func TestFullDisk(t *testing.T) {
	cfg := config()
	cfg.Journal = filepath.Join(t.TempDir(), "journal")
	s := newServer(t, cfg)
	_ = s.journal.file.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), l) }()
	c, err := port.Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, b := ask(t.Context(), c, member("a", 0)), ask(t.Context(), c, member("b", 0))
	for _, answer := range []<-chan outcome{a, b} {
		if o := result(t, answer); o.err == nil {
			t.Errorf("a quorum that is not kept: %v", o)
		}
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "journal") {
		t.Errorf("it ended with %v", err)
	}
}

// TestManyReplicaIDs: a caller who makes up ids is refused, in bounded memory, and
// those who were there before take no notice.
func TestManyReplicaIDs(t *testing.T) {
	many := 1_000_000
	if testing.Short() {
		many = 10_000
	}
	cfg := config()
	s := newServer(t, cfg)
	c, _ := start(t, s)
	a := ask(t.Context(), c, member("a", 0))
	s.waits(t, "a", 1)
	refused := 0
	var before, after runtime.MemStats
	for i := range many {
		if i == 2*torchft.MaxReplicas {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		// Most of them past the transport, of which port's tests see.
		_, err := s.heartbeat(&wire.LighthouseHeartbeatRequest{ReplicaId: fmt.Sprint("made up ", i)})
		if status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if refused != many-torchft.MaxReplicas+1 {
		t.Errorf("%d of %d were refused", refused, many)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); many > 2*torchft.MaxReplicas && grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	var r wire.LighthouseHeartbeatResponse
	err := c.Invoke(t.Context(), wire.Heartbeat, &wire.LighthouseHeartbeatRequest{ReplicaId: "one more"}, &r)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "too_many_replicas") {
		t.Errorf("one more over gRPC: %v", err)
	}
	if err := c.Invoke(t.Context(), wire.Heartbeat, &wire.LighthouseHeartbeatRequest{ReplicaId: "a"}, &r); err != nil {
		t.Errorf("who was there before: %v", err)
	}
	select {
	case o := <-a:
		t.Errorf("who waits got %v", o)
	default:
	}
}

func TestTooLargeMember(t *testing.T) {
	s := newServer(t, config())
	c, _ := start(t, s)
	m := member("a", 0)
	m.Data = strings.Repeat("x", torchft.MaxMemberBytes)
	o := result(t, ask(t.Context(), c, m))
	if status.Code(o.err) != codes.InvalidArgument || !strings.Contains(o.err.Error(), "16384 bytes") {
		t.Errorf("got %v", o)
	}
	s.waits(t, "a", 0)
}

// TestKillWithoutManager: the page's kill says what went wrong.
func TestKillOfNobody(t *testing.T) {
	s := newServer(t, config())
	c, _ := start(t, s)
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := web.Post("http://"+strings.TrimPrefix(c.Target(), "passthrough:///")+"/replica/nobody/kill", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if body, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), `"nobody" is not in the last quorum`) {
		t.Errorf("%s: %s", r.Status, body)
	}
}
