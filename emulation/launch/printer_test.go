//go:build linux

package launch

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestPrinterKeepsSoMuch: of a node that writes for ever, so much is kept, and a line says
// so. Other nodes are not concerned, and the last line is known.
func TestPrinterKeepsSoMuch(t *testing.T) {
	dir := t.TempDir()
	var out, err bytes.Buffer
	taken := 0
	p, e := newPrinter([]string{"w0", "w1"}, dir, 2<<20, [2]bool{}, &out, &err, func(string) { taken++ }, func(err error) { t.Error(err) })
	if e != nil {
		t.Fatal(e)
	}
	line := []byte(strings.Repeat("y", 1023) + "\n")
	for range 100 {
		p.in <- piece{node: "w0", stream: 1, data: bytes.Repeat(line, 32)}
	}
	p.in <- piece{node: "w0", stream: 2, data: []byte("the end\n")}
	p.in <- piece{node: "w1", stream: 1, data: []byte("as ever\n")}
	p.in <- piece{node: "w0", ended: true}
	p.close()
	text, e := os.ReadFile(logOf(dir, "w0"))
	const said = "testbed: further output of w0 is not kept: there are more than 2 MiB\n"
	if e != nil || len(text) != 2<<20+1+len(said) || !strings.HasSuffix(string(text), "\n"+said) {
		t.Errorf("%v, %d bytes that end with %q", e, len(text), text[max(0, len(text)-100):])
	}
	if n := strings.Count(out.String(), "w0: y"); n != 2<<10 || !strings.HasSuffix(out.String(), "\nw1: as ever\n") || err.String() != said || taken != 102 {
		t.Errorf("%d lines, %q, %d pieces taken", n, &err, taken)
	}
	if got := p.nodes["w0"].cause; got != "the end" {
		t.Errorf("the last line is %q", got)
	}
}
