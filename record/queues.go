package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"testbed/policy"
)

// Queue is how much waited for a node's link: the most that was seen since the
// Queue of that node before, in bytes of Ethernet frames.
type Queue struct {
	T    policy.Time `json:"t_us"`
	Node string      `json:"node"`
	Up   uint64      `json:"up_bytes"`
	Down uint64      `json:"down_bytes"`
}

// ReadQueues reads the content of QueuesFile. A last line that was cut off is no
// error.
func ReadQueues(r io.Reader) ([]Queue, error) {
	var all []Queue
	in := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("reading queues: %w", err)
		}
		var q Queue
		if err := json.Unmarshal(text, &q); err != nil {
			return all, fmt.Errorf("queue in line %d: %w", line, err)
		}
		all = append(all, q)
	}
}
