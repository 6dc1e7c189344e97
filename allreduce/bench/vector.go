package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// ReadVector reads a file of values: .npy, versions 1 to 3, of little-endian
// float32 or float64 in C order and any shape; or .raw, little-endian float32
// one after the other. Values are finite float32 numbers. An error names the
// file, the problem and the fix.
func ReadVector(name string) ([]float32, error) {
	parse := parseRaw
	switch filepath.Ext(name) {
	case ".npy":
		parse = parseNPY
	case ".raw":
	default:
		return nil, fmt.Errorf("%s: the name of a file of values must end in .npy or .raw", name)
	}
	if info, err := os.Stat(name); err == nil && info.Size() > maxVectorBytes {
		return nil, fmt.Errorf("%s has %d bytes, above the limit of %d: shorten the file", name, info.Size(), int64(maxVectorBytes))
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	values, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return values, nil
}

// maxVectorBytes is the longest readable file: 2^29 float64.
const maxVectorBytes = 4<<30 + 1<<20

// The fields of a .npy file's header, which is the text of a Python dictionary.
var (
	npyType    = regexp.MustCompile(`['"]descr['"]\s*:\s*(?:['"]([^'"]*)['"]|(\[[^\]]*\]?))`)
	npyFortran = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	npyShape   = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([0-9, ]*)\)`)
)

// parseNPY reads the format of numpy.save (numpy's documentation,
// numpy.lib.format).
func parseNPY(b []byte) ([]float32, error) {
	const magic = "\x93NUMPY"
	if len(b) < 12 || string(b[:6]) != magic {
		return nil, errors.New("the file is not a .npy file: write it with numpy.save, or give a file of plain float32 values the extension .raw")
	}
	var header, length uint64
	switch version := b[6]; version {
	case 1:
		header, length = 10, uint64(binary.LittleEndian.Uint16(b[8:]))
	case 2, 3:
		header, length = 12, uint64(binary.LittleEndian.Uint32(b[8:]))
	default:
		return nil, fmt.Errorf("the .npy format of the file has version %d; only versions 1 to 3 are supported: write the file with numpy.save", version)
	}
	if header+length > uint64(len(b)) {
		return nil, errors.New("the file ends within its header: write the file again")
	}
	text, data := string(b[header:header+length]), b[header+length:]
	descr, order, shape := npyType.FindStringSubmatch(text), npyFortran.FindStringSubmatch(text), npyShape.FindStringSubmatch(text)
	if descr == nil || order == nil || shape == nil {
		return nil, errors.New("the header lacks descr, fortran_order or shape: write the file with numpy.save")
	}
	size := 4
	switch dtype := descr[1] + descr[2]; dtype {
	case "<f4":
	case "<f8":
		size = 8
	default:
		return nil, fmt.Errorf("the dtype is %q; only <f4 and <f8 are supported: save the array with numpy.save(file, a.astype('<f4'))", dtype)
	}
	n, dimensions, err := npyLength(shape[1], len(data)/size)
	if err != nil {
		return nil, err
	}
	if order[1] == "True" && dimensions > 1 {
		return nil, errors.New("the values are in Fortran order; only C order is supported: save the array with numpy.save(file, numpy.ascontiguousarray(a))")
	}
	if len(data) != n*size {
		return nil, fmt.Errorf("the file has %d bytes of values, but its shape needs %d × %d: write the file again", len(data), n, size)
	}
	return toFloat32(data, size)
}

// npyLength returns the number of values of a shape, and its dimensions. It
// counts to just above most.
func npyLength(shape string, most int) (n, dimensions int, err error) {
	n = 1
	for _, field := range strings.Split(shape, ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue // after the last comma
		}
		d, err := strconv.Atoi(field)
		if err != nil {
			return 0, 0, fmt.Errorf("the dimension %q of the shape is not a number, or is too large: write the file with numpy.save", field)
		}
		dimensions++
		if d > 0 && n > most/d {
			n, d = most+1, 1
		}
		n *= d
	}
	return n, dimensions, nil
}

func parseRaw(b []byte) ([]float32, error) {
	if len(b)%floatBytes != 0 {
		return nil, fmt.Errorf("the file has %d bytes, which is not a multiple of 4, the size of a float32: write the file with a.astype('<f4').tofile(file)", len(b))
	}
	return toFloat32(b, floatBytes)
}

// toFloat32 reads values of size bytes, 4 or 8.
func toFloat32(b []byte, size int) ([]float32, error) {
	values := make([]float32, len(b)/size)
	if len(values) == 0 {
		return nil, errors.New("the file contains no values: write at least one value")
	}
	for i := range values {
		if size == 8 {
			values[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
		} else {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		if x := float64(values[i]); math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("value %d is %v as float32; only finite numbers can be compared: remove the value", i, x)
		}
	}
	return values, nil
}
