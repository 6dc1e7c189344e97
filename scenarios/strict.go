package scenarios

import (
	"reflect"

	"testbed/scenarios/internal/fields"
)

// Decode reads a YAML or JSON file that is not a scenario as strictly as one. v
// points to a struct whose yaml tags name the fields. Fields that the file
// lacks keep their values, unless they have a tag need. Every error is an
// *Error. With at, the caller makes an *Error about a field that was read.
func Decode(file string, data []byte, v any) (at func(field, problem string) error, err error) {
	p := parser{file: file}
	if err := p.document(data, "set of inputs", "write {} for all defaults"); err != nil {
		return nil, err
	}
	if err := p.fill(v); err != nil {
		return nil, err
	}
	if err := p.problem(); err != nil {
		return nil, err
	}
	return p.fail, nil
}

// Assign sets a field of the struct that v points to; the value is written as
// in a file for Decode. Every error is an *Error.
func Assign(v any, field, value string) error {
	var p parser
	t := reflect.TypeOf(v).Elem()
	index, kind := fields.Index(t, field)
	if index == nil {
		return p.fail(field, "unknown field; "+fields.Known(t, field))
	}
	n, err := p.single(field, value, kind, fields.Unit(t, field))
	if err != nil {
		return err
	}
	if err := n.Decode(reflect.ValueOf(v).Elem().FieldByIndex(index).Addr().Interface()); err != nil {
		return p.yamlError(err)
	}
	return nil
}
