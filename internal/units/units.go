// Package units reads numbers with a unit, such as 30ms or 64MiB, for fields
// with a unit of their own.
package units

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Unit is the unit of a field.
type Unit string

// The units of fields.
const (
	Microsecond Unit = "µs"
	Millisecond Unit = "ms"
	Second      Unit = "s"
	Byte        Unit = "B"
	Megabyte    Unit = "MB"
	Gigabyte    Unit = "GB"
)

// times are the units of times, in nanoseconds.
var times = map[string]int64{
	"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "min": 60e9, "h": 3600e9,
}

// sizes are the units of sizes, in bytes.
var sizes = map[string]int64{
	"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// of are the units that a field may be written in, their kind and examples, and
// the field's own unit in the smallest of them.
func (u Unit) of() (all map[string]int64, kind, examples string, own int64) {
	if own, ok := sizes[string(u)]; ok {
		return sizes, "size", "100MB or 64MiB", own
	}
	return times, "time", "30ms, 1.5s or 2m", times[string(u)]
}

// short is a unit in ASCII.
func (u Unit) short() string { return strings.Replace(string(u), "µ", "u", 1) }

var (
	part      = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)\s*(\p{L}+)\s*`)
	clock     = regexp.MustCompile(`^([0-9]+):([0-9]{2})$`)
	comma     = regexp.MustCompile(`^[0-9]+,[0-9]+\s*\p{L}+$`)
	beginning = regexp.MustCompile(`^[-+]?\.?[0-9]`)
)

// longest is the longest accepted text.
const longest = 40

// Plain converts a number with a unit to the field's unit, in decimals. It
// returns "" for a text without a unit, which the caller has to check. If the
// field has whole units and a fraction would be lost, or if the text is
// ambiguous, the error says how to write it.
func (u Unit) Plain(text string, whole bool) (number string, err error) {
	t := strings.TrimSpace(text)
	if Bare(t) || len(t) > longest {
		return "", nil
	}
	all, kind, examples, own := u.of()
	if m := clock.FindStringSubmatch(t); m != nil && kind == "time" {
		return "", fmt.Errorf("%q can be read in two ways; write %sh%sm or %sm%ss", text, m[1], m[2], m[1], m[2])
	}
	if comma.MatchString(t) {
		return "", fmt.Errorf("%q has a comma in its number; write %s", text, strings.Replace(t, ",", ".", 1))
	}
	rest := strings.TrimLeft(t, "+-")
	sum := new(big.Rat)
	for rest != "" {
		m := part.FindStringSubmatch(rest)
		if m == nil {
			return "", fmt.Errorf("%q is not a %s; write for example %s", text, kind, examples)
		}
		scale, known := all[m[2]]
		if !known {
			return "", unknown(text, m[1], m[2], kind, examples, u)
		}
		value, ok := new(big.Rat).SetString(strings.TrimSuffix(m[1], "."))
		if !ok {
			return "", fmt.Errorf("%q is not a %s; write for example %s", text, kind, examples)
		}
		sum.Add(sum, value.Mul(value, new(big.Rat).SetInt64(scale)))
		rest = rest[len(m[0]):]
	}
	sum.Quo(sum, new(big.Rat).SetInt64(own))
	if strings.HasPrefix(t, "-") {
		sum.Neg(sum)
	}
	if sum.IsInt() {
		return sum.Num().String(), nil
	}
	if whole {
		below := new(big.Int).Div(sum.Num(), sum.Denom())
		above := new(big.Int).Add(below, big.NewInt(1))
		return "", fmt.Errorf("%q is %s %s, but the field needs a whole number; write %v%s or %v%s", text, decimal(sum), string(u), below, u.short(), above, u.short())
	}
	return sum.FloatString(12), nil
}

func decimal(r *big.Rat) string {
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', 6, 64)
}

// Bare reports whether a text has no unit: a number in one of its notations, or
// a text that does not begin like a number.
func Bare(text string) bool {
	if !beginning.MatchString(text) || strings.Trim(text, "+-0123456789.") == "" {
		return true
	}
	_, isFloat := strconv.ParseFloat(text, 64)
	_, isInt := strconv.ParseInt(text, 0, 64)
	return isFloat == nil || isInt == nil
}

// unknown is the error about an unknown unit, or more than one.
func unknown(text, number, unit, kind, examples string, u Unit) error {
	lower := strings.ToLower(unit)
	switch {
	case kind == "time" && unit == "M":
		return fmt.Errorf("%q can be read in two ways; write %sm for minutes, or the number of %s in digits for millions", text, number, string(u))
	case kind == "time" && times[lower] != 0:
		return fmt.Errorf("the unit of %q is in capitals; write %s%s", text, number, lower)
	case kind == "size" && unit == "b":
		return fmt.Errorf("%q can be read in two ways; write %sB for bytes, or divide the number by 8 if it counts bits", text, number)
	case kind == "size":
		if prefix := strings.TrimSuffix(strings.TrimSuffix(lower, "b"), "i"); len(prefix) == 1 && strings.Contains("kmgt", prefix) {
			capital := strings.ToUpper(prefix)
			decimal := capital + "B"
			if prefix == "k" {
				decimal = "kB"
			}
			if strings.HasSuffix(strings.TrimSuffix(lower, "b"), "i") {
				return fmt.Errorf("the unit of %q has a wrong letter case; write %s%siB", text, number, capital)
			}
			return fmt.Errorf("%q can be read in two ways; write %s%s for powers of 1000, or %s%siB for powers of 1024", text, number, decimal, number, capital)
		}
	}
	return fmt.Errorf("%q has the unit %s, which is not a unit of a %s; write for example %s", text, unit, kind, examples)
}
