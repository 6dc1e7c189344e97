//go:build linux

package monitor

import (
	"os"
	"slices"
	"testing"
	"time"

	"testbed/policy"
	"testbed/record"
)

// TestQueueLog keeps the most of every 20 ms, where that changes.
func TestQueueLog(t *testing.T) {
	dir := record.Dir(t.TempDir())
	begin := time.Now()
	l, err := NewQueueLog(dir, []string{"coordinator", "w0"}, func(t time.Time) policy.Time { return policy.Time(t.Sub(begin).Milliseconds()) })
	if err != nil {
		t.Fatal(err)
	}
	for k, up := range []uint64{0, 0, 0, 0, 0, 5, 9, 2, 0, 0, 9, 9, 1, 3, 4, 0, 0, 0, 0, 0} {
		at := begin.Add(time.Duration(k) * 5 * time.Millisecond)
		l.saw(0, at, 0, 0)
		l.saw(1, at, up, 2*up)
	}
	var none *QueueLog
	none.saw(0, begin, 1, 1)
	if lost, err := l.Close(); err != nil || lost != 0 {
		t.Fatalf("%d lost, %v", lost, err)
	}
	if lost, err := none.Close(); err != nil || lost != 0 {
		t.Errorf("a nil log: %d lost, %v", lost, err)
	}
	f, err := os.Open(dir.Path(record.QueuesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := record.ReadQueues(f)
	want := []record.Queue{{T: 25, Node: "w0", Up: 9, Down: 18}, {T: 75, Node: "w0"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestQueuesOfAnotherHost come into the leader's file by its clock, and not from
// before it began.
func TestQueuesOfAnotherHost(t *testing.T) {
	dir := record.Dir(t.TempDir())
	begin := time.Now()
	l, err := NewQueueLog(dir, nil, func(t time.Time) policy.Time { return policy.Time(t.Sub(begin).Milliseconds()) })
	if err != nil {
		t.Fatal(err)
	}
	const ahead = 1000 * time.Second // of the other clock
	theirs := NewQueues([]string{"w1"})
	for at := -time.Second; at <= time.Second; at += queueTick / 2 {
		theirs.saw(0, begin.Add(ahead+at), uint64(at/time.Millisecond/500+10), 0)
	}
	queues, lost := theirs.Take()
	l.Enter(queues, lost+3, -ahead)
	if queues, lost := theirs.Take(); queues != nil || lost != 0 {
		t.Errorf("taken twice: %v, %d", queues, lost)
	}
	if lost, err := l.Close(); err != nil || lost != 3 {
		t.Errorf("%d lost, %v", lost, err)
	}
	f, err := os.Open(dir.Path(record.QueuesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := record.ReadQueues(f)
	if err != nil || len(got) != 2 || got[0].Up != 11 || got[1].Up != 12 || got[0].T < 250 || got[0].T > 750 || got[1].Node != "w1" {
		t.Errorf("%+v, %v", got, err)
	}
}
