package kernel

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

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
	var u *UnsupportedError
	if !errors.As(err, &u) || u.Feature == "" || u.Mend == "" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("asUnsupported = %#v", err)
	}
	if err := asUnsupported(featureNetem, unix.EINVAL); err != unix.EINVAL {
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

// TestAQueueBehindNetemIsPartOfItsLeaf: drops behind netem are also netem's,
// and stay so when either of the two is gone.
func TestAQueueBehindNetemIsPartOfItsLeaf(t *testing.T) {
	const class, front = 1<<16 | 2, 0x12 << 16
	queues := []qdisc{
		{kind: "htb", handle: 1 << 16},
		{kind: "netem", handle: front, parent: class, packets: 90, drops: 10},
		{kind: "bfifo", handle: 0x8001 << 16, parent: front | 1, packets: 90, drops: 7},
		{kind: "bfifo", handle: 0x13 << 16, parent: class + 1, drops: 5},
	}
	d := device{past: map[uint32]qdisc{class: {packets: 1, drops: 4, behind: 2}}}
	n := Network{}
	got := n.count("w0", true, tree{}, d.counted(queues))
	want := []QueueCount{
		{Node: "w0", Down: true, Kind: "netem", Packets: 91, Drops: 9, Lost: 5},
		{Node: "w0", Down: true, Kind: "bfifo", Drops: 5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
