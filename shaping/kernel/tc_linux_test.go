package kernel

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// TestNetemOptionsReadBack: what is written for the kernel reads back as the
// line of the plan, also where this kernel has no netem to try it on.
func TestNetemOptionsReadBack(t *testing.T) {
	for _, path := range []shaping.PathPlan{
		{OneWayDelay: shaping.Duration(50 * time.Millisecond), Jitter: shaping.Duration(time.Millisecond), Loss: 0.01},
		{OneWayDelay: shaping.Duration(60 * time.Second), Loss: 1},
		{},
	} {
		l := leaf{limit: 650, netem: &netem{path: path, seed: 7}}
		wire := netemOptions(l).Serialize()
		length := binary.NativeEndian.Uint16(wire)
		if int(length) != len(wire) || binary.NativeEndian.Uint16(wire[2:]) != nl.TCA_OPTIONS {
			t.Fatalf("the attribute's header is %x", wire[:4])
		}
		got, err := qdisc{kind: "netem", options: wire[4:]}.describe()
		if err != nil || got != l.String() {
			t.Errorf("got %q, %v\nwant %q", got, err, l)
		}
		attrs, err := nl.ParseRouteAttr(wire[4+nl.SizeofTcNetemQopt:])
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint16][]byte{}
		for _, a := range attrs {
			seen[a.Attr.Type] = a.Value
		}
		if seed := binary.NativeEndian.Uint64(seen[tcaNetemSeed]); seed != 7 {
			t.Errorf("the seed is %d", seed)
		}
		// Jitter without a rate would reorder packets; a rate without jitter is a cost.
		if _, rate := seen[nl.TCA_NETEM_RATE64]; rate != (path.Jitter > 0) {
			t.Errorf("with a jitter of %v the keep-order rate is set: %v", path.Jitter, rate)
		}
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
