package bench

import (
	"fmt"
	"slices"

	"testbed/allreduce/int8"
)

// Settings say which all-reduce is measured. All workers of a benchmark have
// the same. The network is not in them.
type Settings struct {
	Workers  int    `json:"workers"`
	Elements int    `json:"elements"` // values in each worker's vector
	Block    int    `json:"block"`    // values per scale
	Data     Data   `json:"data"`
	Seed     uint64 `json:"seed"` // of the data, and of all that is random on the links
	Warmup   int    `json:"warmup"`
	Repeat   int    `json:"repeat"`
}

// Bounds of the settings.
const (
	maxWorkers  = 256
	maxElements = 1 << 30
	maxRepeat   = 1000
)

// Check says what is wrong with the settings, by the name of their flag.
func (s *Settings) Check() error {
	for _, v := range []struct {
		flag               string
		value, least, most int
	}{
		{"workers", s.Workers, 2, maxWorkers}, {"elements", s.Elements, 1, maxElements},
		{"warmup", s.Warmup, 0, maxRepeat}, {"repeat", s.Repeat, 1, maxRepeat},
	} {
		if v.value < v.least || v.value > v.most {
			return fmt.Errorf("--%s %d must lie between %d and %d", v.flag, v.value, v.least, v.most)
		}
	}
	if err := int8.CheckBlock(s.Block); err != nil {
		return fmt.Errorf("--block %d: %w", s.Block, err)
	}
	if !slices.Contains(DataNames, s.Data) {
		return fmt.Errorf("--data %s: choose one of %v", s.Data, DataNames)
	}
	return nil
}
