package main

import (
	"strconv"

	"github.com/spf13/pflag"

	"testbed/internal/units"
)

// counted is the value of a flag with a unit. Another unit may be written with
// its name.
type counted struct {
	value *int64
	unit  units.Unit
}

// countedFlag adds such a flag.
func countedFlag(f *pflag.FlagSet, value *int64, unit units.Unit, name string, standard int64, usage string) {
	*value = standard
	f.Var(&counted{value, unit}, name, usage)
}

func (c *counted) String() string { return strconv.FormatInt(*c.value, 10) }

// Type is the value's name in usage texts.
func (*counted) Type() string { return "int" }

// Set reads the value.
func (c *counted) Set(text string) error {
	number, err := c.unit.Plain(text, true)
	if err != nil {
		return err
	}
	if number == "" {
		number = text
	}
	v, err := strconv.ParseInt(number, 0, 64)
	if err == nil {
		*c.value = v
	}
	return err
}
