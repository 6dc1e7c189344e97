package scenarios

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"testbed/internal/units"
	"testbed/shaping"
)

// Fields whose tag unit is one of these are rates.
const (
	bytesPerMicrosecond = "B/µs"
	megabitsPerSecond   = "Mbit/s"
)

// quantity converts a number with a unit to a plain number in the field's unit.
func (p *parser) quantity(n *yaml.Node, unit string, t reflect.Type, path string) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return // shape reports it
	}
	number, err := plainNumber(n.Value, unit, t.Kind() != reflect.Float64)
	switch {
	case err != nil:
		p.at(n, path, err.Error())
	case number != "":
		n.Value, n.Tag, n.Style = number, "!!int", 0
		if strings.Contains(number, ".") {
			n.Tag = "!!float"
		}
	}
}

// plainNumber converts a quantity to the field's unit. It is "" if the text has
// no unit.
func plainNumber(text, unit string, whole bool) (string, error) {
	bits := 0.0
	switch unit {
	case bytesPerMicrosecond:
		bits = 8e6
	case megabitsPerSecond:
		bits = 1e6
	default:
		return units.Unit(unit).Plain(text, whole)
	}
	if units.Bare(strings.TrimSpace(text)) {
		return "", nil
	}
	rate, err := shaping.ParseRate(text)
	if err != nil {
		return "", err
	}
	count := float64(rate) / bits
	switch below := math.Floor(count); {
	case whole && below == 0 && count > 0:
		return "", fmt.Errorf("%q is %v %s, but the field needs a whole number from 1; write 1 (%v)", text, count, unit, rateOf(bits))
	case whole && below != count:
		return "", fmt.Errorf("%q is %v %s, but the field needs a whole number; write %v (%v) or %v (%v)", text, count, unit,
			below, rateOf(below*bits), below+1, rateOf((below+1)*bits))
	}
	return strconv.FormatFloat(count, 'f', -1, 64), nil
}

func rateOf(bits float64) string { return shaping.Rate(bits).String() }
