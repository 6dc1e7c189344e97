//go:build linux

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/kernel"
	"testbed/shaping/userlink"
)

func TestParseStat(t *testing.T) {
	total, steal, softirq := parseStat(strings.NewReader("cpu  100 20 30 400 5 0 7 11 99 99\ncpu0 1 2 3\n"))
	if total != 573 || steal != 11 || softirq != 7 {
		t.Errorf("total %d, steal %d, softirq %d; want 573, 11, 7 (guest time is in user time)", total, steal, softirq)
	}
	if total, _, _ := parseStat(strings.NewReader("")); total != 0 {
		t.Errorf("nothing sums up to %d", total)
	}
}

func TestEnvironmentOfThisMachine(t *testing.T) {
	e := environment([]string{"testbed", "run"})
	if e.Began == "" || e.Go == "" || e.Kernel == "" || e.Processors < 1 || e.MemoryBytes < 1<<20 || len(e.Command) != 2 {
		t.Errorf("%+v", e)
	}
}

func TestRunnableWaitOfThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("in CI this test may not be skipped: %v", err)
		}
		t.Skipf("the kernel does not count how long processes wait for a processor: %v", err)
	}
	if runnableWait(os.Getpid()) <= 0 {
		t.Error("no thread of this test ever waited for a processor")
	}
	if d := runnableWait(-1); d != 0 {
		t.Errorf("a process that does not exist waited %v", d)
	}
}

// TestMonitorSplitsTheRouterByRounds: each round has what the router did since
// the one before, although answers come late.
func TestMonitorSplitsTheRouterByRounds(t *testing.T) {
	const ms = time.Millisecond
	var m monitor
	waited := time.Duration(0)
	m.begin(2, "ring", func() map[string]time.Duration { waited += time.Hour; return map[string]time.Duration{"w0": waited} })
	m.timer(3 * ms)
	m.injected(6 * ms)
	m.injected(2 * ms)
	m.endRound(1, 4)
	m.endRound(2, 3)
	m.routed(&userlink.Stats{Packets: 100, Overflow: 2, Recent: userlink.Lateness{LatenessP50: 1 * ms, LatenessP99: 4 * ms, LatenessMax: 5 * ms}})
	m.routed(&userlink.Stats{Packets: 150, Overflow: 2, SendDrops: 1, Recent: userlink.Lateness{LatenessP99: 2 * ms, LatenessMax: 3 * ms}})
	m.routed(&userlink.Stats{Packets: 999}) // the last count is of no round
	all := m.conclude(&userlink.Stats{Packets: 160, Overflow: 3, Lateness: userlink.Lateness{LatenessP99: time.Millisecond}}, 4)
	one, two := m.rounds[0], m.rounds[1]
	if one.Measured.RouterPackets != 100 || one.Measured.UnplannedDrops != 2 || one.Measured.TimerLatenessP99 != 3*ms || one.Measured.Hops != 6 ||
		one.Measured.RouterLatenessP50 != 1*ms || one.Measured.RouterLatenessP99 != 4*ms || one.RouterLatenessMax != 5*ms || one.Measured.InjectLateness != 6*ms {
		t.Errorf("round 1: %+v", one.Measured)
	}
	if two.Measured.RouterPackets != 50 || two.Measured.UnplannedDrops != 1 || two.Measured.TimerLatenessP99 != 0 || two.Measured.RouterLatenessP99 != 2*ms || two.RouterLatenessMax != 3*ms || two.Measured.InjectLateness != 0 {
		t.Errorf("round 2: %+v", two)
	}
	if all.UnplannedDrops != 7 || all.RouterPackets != 160 || all.Hops != 6 || all.InjectLateness != 6*ms || len(all.Rounds) != 2 {
		t.Errorf("run: %+v", all)
	}
	if f := all.judge(); f.Verdict != fidelity.Invalid { // an hour of waiting
		t.Errorf("verdict %+v", f)
	}
}

func TestNetemExcess(t *testing.T) {
	loss := shaping.Probability(0.1)
	plan, err := shaping.NewPlan(shaping.Spec{Pairs: []shaping.Pair{{From: "w0", To: "w1", Path: shaping.Path{Loss: &loss}}}}, []string{"w0", "w1", "w2"}, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		count kernel.QueueCount
		some  bool
	}{
		{"planned losses", kernel.QueueCount{Node: "w1", Down: true, Peer: "w0", Kind: "netem", Packets: 9000, Lost: 1050}, false},
		{"more than planned", kernel.QueueCount{Node: "w1", Down: true, Peer: "w0", Kind: "netem", Packets: 9000, Lost: 2000}, true},
		{"none planned", kernel.QueueCount{Node: "w0", Down: true, Peer: "w1", Kind: "netem", Packets: 9000, Lost: 1}, true},
		{"a shared queue", kernel.QueueCount{Node: "w0", Down: true, Kind: "netem", Packets: 9000, Lost: 3}, true},
		{"a rate's queue", kernel.QueueCount{Node: "w0", Peer: "w1", Kind: "bfifo", Packets: 9000, Lost: 500}, false},
	} {
		if got := netemExcess(plan, []kernel.QueueCount{c.count}); (got > 0) != c.some {
			t.Errorf("%s: excess %d", c.name, got)
		}
	}
}

func TestPcapWriter(t *testing.T) {
	var out bytes.Buffer
	w := newPcapWriter(&out, 24+2*(16+60))
	at := time.Unix(1700000000, 123456789)
	for range 4 {
		w.write(at, make([]byte, 60), 1514)
	}
	if err := w.flush(); err != nil || w.frames != 2 || w.beyond != 2 || out.Len() != 24+2*76 {
		t.Fatalf("%v; %d frames, %d beyond, %d bytes", err, w.frames, w.beyond, out.Len())
	}
	var words []uint32
	for b := out.Bytes(); len(b) >= 4 && len(words) < 10; b = b[4:] {
		words = append(words, binary.LittleEndian.Uint32(b))
	}
	want := []uint32{0xa1b23c4d, 4<<16 | 2, 0, 0, 65535, 1, 1700000000, 123456789, 60, 1514}
	for k := range want {
		if words[k] != want[k] {
			t.Errorf("word %d is %#x, want %#x", k, words[k], want[k])
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestPcapWriterTellsOfFailure(t *testing.T) {
	w := newPcapWriter(full{}, 1<<30)
	for range 1000 {
		w.write(time.Now(), make([]byte, 1514), 1514)
	}
	if err := w.flush(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
	var none *pcapWriter
	none.write(time.Now(), nil, 0)
	if err := none.flush(); err != nil {
		t.Errorf("a nil writer fails: %v", err)
	}
}

func TestHops(t *testing.T) {
	for _, test := range []struct {
		algorithm          string
		participants, want int
	}{{"ring", 1, 0}, {"ring", 4, 6}, {"direct", 1, 0}, {"direct", 8, 2}, {"hierarchical", 2, 2}, {"hierarchical", 8, 4}} {
		if got := hops(test.algorithm, test.participants); got != test.want {
			t.Errorf("%s with %d: %d hops, want %d", test.algorithm, test.participants, got, test.want)
		}
	}
}
