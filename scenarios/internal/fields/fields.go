// Package fields names the fields of structs as a file does: by their yaml
// tags, from the outermost in. It does not depend on scenarios.
package fields

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// More is a struct with more fields in a file than in the program, each of a
// type of its own.
type More interface {
	MoreNames() []string
	MoreType(name string) (reflect.Type, bool)
}

// more returns the additional fields of a type, or nil.
func more(t reflect.Type) More {
	m, _ := reflect.Zero(t).Interface().(More)
	return m
}

var (
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	digits          = regexp.MustCompile(`^[0-9]+$`)
	indices         = regexp.MustCompile(`\[[^]]*\]`)
)

// maxSteps is more than the length of any path.
const maxSteps = 16

// Split splits a path into names, indices such as "[3]" and "[*]".
func Split(path string) ([]string, error) {
	var parts []string
	for i := 0; i < len(path); {
		if len(parts) == maxSteps {
			return nil, fmt.Errorf("is too deep: no field has a path of more than %d names", maxSteps)
		}
		if path[i] == '[' {
			end := strings.IndexByte(path[i:], ']')
			inside := ""
			if end > 0 {
				inside = path[i+1 : i+end]
			}
			if inside != "*" && !(digits.MatchString(inside) && inside == strconv.Itoa(Number(inside)) && inside[0] != '-') || len(parts) == 0 {
				return nil, fmt.Errorf("has a wrong index at character %d: write a name and an index from 0, such as workers[3], or workers[*] for all", i+1)
			}
			parts = append(parts, path[i:i+end+1])
			i += end + 1
			continue
		}
		if len(parts) > 0 {
			if path[i] != '.' {
				return nil, fmt.Errorf("needs a dot at character %d, as in workers[3].id", i+1)
			}
			i++
		}
		end := i
		for end < len(path) && path[end] != '.' && path[end] != '[' {
			if c := path[end]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
				return nil, fmt.Errorf("has %q in it: names have letters, digits, _ and - only", path[end:end+1])
			}
			end++
		}
		if end == i {
			return nil, fmt.Errorf("has no name at character %d", i+1)
		}
		parts = append(parts, path[i:end])
		i = end
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("is empty: name a field such as policy.straggler.k")
	}
	return parts, nil
}

// Number reads an index.
func Number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1 // too large: no list is that long
	}
	return n
}

// IsValue says whether a type is written as a single value.
func IsValue(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(textUnmarshaler) {
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Pointer:
		return false
	}
	return true
}

// Index finds a field by its name in the file, also in inlined structs.
func Index(t reflect.Type, name string) ([]int, reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			if inner, ft := Index(f.Type, name); inner != nil {
				return append([]int{i}, inner...), ft
			}
		} else if n := Name(f); n == name && n != "-" {
			return []int{i}, f.Type
		}
	}
	return nil, nil
}

// Paths are the paths of all single values in a type, below a path, with [*] for
// the places of a list and NAME for the names in a table.
func Paths(t reflect.Type, path string) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case IsValue(t):
		return []string{path}
	case t.Kind() == reflect.Slice:
		return Paths(t.Elem(), path+"[*]")
	case t.Kind() == reflect.Map:
		return Paths(t.Elem(), Join(path, "NAME"))
	}
	var all []string
	if m := more(t); m != nil {
		for _, name := range m.MoreNames() {
			own, _ := m.MoreType(name)
			all = append(all, Paths(own, Join(path, name))...)
		}
	}
	for f := range t.Fields() {
		switch name := Name(f); {
		case !f.IsExported():
		case f.Anonymous:
			all = append(all, Paths(f.Type, path)...)
		case name != "-":
			all = append(all, Paths(f.Type, Join(path, name))...)
		}
	}
	return all
}

// Nearest is the path that a wrong path was probably meant for: one that ends
// with it, or else the one that is spelt most alike.
func Nearest(all []string, path string) string {
	plain := strings.ToLower(indices.ReplaceAllString(path[:min(len(path), 100)], ""))
	best, distance := "", math.MaxInt
	for _, f := range all {
		name := indices.ReplaceAllString(f, "")
		d := editDistance(name, plain)
		if strings.HasSuffix(name, "."+plain) || strings.HasPrefix(name, plain+".") {
			d = 0
		}
		if d < distance {
			best, distance = f, d
		}
	}
	return best
}

// Join appends a field's name to a path.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Kind names the kind of a single value in words.
func Kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Float64:
		return "number"
	case reflect.Uint64:
		return "whole number from 0"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "truth value (true or false)"
	}
	return "whole number"
}

// Name is the name of a field in the file.
func Name(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

// Type finds the type of a field by its name in the file, also in inlined structs.
func Type(t reflect.Type, name string) (reflect.Type, bool) {
	if m := more(t); m != nil {
		if own, ok := m.MoreType(name); ok {
			return own, true
		}
	}
	for f := range t.Fields() {
		if f.Anonymous && strings.HasSuffix(f.Tag.Get("yaml"), ",inline") {
			if ft, ok := Type(f.Type, name); ok {
				return ft, true
			}
			continue
		}
		if n := Name(f); n == name && n != "-" && f.IsExported() {
			return f.Type, true
		}
	}
	return nil, false
}

// Unit is a field's unit, by its tag unit; "" without one.
func Unit(t reflect.Type, name string) string {
	index, _ := Index(t, name)
	if index == nil {
		return ""
	}
	return t.FieldByIndex(index).Tag.Get("unit")
}

// Names are those of all fields of a struct.
func Names(t reflect.Type) []string {
	var names []string
	if m := more(t); m != nil {
		names = m.MoreNames()
	}
	for f := range t.Fields() {
		switch n := Name(f); {
		case !f.IsExported():
		case f.Anonymous:
			names = append(names, Names(f.Type)...)
		case n != "-":
			names = append(names, n)
		}
	}
	return names
}

// Known suggests the field that an unknown field was probably meant for.
func Known(t reflect.Type, name string) string {
	names := Names(t)
	if len(names) == 0 {
		return "no fields are allowed"
	}
	if meant := Meant(t, name); meant != "" {
		return fmt.Sprintf("did you mean %s?", meant)
	}
	return "the known fields are " + strings.Join(names, ", ")
}

// Meant is the field that an unknown one is spelt like, or "".
func Meant(t reflect.Type, name string) string {
	best, distance := "", 3
	for _, n := range Names(t) {
		if d := editDistance(strings.ToLower(n), strings.ToLower(name)); d < distance {
			best, distance = n, d
		}
	}
	return best
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
