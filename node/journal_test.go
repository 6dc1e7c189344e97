package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
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
		if err := replayJournal(j, header, func(e entry) error { got = append(got, e); return nil }); err != nil {
			t.Fatalf("torn after %d bytes: %v", torn, err)
		}
		if len(got) != 2 || got[0].What != timerFired || got[1].Msg == nil || got[1].Msg.Round != 4 || got[1].ID != 3 {
			t.Fatalf("torn after %d bytes: read %+v", torn, got)
		}
		if err := appendLine(j, entry{T: 9, What: timerFired}); err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(j.Name()); string(text) != whole+`{"t_us":9,"what":"timer"}`+"\n" {
			t.Fatalf("torn after %d bytes: the next entry left\n%s", torn, text)
		}
	}
	empty := journalOnDisk(t, "")
	if err := replayJournal(empty, header, func(entry) error { t.Error("an entry of nothing"); return nil }); err != nil {
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
		if err := replayJournal(journalOnDisk(t, text), header, func(entry) error { return nil }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one about %s", err, name)
		}
	}
}

// TestSessionSaysEverythingOnce over lines that break at any moment.
func TestSessionSaysEverythingOnce(t *testing.T) {
	for lost := range 6 {
		var sender, receiver session
		for i := range 5 {
			sender.send(message{Type: msgArrive, Round: i + 1})
		}
		var rounds []int
		deliver := func(all []message) {
			for _, m := range all {
				if fresh, ok := receiver.accept(m); !ok {
					t.Fatalf("message %d is missing", m.Seq-1)
				} else if fresh {
					rounds = append(rounds, m.Round)
				}
			}
		}
		deliver(sender.unacked[:lost]) // the line breaks
		deliver(sender.unacked)        // the other end did not know how far it had got
		if fmt.Sprint(rounds) != "[1 2 3 4 5]" {
			t.Errorf("broken after %d: heard %v", lost, rounds)
		}
		sender.accept(message{Ack: receiver.received})
		if len(sender.unacked) != 0 {
			t.Errorf("still keeps %v", sender.unacked)
		}
	}
	var s session
	if _, ok := s.accept(message{Seq: 2}); ok {
		t.Error("a gap was not noticed")
	}
}

// TestCoordinatorDies in the middle of a reduction, and again as soon as it is
// back, for longer than the heartbeat time-out: meanwhile one worker
// leaves and another joins.
func TestCoordinatorDies(t *testing.T) {
	for i, policyName := range []string{"baseline", "baseline", "straggler", "straggler"} {
		leaves := i%2 == 0
		t.Run(fmt.Sprintf("%s, leaves %v", policyName, leaves), func(t *testing.T) {
			err := memnet.TryBubble(t, func(t *testing.T) {
				s := worldScenario(t, 5)
				s.Workers[4].JoinAt = 9000
				w := newWorld(t, s)
				crashed := 0
				w.onEvent = func(e record.Event) {
					switch {
					case e.Type == record.ReduceStart && e.Round == 2 && crashed == 0:
						crashed++
						w.crashCoordinator(12_000, true)
						if leaves {
							w.at(w.now()+2000, func() { w.command(2, Command{Op: OpLeave}) })
						}
					case e.Type == record.CoordinatorBack && crashed == 1:
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
				} else if second := sum.Rounds[1]; len(second.Participants) != 4 || slices.ContainsFunc(events, func(e record.Event) bool { return e.Type == record.ReduceAbort }) {
					t.Errorf("the reduction of round 2 was not left alone: %+v", second)
				}
				if !left {
					t.Errorf("evicted %+v; worker 2 leaves: %v", sum.Evicted, leaves)
				}
				// A joiner begins the running round when the others are almost done.
				if slices.ContainsFunc(sum.Sidelined, func(m record.Membership) bool { return m.ID != 4 }) {
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
		if err := appendLine(f, entry{T: 123_456, ID: 3, Msg: &message{Type: msgHeartbeat}}); err != nil {
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
	if err := replayJournal(j, header, func(entry) error { return nil }); err != nil {
		b.Fatal(err)
	}
}
