//go:build js && wasm

// Command wasm computes sweeps of estimates in a browser, for their page: with
// the same code as the command line. It defines a global function,
// testbedSheet, which takes a sweep as an object and returns its sheet as an
// object. If a value is impossible, it returns an object with field and
// problem.
package main

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"syscall/js"

	"testbed/estimate"
	"testbed/internal/errs"
)

func main() {
	js.Global().Set("testbedSheet", js.FuncOf(func(_ js.Value, arguments []js.Value) any {
		x, err := sheet(arguments[0])
		if wrong := (*errs.FieldError)(nil); errors.As(err, &wrong) {
			return map[string]any{"field": wrong.Field, "problem": wrong.Error()}
		}
		if err != nil {
			return map[string]any{"field": "", "problem": err.Error()}
		}
		return toJS(reflect.ValueOf(x))
	}))
	select {} // a program that ends can no longer be called
}

// question is a question of the page.
type question struct {
	Run          estimate.Run           `json:"run"`
	Variants     []estimate.Variant     `json:"variants"`
	Axes         []string               `json:"axes"`         // as estimate.ParseAxis reads them
	Measurements *estimate.Measurements `json:"measurements"` // null without a calibration
}

func sheet(v js.Value) (estimate.Sheet, error) {
	var q question
	if err := fromJS(reflect.ValueOf(&q).Elem(), v, ""); err != nil {
		return estimate.Sheet{}, err
	}
	s := estimate.Sweep{Run: q.Run, Variants: q.Variants, Measured: q.Measurements}
	for _, text := range q.Axes {
		axis, err := estimate.ParseAxis(text, assign)
		if err != nil {
			return estimate.Sheet{}, err
		}
		s.Axes = append(s.Axes, axis)
	}
	return s.Sheet()
}

// assign sets an input to a value in estimate.Axis's format.
func assign(r *estimate.Run, name, value string) error {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[estimate.Run]()) {
		if f.Tag.Get("json") != name {
			continue
		}
		to := reflect.ValueOf(r).Elem().FieldByIndex(f.Index)
		switch to.Kind() {
		case reflect.Float64:
			x, err := strconv.ParseFloat(value, 64)
			to.SetFloat(x)
			return err
		case reflect.Bool:
			x, err := strconv.ParseBool(value)
			to.SetBool(x)
			return err
		default:
			to.SetString(value)
			return nil
		}
	}
	return &errs.FieldError{Field: name, Problem: "is not an input"}
}

// nameOf is a field's name in JSON, and reports whether it may be absent there.
func nameOf(f reflect.StructField) (name string, optional bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, options == "omitempty"
}

// fromJS fills a value from an object by its fields' names in JSON.
func fromJS(to reflect.Value, v js.Value, field string) error {
	wrong := func(what string) error {
		return errs.Fieldf(field, "is of type %v: it must be a %s", v.Type(), what)
	}
	switch to.Kind() {
	case reflect.Pointer:
		if v.IsNull() {
			return nil
		}
		to.Set(reflect.New(to.Type().Elem()))
		return fromJS(to.Elem(), v, field)
	case reflect.Struct:
		if v.Type() != js.TypeObject {
			return wrong("object")
		}
		for _, f := range reflect.VisibleFields(to.Type()) {
			name, optional := nameOf(f)
			if name != "" && !(optional && v.Get(name).IsUndefined()) {
				if err := fromJS(to.FieldByIndex(f.Index), v.Get(name), name); err != nil {
					return err
				}
			}
		}
	case reflect.Slice:
		if !js.Global().Get("Array").Call("isArray", v).Bool() {
			return wrong("list")
		}
		to.Set(reflect.MakeSlice(to.Type(), v.Length(), v.Length()))
		for i := range v.Length() {
			if err := fromJS(to.Index(i), v.Index(i), field); err != nil {
				return err
			}
		}
	case reflect.Float64:
		if v.Type() != js.TypeNumber {
			return wrong("number")
		}
		to.SetFloat(v.Float())
	case reflect.Bool:
		if v.Type() != js.TypeBoolean {
			return wrong("boolean")
		}
		to.SetBool(v.Bool())
	case reflect.String:
		if v.Type() != js.TypeString {
			return wrong("string")
		}
		to.SetString(v.String())
	}
	return nil
}

// toJS converts a value for js.ValueOf, with the names of its fields in JSON.
func toJS(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Struct:
		object := map[string]any{}
		for i, f := range reflect.VisibleFields(v.Type()) {
			name, _ := nameOf(f)
			object[name] = toJS(v.Field(i))
		}
		return object
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = toJS(v.Index(i))
		}
		return list
	case reflect.Float64:
		return v.Float()
	case reflect.Bool:
		return v.Bool()
	}
	return v.String()
}
