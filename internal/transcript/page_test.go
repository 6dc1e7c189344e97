package transcript

import (
	"strings"
	"testing"
)

const somePage = "# A page\n\nWrite this to\n`a.yaml`:\n\n```yaml a.yaml\nseed: 1\n```\n\nand\n\n```console measured\n$ one \\\n    two\n3 µs\n…\n$ three\n```\n"

func TestBlocks(t *testing.T) {
	blocks, err := Blocks(somePage)
	if err != nil || len(blocks) != 2 {
		t.Fatalf("%v, %v", blocks, err)
	}
	if b := blocks[0]; b.File() != "a.yaml" || b.Text != "seed: 1\n" || b.Line != 6 || !strings.Contains(b.Above, "`a.yaml`:") || b.Measured() {
		t.Errorf("%+v", b)
	}
	commands, err := blocks[1].Commands()
	if err != nil || len(commands) != 2 || !blocks[1].Measured() || blocks[1].Fails() || blocks[1].File() != "" {
		t.Fatalf("%+v, %v", commands, err)
	}
	if c := commands[0]; c != (Command{13, "one \\\n    two", "3 µs\n…\n"}) {
		t.Errorf("%+v", c)
	}
	if c := commands[1]; c != (Command{17, "three", ""}) {
		t.Errorf("%+v", c)
	}
	if _, err := Blocks("```sh\n"); err == nil {
		t.Error("a block without an end is none")
	}
	if _, err := (Block{Text: "no command\n"}).Commands(); err == nil {
		t.Error("output without a command")
	}
}

func TestMatch(t *testing.T) {
	const got = "wall-clock   92,050 µs\nspeed-up     +4.59×   \n\nrecord: runs/x-17\n"
	for _, c := range []struct {
		want     string
		measured bool
		match    bool
	}{
		{got, false, true},
		{"wall-clock   92,050 µs\n…\n", false, true},
		{"…\nrecord: …\n", false, true},
		{"…\nspeed-up     +4.59×\n…\n", false, true},
		{"…\nspeed-up     -3.6×\n…\n", false, false},
		{"…\nspeed-up -3.6×\n…\n", true, true},
		{"…\nspeed-up -3.6\n…\n", true, false},
		{"…\nspeed-up – ×\n…\n", true, false},
		{"wall-clock   92,050 µs\n", false, false},
		{"wall.clock   92,050 µs\n…\n", false, false},
		{"…\nrecord: …\nmore\n", false, false},
	} {
		if err := Match(got, c.want, c.measured); (err == nil) != c.match {
			t.Errorf("%q, measured %v: %v", c.want, c.measured, err)
		}
	}
}
