package convert_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/scenarios"
	"testbed/scenarios/convert"
)

// TestJSONOfAnyEncoderIsRead: a scenario that Python's, JavaScript's or Go's encoder has
// written, in whatever way, is the same one, and stays so as YAML.
func TestJSONOfAnyEncoderIsRead(t *testing.T) {
	const odd = "a/b \u0085\u00a0\u2028\u2029\ufeff\uffff\ufffe\x7f \U0001f600 <&> # : - \" \\ \t"
	s, err := scenarios.Load("mixed_gpus")
	if err != nil {
		t.Fatal(err)
	}
	s.Description = odd
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	var plain, indented, escaped bytes.Buffer
	if err := json.Compact(&plain, text); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, text, "\t", "\t"); err != nil {
		t.Fatal(err)
	}
	for _, r := range plain.String() { // as Python does without ensure_ascii=False
		switch {
		case r > 0xffff:
			r -= 0x10000
			escaped.WriteString(`\u` + hex(0xd800+r>>10) + `\u` + hex(0xdc00+r&0x3ff))
		case r > 126:
			escaped.WriteString(`\u` + hex(r))
		default:
			escaped.WriteRune(r)
		}
	}
	for name, written := range map[string]string{
		"Go": string(text), "compact": plain.String(), "indented": indented.String(), "Python": escaped.String(),
		"slashes":               strings.ReplaceAll(plain.String(), "/", `\/`),
		"colons on other lines": strings.ReplaceAll(plain.String(), `":`, "\"\n:\r\n"),
		"with a mark":           "\ufeff" + plain.String(),
	} {
		got, err := scenarios.Parse(s.Name+".json", []byte(written))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if again, err := got.Text(); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%s: another scenario, %v:\n%s", name, err, cmp.Diff(string(text), string(again)))
		}
		y, _, err := convert.Text(got, convert.YAML)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := scenarios.Parse(s.Name+".yaml", y); err != nil || got.Description != odd {
			t.Errorf("%s, as YAML: %v\n%s", name, err, y)
		}
	}
	if _, err := scenarios.Parse("x.json", []byte("{\n \"seed\": 1,\n}")); err == nil || !strings.HasPrefix(err.Error(), "x.json:3: ") {
		t.Errorf("a comma too many: %v", err)
	}
}

func hex(r rune) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15]})
}
