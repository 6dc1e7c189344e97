package record

import (
	"io"

	"testbed/internal/lines"
	"testbed/policy"
)

// Queue is the largest amount that waited for a node's link since the last
// Queue of that node, in bytes of Ethernet frames.
type Queue struct {
	T    policy.Time `json:"t_us"`
	Node string      `json:"node"`
	Up   uint64      `json:"up_bytes"`
	Down uint64      `json:"down_bytes"`
}

// ReadQueues reads the content of QueuesFile. An incomplete last line is not an
// error.
func ReadQueues(r io.Reader) ([]Queue, error) {
	var all []Queue
	err := lines.Read(r, "queue", func(_ int, _ []byte, q *Queue) error {
		all = append(all, *q)
		return nil
	})
	return all, err
}
