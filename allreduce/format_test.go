package allreduce

import (
	"strings"
	"testing"
)

func TestFormatCheck(t *testing.T) {
	for f, wrong := range map[Format]string{
		DefaultFormat: "", {4, 16}: "", {16, 1024}: "", {32, 4096}: "",
		{}: "bits is 0:", {24, 1024}: "bits is 24:", {2, 16}: "bits is 2:", {-8, 16}: "bits is -8:",
		{8, 0}: "block is 0:", {4, -16}: "block is -16:", {8, 8}: "block is 8:", {32, 1000}: "block is 1000:", {8, 8192}: "block is 8192:",
	} {
		if err := f.Check(); (err == nil) != (wrong == "") || err != nil && !strings.HasPrefix(err.Error(), wrong) {
			t.Errorf("%+v: %v, want %q", f, err, wrong)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		format          Format
		n               int
		scales, encoded int
		codes, exact    bool
		name            string
	}{
		{Format{8, 16}, 0, 0, 0, true, false, "int8 in blocks of 16"},
		{Format{8, 16}, 17, 8, 25, true, false, "int8 in blocks of 16"},
		{Format{4, 1024}, 1025, 8, 521, true, false, "int4 in blocks of 1024"},
		{Format{16, 16}, 17, 0, 34, false, false, "bfloat16"},
		{Format{32, 16}, 17, 0, 68, false, true, "float32"},
	} {
		f := c.format
		if f.ScalesLen(c.n) != c.scales || f.EncodedLen(c.n) != c.encoded || f.HasCodes() != c.codes || f.Exact() != c.exact || f.Name() != c.name {
			t.Errorf("%d values as %q: %d bytes of scales, %d in all, codes %t, exact %t", c.n, f.Name(), f.ScalesLen(c.n), f.EncodedLen(c.n), f.HasCodes(), f.Exact())
		}
	}
}
