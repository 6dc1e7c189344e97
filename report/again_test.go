package report

import "testing"

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"runs/a-1.yaml": "runs/a-1.yaml", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
	} {
		if got := quote(word); got != want {
			t.Errorf("quote(%q) = %s, want %s", word, got, want)
		}
	}
}
