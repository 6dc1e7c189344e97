//go:build linux

package cluster

import (
	"io"
	"strings"
	"testing"
)

// TestReadTokenTakesALine and no more: what follows is the program's that runs on the
// network.
func TestReadTokenTakesALine(t *testing.T) {
	in := strings.NewReader(" 0123456789abcdef\nfor the program\n")
	token, err := readToken(in)
	if rest, _ := io.ReadAll(in); err != nil || token != "0123456789abcdef" || string(rest) != "for the program\n" {
		t.Errorf("token %q, %v, and %q is left", token, err, rest)
	}
	if token, err := readToken(strings.NewReader("0123")); err != nil || token != "0123" {
		t.Errorf("without an end of line: %q, %v", token, err)
	}
	for _, none := range []string{"", "\n0123"} {
		if _, err := readToken(strings.NewReader(none)); err == nil {
			t.Errorf("%q has a token", none)
		}
	}
}
