package node

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/runlog"
	"testbed/worker"
)

func journalOnDisk(t *testing.T, text string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestJournalIsReadAndMended(t *testing.T) {
	header := journalHeader{journalVersion, "r", "s", "p", 1}
	whole := describe(header) + "\n" + `{"t_us":1,"what":"timer"}` + "\n" + `{"t_us":2,"id":3,"msg":{"type":"arrive","round":4,"seq":1}}` + "\n"
	for torn := range []byte(`{"t_us":3,"what":"timer"}`) {
		j := journalOnDisk(t, whole+`{"t_us":3,"what":"timer"}`[:torn])
		var got []entry
		if err := replay(j, header, func(e entry) { got = append(got, e) }); err != nil {
			t.Fatalf("torn after %d bytes: %v", torn, err)
		}
		if len(got) != 2 || got[0].What != timerFired || got[1].Msg == nil || got[1].Msg.Round != 4 || got[1].ID != 3 {
			t.Fatalf("torn after %d bytes: read %+v", torn, got)
		}
		if err := record(j, entry{T: 9, What: timerFired}); err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(j.Name()); string(text) != whole+`{"t_us":9,"what":"timer"}`+"\n" {
			t.Fatalf("torn after %d bytes: the next entry left\n%s", torn, text)
		}
	}
	empty := journalOnDisk(t, "")
	if err := replay(empty, header, func(entry) { t.Error("an entry of nothing") }); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(empty.Name()); string(text) != describe(header)+"\n" {
		t.Errorf("a new journal begins with %q", text)
	}
	for name, text := range map[string]string{
		"another run": strings.Replace(whole, `"r"`, `"q"`, 1),
		"line 3":      strings.Replace(whole, `"msg"`, `"mess"`, 1),
		"line 1":      "{}}\n",
	} {
		if err := replay(journalOnDisk(t, text), header, func(entry) {}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one about %s", err, name)
		}
	}
}

// checkpointOf is of a model alone.
func checkpointOf(m *model) *snapshotter {
	return &snapshotter{run: "run", model: m, steps: m.steps}
}

func TestCheckpointIsWholeOrNone(t *testing.T) {
	m := newModel(1, 0, 40_000)
	m.outerStep(m.optimum, nil)
	state, both, residual := checkpointOf(m), checkpointOf(m), checkpointOf(m)
	both.of, both.residual = 3, m.target
	residual.of, residual.residual, residual.stateless = 4, m.target, true
	for kind, writer := range map[string]*snapshotter{"state": state, "state and residual": both, "residual": residual} {
		var b bytes.Buffer
		c, err := writer.write(&b)
		if err != nil {
			t.Fatal(err)
		}
		got, s, err := readCheckpoint(bytes.NewReader(b.Bytes()))
		if diff := cmp.Diff(c, got); err != nil || diff != "" || s.steps != 1 || c.Run != "run" || c.Hash != m.stateHash() {
			t.Fatalf("%s: %v\n%s", kind, err, diff)
		}
		if !writer.stateless && s.hash() != m.stateHash() || !slices.Equal(s.residual, writer.residual) {
			t.Errorf("%s: read something else than was written", kind)
		}
		for name, damage := range map[string]func([]byte) []byte{
			"empty":     func(b []byte) []byte { return nil },
			"cut off":   func(b []byte) []byte { return b[:len(b)-1] },
			"longer":    func(b []byte) []byte { return append(b, 0) },
			"a bit":     func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			"last bit":  func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			"header":    func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] },
			"other":     func(b []byte) []byte { return bytes.Replace(b, []byte(`"format":1`), []byte(`"format":2`), 1) },
			"too large": func(b []byte) []byte { return bytes.Replace(b, []byte(":40000,"), []byte(":1073741824,"), 1) },
		} {
			if _, err := ReadCheckpoint(bytes.NewReader(damage(bytes.Clone(b.Bytes())))); err == nil {
				t.Errorf("%s, %s: no error", kind, name)
			}
		}
		if _, err := writer.write(&limited{1000}); err == nil {
			t.Errorf("%s: a checkpoint that could not be written brought no error", kind)
		}
		m.steps++
		if _, err := writer.write(io.Discard); err == nil {
			t.Errorf("%s: written of another state than at its beginning", kind)
		}
		m.steps--
	}
}

// TestResidualFitsItsState: a worker goes on with what it had set aside only if
// that is its own, and of the state that it restores.
func TestResidualFitsItsState(t *testing.T) {
	const n = 100
	m := newModel(1, 0, n)
	m.outerStep(m.optimum, nil)
	write := func(id policy.ID, m *model, stateless bool) []byte {
		var b bytes.Buffer
		s := snapshotter{run: "run", model: m, steps: m.steps, of: id, residual: m.target, stateless: stateless}
		if _, err := s.write(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	other := newModel(2, 0, n)
	other.outerStep(other.optimum, nil)
	for name, c := range map[string]struct {
		state, residual []byte
		want            bool
	}{
		"its own":           {write(1, m, false), write(0, m, true), true},
		"in its checkpoint": {write(0, m, false), nil, true},
		"another worker's":  {write(1, m, false), write(2, m, true), false},
		"of another state":  {write(1, m, false), write(0, other, true), false},
		"none":              {write(1, m, false), nil, false},
		"damaged":           {write(1, m, false), write(0, m, true)[:300], false},
	} {
		w := &workerDriver{
			cfg:   WorkerConfig{Run: "run", Log: slog.New(slog.DiscardHandler)},
			model: newModel(1, 0, n), machine: worker.New(0, 1), buffers: &buffers{residual: make([]float32, n)},
		}
		if c.residual != nil {
			w.cfg.Residual = bytes.NewReader(c.residual)
		}
		if err := w.restore(bytes.NewReader(c.state)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := slices.Equal(w.buffers.residual, m.target); got != c.want {
			t.Errorf("%s: taken over: %v, want %v", name, got, c.want)
		}
	}
	w := &workerDriver{cfg: WorkerConfig{Run: "run"}, model: newModel(1, 0, n), machine: worker.New(0, 1), buffers: &buffers{}}
	if err := w.restore(bytes.NewReader(write(0, m, true))); err == nil {
		t.Error("a worker began from a residual alone")
	}
}

type limited struct{ left int }

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func FuzzReadCheckpoint(f *testing.F) {
	m := newModel(1, 0, 8)
	m.outerStep(m.optimum, nil)
	var b bytes.Buffer
	if _, err := checkpointOf(m).write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:40])
	f.Add([]byte(`{"format":1,"outer_steps":1,"parameters":1073741824}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, s, err := readCheckpoint(bytes.NewReader(b))
		if err == nil && !c.Stateless && (s.hash() != c.Hash || len(s.outer) != c.Parameters || len(s.momentum) != c.Parameters) {
			t.Errorf("accepted %+v", c)
		}
	})
}

// TestSessionSaysEverythingOnce over lines that break at any moment.
func TestSessionSaysEverythingOnce(t *testing.T) {
	for lost := range 6 {
		var said, heard session
		for i := range 5 {
			said.say(message{Type: msgArrive, Round: i + 1})
		}
		var rounds []int
		hear := func(all []message) {
			for _, m := range all {
				if fresh, ok := heard.accept(m); !ok {
					t.Fatalf("message %d is missing", m.Seq-1)
				} else if fresh {
					rounds = append(rounds, m.Round)
				}
			}
		}
		hear(said.kept[:lost]) // the line breaks
		hear(said.kept)        // the other end did not know how far it had got
		if fmt.Sprint(rounds) != "[1 2 3 4 5]" {
			t.Errorf("broken after %d: heard %v", lost, rounds)
		}
		said.accept(message{Ack: heard.heard})
		if len(said.kept) != 0 {
			t.Errorf("still keeps %v", said.kept)
		}
	}
	var s session
	if _, ok := s.accept(message{Seq: 2}); ok {
		t.Error("a gap was not noticed")
	}
}

// TestCoordinatorDies in the middle of a reduction, and again as soon as it is
// back, for longer than a silent worker is borne with: meanwhile one worker
// leaves and another joins.
func TestCoordinatorDies(t *testing.T) {
	for i, policyName := range []string{"baseline", "baseline", "straggler", "straggler"} {
		leaves := i%2 == 0
		t.Run(fmt.Sprintf("%s, leaves %v", policyName, leaves), func(t *testing.T) {
			err := memnet.Bubble(t, func(t *testing.T) {
				s := worldScenario(t, 5)
				s.Workers[4].JoinAt = 9000
				w := newWorld(t, s)
				crashed := 0
				w.onEvent = func(e runlog.Event) {
					switch {
					case e.Type == runlog.ReduceStart && e.Round == 2 && crashed == 0:
						crashed++
						w.crashCoordinator(12_000, true)
						if leaves {
							w.at(w.now()+2000, func() { w.command(2, Command{Op: OpLeave}) })
						}
					case e.Type == runlog.CoordinatorBack && crashed == 1:
						crashed++
						w.crashCoordinator(3000, false)
					}
				}
				sum, events := w.play(policyName, time.Hour)
				if !sum.Complete || len(w.failed) > 0 {
					t.Fatalf("complete %v, %v\n%s", sum.Complete, w.failed, w.logs.String())
				}
				if err := checkLineage(s, events); err != nil {
					t.Error(err)
				}
				left := fmt.Sprint(sum.Evicted) == "[]"
				if leaves {
					left = len(sum.Evicted) == 1 && sum.Evicted[0].ID == 2 && sum.Evicted[0].Reason == policy.RuleLeave
				} else if second := sum.Rounds[1]; len(second.Participants) != 4 || slices.ContainsFunc(events, func(e runlog.Event) bool { return e.Type == runlog.ReduceAbort }) {
					t.Errorf("the reduction of round 2 was not left alone: %+v", second)
				}
				if !left {
					t.Errorf("evicted %+v; worker 2 leaves: %v", sum.Evicted, leaves)
				}
				// A joiner begins the running round when the others are almost done.
				if slices.ContainsFunc(sum.Sidelined, func(m runlog.Membership) bool { return m.ID != 4 }) {
					t.Errorf("sidelined %+v", sum.Sidelined)
				}
				joined := false
				for _, r := range sum.Rounds {
					joined = joined || slices.Contains(r.Participants, 4)
				}
				if !joined {
					t.Errorf("the joiner of the outage took part in no round: %+v", sum.Rounds)
				}
				if len(sum.Outages) != 2 || sum.Outages[0].Length == nil || *sum.Outages[0].Length < 12_000 || *sum.Outages[0].Length > 13_000 {
					t.Errorf("outages %+v, want two, the first of 12,000 µs", sum.Outages)
				}
				seq := 0
				for _, e := range events {
					if seq = max(seq, e.Seq); e.Seq > 0 && e.Seq != seq {
						t.Errorf("event %d was reported after %d", e.Seq, seq)
					}
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// BenchmarkJournal is what a heartbeat costs the coordinator on its way into
// the journal, and BenchmarkReplay on its way back.
func BenchmarkJournal(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "journal"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if err := record(f, entry{T: 123_456, ID: 3, Msg: &message{Type: msgHeartbeat}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	header := journalHeader{Journal: journalVersion}
	line := describe(entry{T: 123_456, ID: 3, Msg: &message{Type: msgHeartbeat}}) + "\n"
	b.SetBytes(int64(len(line)))
	j := &journalOf{memJournal: &memJournal{data: []byte(describe(header) + "\n" + strings.Repeat(line, b.N))}}
	b.ResetTimer()
	if err := replay(j, header, func(entry) {}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCheckpoint is what a checkpoint of a million parameters costs the
// worker that makes it, apart from the writing.
func BenchmarkCheckpoint(b *testing.B) {
	m := newModel(1, 0, 1_000_000)
	b.SetBytes(8_000_000)
	for b.Loop() {
		if _, err := checkpointOf(m).write(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
