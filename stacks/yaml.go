package stacks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"testbed/internal/errs"
)

// decode decodes the text of a stack.yaml into a struct. An error begins with the line
// and the field, as in "6: worker: …".
func decode(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := d.Decode(&document); {
	case errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0:
		return errors.New("1: the file is empty; it needs description, python, worker, probe and remedy")
	case err != nil:
		return syntaxError(err)
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%d: the file has more than one document; keep the first one only", max(second.Line, 1))
	}
	return fill(document.Content[0], "", reflect.ValueOf(into).Elem())
}

// syntaxError is an error of the YAML library with the line first.
func syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	return fmt.Errorf("%d: this is not YAML: %s", line, text)
}

// fill decodes a node into a value: a struct with yaml tags, a map from text, a list, text
// or a number. A struct with a method plain may be a number, too.
func fill(n *yaml.Node, field string, v reflect.Value) error {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	wrong := func(format string, args ...any) error {
		problem := fmt.Errorf(format, args...)
		if field == "" {
			return fmt.Errorf("%d: the file %w", n.Line, problem)
		}
		return fmt.Errorf("%d: %w", n.Line, errs.Fieldf(field, "%v", problem))
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil // as if it were not there
	}
	if s, is := v.Addr().Interface().(interface{ plain() *float64 }); is && n.Kind == yaml.ScalarNode {
		return fill(n, field, reflect.ValueOf(s.plain()).Elem())
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(n, field, v.Elem())
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			example := "a, b"
			if n.Kind == yaml.ScalarNode {
				example = n.Value
			}
			return wrong("must be a list, such as [%s]", example)
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for k, item := range n.Content {
			if err := fill(item, fmt.Sprintf("%s[%d]", field, k), v.Index(k)); err != nil {
				return err
			}
		}
	case reflect.Struct, reflect.Map:
		if n.Kind != yaml.MappingNode {
			return wrong("must have fields with values, as in {name: value}")
		}
		return fillFields(n, field, v)
	case reflect.Bool:
		if n.Decode(v.Addr().Interface()) != nil {
			return wrong("is %s: it must be true or false", sample(n))
		}
	case reflect.Float64:
		if n.Decode(v.Addr().Interface()) != nil || math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			return wrong("is %s: it must be a number", sample(n))
		}
	case reflect.Int:
		if x, err := strconv.ParseUint(n.Value, 10, 31); err != nil || n.Kind != yaml.ScalarNode {
			return wrong("is %s: it must be a whole number", sample(n))
		} else {
			v.SetInt(int64(x))
		}
	case reflect.String:
		if n.Kind != yaml.ScalarNode {
			return wrong("must be text")
		}
		v.SetString(n.Value)
	default:
		return wrong("cannot be read: a field of Go's type %v is not foreseen", v.Type())
	}
	return nil
}

// sample is a node in an error: its text, if it has some.
func sample(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return "a list or fields"
}

// fillFields decodes fields into a struct or a map.
func fillFields(n *yaml.Node, field string, v reflect.Value) error {
	seen := map[string]bool{}
	names, known := tagged(v)
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for k := 0; k+1 < len(n.Content); k += 2 {
		key, value := n.Content[k], n.Content[k+1]
		name := key.Value
		path := strings.TrimPrefix(field+"."+name, ".")
		switch {
		case key.Kind != yaml.ScalarNode:
			return fmt.Errorf("%d: %w", key.Line, errs.Fieldf(field, "the name of a field must be text"))
		case seen[name]:
			return fmt.Errorf("%d: %s: the field is given twice; keep one", key.Line, path)
		}
		seen[name] = true
		if v.Kind() == reflect.Map {
			item := reflect.New(v.Type().Elem()).Elem()
			if err := fill(value, path, item); err != nil {
				return err
			}
			v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), item)
			continue
		}
		at, is := known[name]
		if !is {
			return fmt.Errorf("%d: %s: there is no such field; the fields are %s", key.Line, path, strings.Join(names, ", "))
		}
		if err := fill(value, path, v.Field(at)); err != nil {
			return err
		}
	}
	return nil
}

// tagged are the names of a struct's fields, and their places; none of a map.
func tagged(v reflect.Value) (names []string, at map[string]int) {
	at = map[string]int{}
	if v.Kind() != reflect.Struct {
		return nil, at
	}
	for k := range v.NumField() {
		if tag := v.Type().Field(k).Tag.Get("yaml"); tag != "" && tag != "-" {
			names, at[tag] = append(names, tag), k
		}
	}
	return names, at
}
