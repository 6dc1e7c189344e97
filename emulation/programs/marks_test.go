//go:build linux

package programs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestParseMark(t *testing.T) {
	for line, want := range map[string]string{
		`{"type": "step", "round": 3}`: "step map[round:3]",
		`{"type": "over"}`:             "over map[]",
	} {
		m, err := ParseMark([]byte(line), "w1")
		if got := fmt.Sprint(m.Type, " ", m.Fields); err != nil || got != want || m.Node != "w1" {
			t.Errorf("%s: %s, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "[1]", "null", "3", `{"type": 3}`, `{"round": 3}`, `{"type": ""}`} {
		if m, err := ParseMark([]byte(line), "w1"); err == nil {
			t.Errorf("%s: %+v, and no error", line, m)
		}
	}
}

func TestParseFields(t *testing.T) {
	got, err := ParseFields([]string{"round=3", "who=me", `all=[1,"x"]`, "empty="})
	if text := fmt.Sprint(got); err != nil || text != "map[all:[1 x] empty: round:3 who:me]" {
		t.Errorf("%s, %v", text, err)
	}
	for arg, want := range map[string]string{"round": "write each field as NAME=VALUE", "=3": "write each field as NAME=VALUE", "type=x": "leave this field out"} {
		if got, err := ParseFields([]string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", arg, got, err, want)
		}
	}
}

func TestClock(t *testing.T) {
	c := Clock{Rule: ClockTraffic}
	if c.Carried("w0") {
		t.Error("a clock has started before the programs")
	}
	if c.Begin() || !c.Carried("w1") || c.Carried("w2") || c.By != "the first byte between workers, from w1" {
		t.Errorf("%+v", c)
	}
	if starts, objection := c.Mark("w2"); starts || objection == "" {
		t.Error("a mark in vain has no objection")
	}
	if _, objection := c.Mark("w3"); objection != "" {
		t.Error("it has a second one")
	}
	c = Clock{Rule: ClockMark}
	if c.Begin() || c.Carried("w1") {
		t.Error("a clock has started without its mark")
	}
	if starts, objection := c.Mark("w1"); !starts || objection != "" {
		t.Error("a mark does not start the clock")
	}
	if starts, objection := c.Mark("w2"); starts || objection != "" {
		t.Error("a second mark is an error")
	}
	if c = (Clock{Rule: ClockCommand}); !c.Begin() {
		t.Error("the command does not start the clock")
	}
}

func TestSentTo(t *testing.T) {
	to := []netip.Addr{netip.MustParseAddr("10.0.0.3")}
	packet := []byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 3}
	if !sentTo(packet, to) || sentTo(packet[:19], to) {
		t.Error("of an IPv4 packet")
	}
	packet[19] = 4
	if sentTo(packet, to) {
		t.Error("of one for another node")
	}
	packet[19], packet[0] = 3, 0x60
	if sentTo(packet, to) {
		t.Error("of an IPv6 packet")
	}
}
