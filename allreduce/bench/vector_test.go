package bench

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// npy is a file of that version, header and data.
func npy(version byte, header string, data []byte) []byte {
	b := append([]byte("\x93NUMPY"), version, 0)
	header += strings.Repeat(" ", 63-(len(header)+12)%64) + "\n"
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return append(append(b, header...), data...)
}

func floats32(values ...float32) (b []byte) {
	for _, x := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func floats64(values ...float64) (b []byte) {
	for _, x := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

func TestReadVector(t *testing.T) {
	f4, three := "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", floats32(1, -2, 0.5)
	for name, test := range map[string]struct {
		file  string
		bytes []byte
		says  string // empty: 1, -2, 0.5
	}{
		"version 1":         {"a.npy", npy(1, f4, three), ""},
		"version 2":         {"a.npy", npy(2, f4, three), ""},
		"version 3":         {"a.npy", npy(3, f4, three), ""},
		"double":            {"a.npy", npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", floats64(1, -2, 0.5)), ""},
		"another order":     {"a.npy", npy(1, `{"shape": (1, 3), "fortran_order": False, "descr": "<f4"}`, three), ""},
		"one dimension":     {"a.npy", npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }", three), ""},
		"raw":               {"a.raw", three, ""},
		"half":              {"a.npy", npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (6,), }", three), `a.npy: the dtype is "<f2"; only <f4 and <f8 are supported: save the array with numpy.save(file, a.astype('<f4'))`},
		"big-endian":        {"a.npy", npy(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", three), `dtype is ">f4"`},
		"records":           {"a.npy", npy(1, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }", three), `dtype is "[('x', '<f4')]"`},
		"Fortran order":     {"a.npy", npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 1), }", three), "numpy.ascontiguousarray"},
		"too short":         {"a.npy", npy(1, f4, three[:11]), "has 11 bytes of values"},
		"too long":          {"a.npy", npy(1, f4, append(three, 0)), "has 13 bytes of values"},
		"beyond all bounds": {"a.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", three), "its shape needs"},
		"no number":         {"a.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", three), "is not a number, or is too large"},
		"nothing":           {"a.npy", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", nil), "contains no values"},
		"version 4":         {"a.npy", npy(4, f4, three), "version 4"},
		"no header":         {"a.npy", npy(1, "{}", three), "lacks descr"},
		"cut header":        {"a.npy", npy(1, f4, nil)[:40], "ends within its header"},
		"another file":      {"a.npy", three, "is not a .npy file"},
		"NaN":               {"a.raw", floats32(1, float32(math.NaN())), "a.raw: value 1 is NaN"},
		"too large":         {"a.npy", npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", floats64(1e300)), "value 0 is +Inf"},
		"ragged":            {"a.raw", three[:7], "7 bytes, which is not a multiple of 4"},
		"another kind":      {"a.csv", three, "must end in .npy or .raw"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), test.file)
			if err := os.WriteFile(file, test.bytes, 0o600); err != nil {
				t.Fatal(err)
			}
			values, err := ReadVector(file)
			if test.says == "" {
				if err != nil || !slices.Equal(values, []float32{1, -2, 0.5}) {
					t.Errorf("%v, %v", values, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), test.says) || !strings.HasPrefix(err.Error(), file) {
				t.Errorf("want an error about %q, got %v", test.says, err)
			}
		})
	}
	if _, err := ReadVector(filepath.Join(t.TempDir(), "none.npy")); err == nil {
		t.Error("a file that is not there is read")
	}
}

func FuzzParseNPY(f *testing.F) {
	f.Add(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", floats32(1, -2, 0.5)))
	f.Add(npy(2, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1), }", floats64(1, 0.5)))
	f.Add(npy(3, "{'descr': '<f8', 'fortran_order': True, 'shape': (), }", floats64(1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		values, err := parseNPY(b)
		if err != nil {
			return
		}
		if len(values) == 0 || 4*len(values) > len(b) {
			t.Fatalf("%d values of %d bytes", len(values), len(b))
		}
		for i, x := range values {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("value %d is %v", i, x)
			}
		}
	})
}
