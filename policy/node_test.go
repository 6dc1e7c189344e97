package policy

import "testing"

func TestParseNode(t *testing.T) {
	for _, id := range []ID{0, 7, 10, 1023, 1024, 999_999_999} {
		if got, ok := ParseNode(id.Node()); !ok || got != id {
			t.Errorf("%s is parsed as %d, %v", id.Node(), got, ok)
		}
	}
	for _, name := range []string{"", "w", "w01", "w-1", "w1x", "x1", "W1", " w1", CoordinatorNode, "store", "w9999999999"} {
		if id, ok := ParseNode(name); ok || id != -1 {
			t.Errorf("%q is parsed as %d, %v", name, id, ok)
		}
	}
}
