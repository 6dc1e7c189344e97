package kernel

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/internal/errs"
	"testbed/shaping"
)

// TestNetemOptionsReadBack: what is written for the kernel reads back as the
// line of the plan, also where this kernel has no netem to try it on.
func TestNetemOptionsReadBack(t *testing.T) {
	plan := planOf(t, 2, shaping.Spec{})
	for _, path := range []shaping.PathPlan{
		{OneWayDelay: shaping.Duration(50 * time.Millisecond), Jitter: shaping.Duration(time.Millisecond), Loss: 0.01},
		{OneWayDelay: shaping.Duration(60 * time.Second), Loss: 1},
		{Jitter: shaping.Duration(2 * time.Second), JitterDistribution: shaping.Pareto, Duplicate: 0.1, Reorder: 0.2, Corrupt: 0.3},
		{LossBurst: shaping.LossBurst{Enter: 0.01, Leave: 0.25, LossInside: 0.75, LossOutside: 0.001}},
		{LossBurst: shaping.LossBurst{Enter: 0.01, Leave: 0.25, LossInside: 1}, Duplicate: 0.5, Cut: true},
		{},
	} {
		plan.Paths[0][1] = path
		n := netemOf(plan, 0, 1)
		wire := n.options(650, true).Serialize()
		length := binary.NativeEndian.Uint16(wire)
		if int(length) != len(wire) || binary.NativeEndian.Uint16(wire[2:]) != nl.TCA_OPTIONS {
			t.Fatalf("the attribute's header is %x", wire[:4])
		}
		got, seeded, err := qdisc{kind: "netem", options: wire[4:]}.describe()
		if want := n.text(650, true); err != nil || !seeded || got != want {
			t.Errorf("got %q, %v\nwant %q", got, err, want)
		}
		attrs, err := nl.ParseRouteAttr(wire[4+nl.SizeofTcNetemQopt:])
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint16][]byte{}
		for _, a := range attrs {
			seen[a.Attr.Type] = a.Value
		}
		if table := seen[nl.TCA_NETEM_DELAY_DIST]; (path.Jitter > 0) != (len(table) == 8192) {
			t.Errorf("with a jitter of %v the distribution's table has %d bytes", path.Jitter, len(table))
		}
		if _, rate := seen[nl.TCA_NETEM_RATE64]; !rate {
			t.Error("without a rate packets would not keep their order")
		}
	}
}

func TestACutIsCertainInNetem(t *testing.T) {
	plan := planOf(t, 2, shaping.Spec{})
	plan.Paths[0][1] = shaping.PathPlan{Cut: true, Duplicate: 1, LossBurst: shaping.LossBurst{Enter: 0.1, Leave: 0.1, LossInside: 0.1}}
	if n := netemOf(plan, 0, 1); n.loss != 1<<32-1 || n.duplicate != 0 || n.burst != (burst{}) {
		t.Errorf("a cut became %+v", n)
	}
}

func TestUnsupportedSaysWhatToDo(t *testing.T) {
	err := asUnsupported(featureNetem, unix.ENOENT)
	var u *errs.UnsupportedError
	if !errors.As(err, &u) || u.Missing == "" || u.Fix == "" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("asUnsupported = %#v", err)
	}
	if err := asUnsupported(featureNetem, unix.EINVAL); !errors.Is(err, unix.EINVAL) {
		t.Errorf("an error of ours became %v", err)
	}
	all := Capabilities{{Feature: featureBridge, Err: unix.ENOENT}, {Feature: featureNetem, Err: unix.ENOENT}}
	if err := all.Supports(BackendUser); err != nil {
		t.Errorf("the user links need neither bridge nor netem, but %v", err)
	}
	if err := all.Supports(BackendNetem); err == nil {
		t.Error("netem links without netem are supported")
	}
	if err := all.Supports("tap"); err == nil {
		t.Error("a backend nobody knows is supported")
	}
}

// TestWhatANetemDropsIsLost, and what it dropped before it was exchanged, too;
// what the queue of a rate drops is dropped by plan.
func TestWhatANetemDropsIsLost(t *testing.T) {
	const class = 1<<16 | 2
	queues := []qdisc{
		{kind: "htb", handle: 1 << 16},
		{kind: "netem", handle: 0x12 << 16, parent: class, packets: 90, drops: 10},
		{kind: "bfifo", handle: 0x13 << 16, parent: class + 1, drops: 5},
	}
	d := device{past: map[uint32]qdisc{class: {packets: 1, drops: 4}}}
	n := Network{}
	got := n.count("w0", true, tree{}, d.counted(queues))
	want := []QueueCount{
		{Node: "w0", Down: true, Kind: "netem", Packets: 91, Lost: 14},
		{Node: "w0", Down: true, Kind: "bfifo", Drops: 5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHFSCReadsBack: what is written for the kernel reads back as the line of
// the plan, also where this kernel has no HFSC to try it on.
func TestHFSCReadsBack(t *testing.T) {
	for _, c := range []struct {
		minor       uint16
		rate, limit shaping.Rate
		want        string
	}{
		{1, 100e6, 100e6, "class 1:1 share 12500000 B/s limit 12500000 B/s"},
		{2, 32e9, 0, "class 1:2 share 4000000000 B/s"},
		{1, 40e9, 40e9, "class 1:1 share 4294967295 B/s limit 4294967295 B/s"}, // all that it counts
		{2, 1e12, 0, "class 1:2 share 4294967295 B/s"},
	} {
		text, err := hfscText(c.minor, hfscCurves(c.rate, c.limit).Serialize()[4:])
		if planned := hfsc.classLine(c.minor, c.rate, c.rate); err != nil || text != c.want || planned != c.want {
			t.Errorf("%q, %v; planned %q, want %q", text, err, planned, c.want)
		}
	}
	// A curve that is no straight line is nothing we make.
	bent := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	bent.AddRtAttr(nl.TCA_HFSC_USC, []byte{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
	if text, err := hfscText(1, bent.Serialize()[4:]); err != nil || text == hfsc.classLine(1, 8, 8) {
		t.Errorf("a bent curve reads as %q, %v", text, err)
	}
}
